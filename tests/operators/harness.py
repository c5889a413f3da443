"""Histories of events, drawn at random, and the engine without Spark to run queries over them.

A history is what happened; a cutting is how the engine came to see it: where epochs end in each partition,
how many slices there are in each epoch, where watermarks are held back. Only the first may decide what a query answers;
except that a cutting may let partitions become idle, so that what they bring afterwards is late.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch.rate_control import EmissionLimit, PendingEmissions, WatermarkStep
from penstock.logs.contract import Partition
from penstock.operators.event_windows import END_OF_TIME
from penstock.operators.job_windows import CLOSING_BATCHES
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog

SECOND = 1_000_000
#: microseconds an event may be older than the newest before it in its partition
LATENESS = 3 * SECOND
BUCKETS = 8

Row = dict[str, Any]
Build = Callable[[ps.Stream], ps.Stream]

#: how the properties here are tried: few examples (more on request), not shrunk, without a clock
modestly = settings(
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "15")),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Event:
    """One event as the oracles see it; `time` in microseconds."""

    partition: int
    offset: int
    time: int
    user: str | None
    page: str | None
    n: int | None
    x: float | None

    def line(self) -> str:
        fields = {"time": self.time, "user": self.user, "page": self.page, "n": self.n, "x": self.x}
        return json.dumps({name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True)
class History:
    """The events of each partition, in the order they were logged."""

    partitions: tuple[tuple[Event, ...], ...]

    def on_time(self) -> list[Event]:
        """The events that are not late, in total order."""
        on_time: list[Event] = []
        for partition in self.partitions:
            newest: int | None = None
            for event in partition:
                if newest is None or event.time >= newest - LATENESS:
                    on_time.append(event)
                newest = event.time if newest is None else max(newest, event.time)
        return sorted(on_time, key=lambda event: (event.time, event.partition, event.offset))

    def late(self) -> int:
        return sum(map(len, self.partitions)) - len(self.on_time())


#: two partitions, one with two events an instant
HISTORY = History(
    (
        tuple(
            Event(0, i, (1_000 + i // 2) * SECOND, "ada" if i % 3 else "bob", f"/{i % 4}", i, i / 4)
            for i in range(24)
        ),
        tuple(Event(1, i, (1_000 + i) * SECOND, "cyd", "/x", -i, None) for i in range(9)),
    )
)


@dataclass(frozen=True)
class Cutting:
    """After how many events an epoch ends, per partition, and the slices of the epochs, in turn; and what decides where
    watermarks are held back (None: nowhere)."""

    ends: tuple[frozenset[int], ...]
    slices: tuple[int, ...]
    holds: int | None = None
    #: per partition, the offsets at which it is silent, each with the number of times that its log is listed until then
    silences: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def closing(self) -> Holding | None:
        return None if self.holds is None else Holding(self.holds)


class Holding(EmissionLimit):
    """Holds watermarks anywhere, for an epoch or more, as if emitting what is due took time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        object.__setattr__(self, "draw", random.Random(seed))

    def next_step(
        self, pending: PendingEmissions, room_seconds: float, reading_seconds: float
    ) -> WatermarkStep:
        draw: random.Random = self.draw  # type: ignore[attr-defined]
        if draw.random() < 0.3:
            return WatermarkStep()
        unlimited = min(pending.unlimited, END_OF_TIME - 1)  # beyond it nothing is due
        anywhere = [pending.watermark, unlimited, *(unlimited - back * SECOND for back in range(1, 30))]
        at = draw.choice([*anywhere, *(at - 1 for at in pending.rows for _ in range(4))])
        return WatermarkStep(
            (max(at, pending.watermark), draw.choice([0, 1, 5, CLOSING_BATCHES - 1, CLOSING_BATCHES]))
        )

    def observe(self, share: float, factor: float) -> EmissionLimit:
        return self


STRAIGHT = Cutting((), (1,))


class CutLog(ListLog):
    """A log whose partitions can be taken up to the given ends only, one end an epoch.

    A partition that is read up to one of its `silences` has nothing more until it has been listed so many times.
    """

    def __init__(
        self,
        lines: Mapping[str, Sequence[str]],
        ends: Mapping[str, frozenset[int]],
        silences: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    ) -> None:
        super().__init__(lines)
        self._ends, self._silences = ends, silences or {}
        self._listed: Counter[tuple[str, int]] = Counter()

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return [self._until_silent(one, offsets.get(one.id, 0)) for one in super().partitions(offsets)]

    def _until_silent(self, partition: Partition, read: int) -> Partition:
        for at, times in sorted(self._silences.get(partition.id, ())):
            if read == at:
                self._listed[partition.id, at] += 1
            if read <= at <= partition.latest and self._listed[partition.id, at] <= times:
                return replace(partition, latest=at, finished=False)
        return partition

    def cut(self, partition: str, start: int, units: int) -> int:
        whole = super().cut(partition, start, units)
        return min((end for end in self._ends.get(partition, ()) if start < end < whole), default=whole)


