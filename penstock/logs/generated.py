"""Generates logs: endless or bounded streams that need no files and can be read again anywhere.

Receives what makes the lines, a rate and what an earlier run remembered; returns lines by record offset.

Invariants:
- Record k of a partition is the same bytes whichever span, process or machine reads it.
- Event times follow the rate profile. Of a live log they are wall-clock times: each run of the engine is a
  segment that starts at the offsets reached, with event times from then on; older segments keep theirs.
- While no engine runs, the log's clock stands still.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, Unpack, cast

import numpy as np

from penstock.errors import ExternalError, UserError
from penstock.logs.clickstream import Clicks
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.draw import Ints
from penstock.logs.rates import Curve, Profile, Rate, Shape

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When the events of a log that is not live start, by default."""


@dataclass(frozen=True)
class _Segment:
    """One run of a live log: from these offsets on, starting at this instant, at this rate."""

    at_micros: int
    first: tuple[int, ...]
    rate: Rate


class Lines(Protocol):
    """What makes the lines: a function of partition, offset and event time, and of nothing else."""

    #: what they are, for people, and the name of a file of them
    kind: ClassVar[str]
    file_name: ClassVar[str]
    #: about how long a line is
    line_bytes: ClassVar[int]

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        """The lines of the offsets from `first`, one for each instant (microseconds since 1970)."""


