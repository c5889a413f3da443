"""The oracle of a soak: what each sink has to have, computed in plain Python from the numbers of the events alone.

It shares no code with the product. A sink that has a row twice, lacks one, or has one that it should not have is an
error that names the job and the first such row.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.soak_jobs import (
    BIG,
    BOUNDS,
    FILED,
    PUSHED,
    SQLITE_SHAPES,
    Interval,
    JobChanges,
    coming_bound,
    coming_shape,
)
from bench.soak_load import BEGIN, TICK_EVENTS, Event, make_event, make_events
from bench.soak_receiver import Receiver
from penstock.errors import InternalError

#: an event that was written so many events before or after a command may be on either side of it
SLACK_EVENTS = 8 * TICK_EVENTS


class Oracle:
    """What the sinks of a soak have to have of the first `count` events. `slack`: see `SLACK_EVENTS`."""

    def __init__(self, folder: Path, receiver: Receiver, changes: JobChanges, count: int, slack: int) -> None:
        self._folder, self._receiver, self._changes = folder, receiver, changes
        self._count, self._slack = count, slack

    def check(self) -> dict[str, int]:
        """Compare every sink; returns how many rows each has. Raises SOAK_DISAGREES."""
        rows = {
            "counts in SQLite": self.check_counts(
                "counts in SQLite", self.sqlite("counts", "window_start, key, n, total")
            ),
            "counts in files": self.check_counts("counts in files", window_rows(self.files("out/counts"))),
            "big in SQLite": self.check_all("big in SQLite", self.numbers("big"), BIG),
            "big in files": self.check_all("big in files", numbers_of(self.files("full/big")), BIG),
            "pushed over HTTP": self.check_all(
                "pushed over HTTP", numbers_of(self._receiver.rows("/pushed")), PUSHED
            ),
            "counts over HTTP": self.check_counts(
                "counts over HTTP", window_rows(self._receiver.rows("/counts"))
            ),
            "filed": self._check_gaps(
                "filed", numbers_of(self.files("out/filed")), FILED, self._changes.broken
            ),
            "paused": self._check_gaps("paused", self.numbers("paused"), BIG, self._changes.paused),
            "altered": self._check_altered(),
        }
        return rows | {"jobs that come and go": self._check_coming()}

    # -- what is there ---------------------------------------------------------------------------

    def sqlite(self, name: str, columns: str) -> Iterator[tuple[Any, ...]]:
        database = sqlite3.connect(self._folder / "out" / f"{name}.db")
        try:
            yield from database.execute(f"SELECT {columns} FROM {name}")
        finally:
            database.close()

    def numbers(self, name: str) -> list[int]:
        return [number for (number,) in self.sqlite(name, "number")]

    def files(self, folder: str) -> Iterator[dict[str, Any]]:
        for path in sorted((self._folder / folder).glob("epoch-*.jsonl")):
            with open(path, encoding="utf-8") as file:
                yield from map(json.loads, file)

    # -- what has to be there --------------------------------------------------------------------

    def _chosen(self, bound: int) -> Iterator[int]:
        return (event.number for event in make_events(self._count) if event.bytes >= bound)

    def check_all(self, what: str, found: Sequence[int], bound: int) -> int:
        """All events from a bound on, each once."""
        compare_rows(what, found, self._chosen(bound))
        return len(found)

    def check_counts(self, what: str, found: Iterable[tuple[Any, ...]]) -> int:
        """Windows of 10 s by key, as far as they are closed."""
        windows: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
        for event in make_events(self._count):
            place = _seconds(event) // 10 * 10, event.key
            windows[place] = windows[place][0] + 1, windows[place][1] + event.bytes
        rows = [(_window(at), key, n, total) for at, key, n, total in found]
        end = max((at for at, *_ in rows), default=-1)
        self._check_end(what, end + 10)
        compare_rows(what, rows, [(at, key, *of) for (at, key), of in windows.items() if at <= end])
        return len(rows)

    def _check_end(self, what: str, end: int) -> None:
        """Windows are closed up to the end of the events, but for those that idle partitions hold open."""
        newest = _seconds(make_event(self._count - 1))
        if newest - end > 60:
            raise _disagreement(what, f"its windows end {newest - end} s before the last event")

    def _check_altered(self) -> int:
        found = self.numbers("altered")
        compare_rows(
            "altered", [n for n in found if make_event(n).bytes >= max(BOUNDS)], self._chosen(max(BOUNDS))
        )
        _check_once("altered", found)
        _check_bound("altered", found, min(BOUNDS))
        return len(found)

    def _check_gaps(self, what: str, found: Sequence[int], bound: int, gaps: Sequence[Interval]) -> int:
        """All events from a bound on, but perhaps for those in gaps."""
        _check_once(what, found)
        _check_bound(what, found, bound)
        missing = set(self._chosen(bound)) - set(found)
        for gap in gaps:
            end = self._count if gap.end is None else gap.end
            missing = {n for n in missing if not gap.start - self._slack <= n < end + self._slack}
        if missing:
            raise _disagreement(what, f"it lacks event {min(missing)} and {len(missing) - 1} more")
        return len(found)

    def _check_coming(self) -> int:
        """Of each job that comes and goes all its events between some that are near its start and its end, once."""
        found: dict[int, list[int]] = defaultdict(list)
        for job, number in self.sqlite("coming", "job, number"):
            found[job].append(number)
        pushed: dict[int, list[int]] = defaultdict(list)
        for row in self._receiver.rows("/coming"):
            pushed[row["job"]].append(row["number"])
        for job, interval in self._changes.created.items():
            if coming_shape(job) < SQLITE_SHAPES:
                self._check_interval(f"d{job}", found.pop(job, []), job, interval)
            elif coming_shape(job) == SQLITE_SHAPES:
                # what its receiver lacks when the job is dropped is not delivered
                _check_once(f"d{job} over HTTP", pushed.pop(job, []))
        if found or pushed:
            raise _disagreement(
                "jobs that come and go", f"rows of jobs that are not: {[*found, *pushed][:5]}"
            )
        return sum(1 for _ in self._changes.created)

    def _check_interval(self, what: str, found: Sequence[int], job: int, interval: Interval) -> None:
        _check_once(what, found)
        end = self._count if interval.end is None else interval.end
        start, bound = interval.start, coming_bound(job)
        inner = range(start + self._slack, end - self._slack)
        missing = {n for n in inner if make_event(n).bytes >= bound} - set(found)
        foreign = [n for n in found if not start - self._slack <= n < end + self._slack]
        if missing or foreign:
            raise _disagreement(what, f"of events {start} to {end} it lacks {missing}; and has {foreign[:5]}")
        _check_bound(what, found, bound)


def numbers_of(rows: Iterable[dict[str, Any]]) -> list[int]:
    return [row["number"] for row in rows]


def window_rows(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    return ((row["window_start"], row["key"], row["n"], row["total"]) for row in rows)


def _seconds(event: Event) -> int:
    """The event time in whole seconds from the start."""
    return int((event.at - BEGIN).total_seconds() // 1)


def _window(text: str) -> int:
    """The seconds from the start of a time in a sink."""
    from datetime import datetime

    return int((datetime.fromisoformat(text.replace("Z", "+00:00")) - BEGIN).total_seconds())


def _check_once(what: str, found: Sequence[int]) -> None:
    if len(set(found)) < len(found):
        number, times = Counter(found).most_common(1)[0]
        raise _disagreement(what, f"it has event {number} {times} times")


def _check_bound(what: str, found: Sequence[int], bound: int) -> None:
    foreign = [n for n in found if n < 0 or make_event(n).bytes < bound]
    if foreign:
        raise _disagreement(what, f"it has event {foreign[0]}, which it should not have")


def compare_rows(what: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Both have the same rows, in any order."""
    have, need = Counter(found), Counter(expected)
    if have != need:
        more, less = have - need, need - have
        raise _disagreement(
            what,
            f"{more.total()} rows too many, as {list(more.items())[:3]}; {less.total()} are missing, as "
            f"{sorted(less.items())[:3]}",
        )


def _disagreement(what: str, detail: str) -> InternalError:
    return InternalError("SOAK_DISAGREES", f"the output of {what} is wrong", detail=f"{detail}.")