@st.composite
def histories(draw: st.DrawFn, *, most_events: int = 24, floats: bool = False) -> History:
    """Up to three partitions of events out of order, some too late, with few keys, nulls and negative values."""
    number = st.integers(-3, 5) if not floats else st.integers(-9, 9)
    fraction = st.integers(-40, 40).map(lambda quarters: quarters / 4)
    if floats:
        fraction = st.floats(-1e6, 1e6, allow_nan=False)
    event = st.tuples(
        st.sampled_from([0, 0, 1, 1, 1, 2, 3, 7, -1, -2, -5]),
        st.sampled_from([0, 250_000, 999_999]),
        st.sampled_from(["ada", "bob", "cyd", "dot", "eve", "", None]),
        st.sampled_from(["/a", "/b", "/c", None]),
        st.none() | number,
        st.none() | fraction,
    )
    partitions = []
    for partition in range(draw(st.integers(1, 3))):
        now, events = 1_000 * SECOND, []
        for offset, (step, part, user, page, n, x) in enumerate(draw(st.lists(event, max_size=most_events))):
            time = (now // SECOND + step) * SECOND + part
            now = max(now, time)
            events.append(Event(partition, offset, time, user, page, n, x))
        partitions.append(tuple(events))
    return History(tuple(partitions))


def cuttings() -> st.SearchStrategy[Cutting]:
    """Any way to cut a history into epochs and slices."""
    ends = st.frozensets(st.integers(1, 24), max_size=8)
    slices = st.lists(st.integers(1, 5), min_size=1).map(tuple)
    return st.builds(Cutting, st.tuples(ends, ends, ends), slices, st.none() | st.integers(0, 999))


#: the partition and the offset of an event
Place = tuple[int, int]


def events_stream(
    history: History, cutting: Cutting = STRAIGHT, name: str = "events", *, unreadable: Collection[Place] = ()
) -> ps.Stream:
    """A stream over a history. Events at the `unreadable` places become dead letters; the others keep their offsets."""
    lines = {
        f"p{at}": ["?" if (at, event.offset) in unreadable else event.line() for event in part]
        for at, part in enumerate(history.partitions)
    }
    ends = {f"p{at}": places for at, places in enumerate(cutting.ends)}
    columns = {
        "time": pl.Datetime("us", "UTC"),
        "user": pl.String(),
        "page": pl.String(),
        "n": pl.Int64(),
        "x": pl.Float64(),
    }
    decoder = ps.json_lines(columns, times={"time": "us"})
    silences = {f"p{at}": places for at, places in enumerate(cutting.silences)}
    return ps.stream(name, CutLog(lines, ends, silences), decoder, time="time", lateness=LATENESS / SECOND)


def fast_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for state that need not outlive a test."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def run_app(app: ps.App, cutting: Cutting = STRAIGHT) -> dict[str, list[Row]]:
    """The rows of every output, in the order in which they were emitted."""
    found: dict[str, list[Row]] = {out.name: [] for out in app.outputs}
    with fast_directory() as folder:
        reports = run_inline(
            app,
            Path(folder) / "state",
            slices=lambda epoch: cutting.slices[epoch % len(cutting.slices)],
            buckets=BUCKETS,
            closing=cutting.closing,
        )
    for report in reports:
        for name, rows in report.rows.items():
            found[name] += rows.to_dicts()
    return found


def run_query(build: Build, history: History, cutting: Cutting = STRAIGHT) -> list[Row]:
    """The rows of one query over a history."""
    return run_app(ps.app("test", ps.output("out", build(events_stream(history, cutting)))), cutting)["out"]


def micros(rows: list[Row]) -> list[Row]:
    """Rows with their instants as microseconds, as the oracles have them."""
    return [
        {
            name: round(value.timestamp() * SECOND) if hasattr(value, "timestamp") else value
            for name, value in row.items()
        }
        for row in rows
    ]


def in_any_order(rows: list[Row]) -> list[str]:
    """Rows as sortable texts."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)