class MadeLog(Log):
    """A log made from counters: `lines` make its content, the rest its times."""

    unit = "records"

    def __init__(
        self,
        lines: Lines,
        rate: Rate,
        *,
        partitions: int,
        total: int | None,
        live: bool,
        start_time: datetime,
        clock: Callable[[], float],
    ) -> None:
        if partitions < 1 or (total is not None and total < 0):
            raise too_small_error()
        if not live and total is None:
            raise UserError(
                "BAD_GENERATED_LOG", "a generated log that is not live needs an end", hint="Give it a total."
            )
        self._lines = lines
        self._rate = rate
        self._curves: dict[Rate, Curve] = {}
        self._count = partitions
        self._total = total
        self._live = live
        origin = start_time if start_time.tzinfo else start_time.replace(tzinfo=UTC)
        self._origin_micros = round(origin.timestamp()) * 1_000_000
        self._clock = clock
        self._segments: list[_Segment] = []
        self._latest: dict[int, int] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_curves": {}}

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Start a run: a live log continues from the offsets reached, with event times from now."""
        if not self._live:
            return {}
        segments = _parse_segments(memory or {})
        if any(len(segment.first) != self._count for segment in segments):
            raise UserError(
                "LOG_CHANGED",
                f"the generated log had another number of partitions than {self._count} before",
                hint="Give it the number it had, or start with an empty state directory.",
            )
        before = segments[-1].first if segments else (0,) * self._count
        first = tuple(max(low, offsets.get(f"p{p}", 0)) for p, low in enumerate(before))
        segments.append(_Segment(int(self._clock() * 1_000_000), first, self._rate))
        self._segments = segments
        self._latest = {}
        return {"segments": [[s.at_micros, list(s.first), asdict(s.rate)] for s in segments]}

    def resumed(self, memory: Mapping[str, object]) -> None:
        if self._live:
            self._segments, self._latest = _parse_segments(memory), {}

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        if self._live and not self._segments:
            self.start(None, offsets)
        found = []
        for p in range(self._count):
            end = self._end(p)
            latest = self._available(p) if self._live else cast("int", end)
            latest = max(latest, self._latest.get(p, 0))  # a wall clock may be set back
            self._latest[p] = latest
            found.append(Partition(f"p{p}", 0, latest, finished=end is not None and latest >= end))
        return found

    def closed(self) -> bool:
        return self._total is not None

    def cut(self, partition: str, start: int, units: int) -> int:
        p = self._parse_number(partition)
        if p not in self._latest:
            self.partitions({})
        return max(start, min(start + max(units, 1), self._latest[p]))

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        p = self._parse_number(span.partition)
        step = max(chunk_bytes // self._lines.line_bytes, 1)
        for first in range(span.start, span.end, step):
            instants = self.event_times(p, first, min(first + step, span.end))
            yield Chunk(span.partition, first, self._lines.lines(p, first, instants))

    def settings(self) -> Mapping[str, object]:
        return {
            "lines": repr(self._lines),
            "rate": repr(self._rate),
            "partitions": self._count,
            "total": self._total,
            "live": self._live,
            "start_time": self._origin_micros,
        }

    def describe(self) -> str:
        size = "endless" if self._total is None else f"{self._total} events"
        return f"generated {self._lines.kind}, {size}, {self._rate.profile} {self._rate.per_second:g}/s"

    def event_times(self, partition: int, start: int, end: int) -> Ints:
        """The event times of some records, in microseconds since 1970, before any disorder."""
        if not self._live:
            return self._due_times(self._rate, partition, start, end) + self._origin_micros
        parts = [np.zeros(0, np.int64)]
        for index, segment in enumerate(self._segments):
            low, high = max(segment.first[partition], start), end
            if index + 1 < len(self._segments):
                high = min(self._segments[index + 1].first[partition], end)
            if low < high:
                since = segment.at_micros - self._clock_at_start(segment, partition)
                parts.append(self._due_times(segment.rate, partition, low, high) + since)
        return np.concatenate(parts)

    def materialise(self, directory: str | os.PathLike[str], *, chunk_bytes: int = 16 << 20) -> list[Path]:
        """Write a log that is not live into files, one for each partition, for benchmarks and batches."""
        if self._live:
            raise UserError("BAD_GENERATED_LOG", "a live log has no end to write", hint="Make it live=False.")
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        paths = []
        for partition in self.partitions({}):
            path = target / f"{self._lines.file_name}-{partition.id}.log"
            with open(path, "wb") as file:
                for chunk in self.read(Span(partition.id, 0, partition.latest), chunk_bytes):
                    file.write(chunk.data)
            paths.append(path)
        return paths

    def _due_times(self, rate: Rate, partition: int, start: int, end: int) -> Ints:
        """The times of records by the log's own clock: partition p has every `count`-th event, from p on."""
        return self._curve_of(rate).instants(np.arange(start, end, dtype=np.int64) * self._count + partition)

    def _available(self, partition: int) -> int:
        segment = self._segments[-1]
        first = segment.first[partition]
        passed = int(self._clock() * 1_000_000) - segment.at_micros
        if passed < 0:
            return first
        events = self._curve_of(segment.rate).count(self._clock_at_start(segment, partition) + passed)
        count = -(-(events - partition) // self._count)
        end = self._end(partition)
        return max(first, count if end is None else min(count, end))

    def _clock_at_start(self, segment: _Segment, partition: int) -> int:
        """The time on the log's own clock when a segment starts; it stood still since the one before."""
        return self._curve_of(segment.rate).instant(segment.first[partition] * self._count)

    def _end(self, partition: int) -> int | None:
        return None if self._total is None else max(0, -(-(self._total - partition) // self._count))

    def _curve_of(self, rate: Rate) -> Curve:
        if rate not in self._curves:
            self._curves[rate] = rate.curve()
        return self._curves[rate]

    def _parse_number(self, partition: str) -> int:
        number = partition.removeprefix("p")
        if not number.isdigit() or int(number) >= self._count:
            raise ExternalError(
                "LOG_SPAN_GONE",
                f"the generated log has no partition {partition!r}",
                hint=f"It has p0 to p{self._count - 1}; give it the number of partitions it had.",
            )
        return int(number)


class GeneratedLog(MadeLog):
    """A generated click stream over `partitions`, at `rate` events a second in all.

    `total` bounds it (over all partitions). A `live` log has records as time passes; otherwise all are
    there at once, with event times from `start_time` (UTC unless it has a zone). `disorder_seconds`
    makes event times early by up to that much, at random. `clock` returns seconds since 1970.
    `shape` takes the parameters of the profile:
    `period_seconds`, `amplitude`, `spike_factor`, `step_factor`, `at_seconds`, `for_seconds` (see `Rate`).
    """

    # over 8 parameters: the public API; all are keywords with a default
    def __init__(
        self,
        *,
        partitions: int = 2,
        seed: int = 1,
        users: int = 100_000,
        pages: int = 1_000,
        zipf_users: float = 1.05,
        zipf_pages: float = 1.1,
        rate: float = 20_000,
        profile: Profile = "constant",
        total: int | None = None,
        live: bool = True,
        disorder_seconds: float = 0.0,
        start_time: datetime = ORIGIN,
        clock: Callable[[], float] = time.time,
        **shape: Unpack[Shape],
    ) -> None:
        if min(users, pages) < 1 or disorder_seconds < 0:
            raise too_small_error()
        super().__init__(
            Clicks(seed, users, pages, zipf_users, zipf_pages, disorder_seconds),
            Rate(rate, profile, **shape),
            partitions=partitions,
            total=total,
            live=live,
            start_time=start_time,
            clock=clock,
        )


def _parse_segments(memory: Mapping[str, object]) -> list[_Segment]:
    segments = cast("list[list[Any]]", memory.get("segments", []))
    return [_Segment(int(at), tuple(first), Rate(**rate)) for at, first, rate in segments]


def too_small_error() -> UserError:
    """The error for a setting below what makes sense."""
    return UserError("BAD_GENERATED_LOG", "a count or a duration of the generated log is too small")
