"""Finds out whether the wall clock is behind a stream, and then from which time its future events are measured.

A leader whose clock is days behind would take all events of a stream for future events. So admission reads a sample of
what an epoch ends with: the last records of its spans. If most of them are future events by the wall clock, the clock
is wrong, and the stream's own time counts: that of the newest event in the sample that can be reached from its median,
from event to event. A few events with a wild date change neither. The result is in the epoch record, so a replay and a
follower decide the same.

A sample is read while it is not yet known that the clock fits, after the clock was set, and where an epoch leaves a
backlog. A stream that fits and has no backlog costs nothing.
Does not guarantee: to notice a clock that is ahead, which only loosens the bound, by as much as it is wrong.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import polars as pl

from penstock.logs.contract import Log, Span
from penstock.query.logical import StreamDefinition

_LOG = logging.getLogger(__name__)
#: so many events show what the time of a stream is; of a slow stream they come from several epochs
LEAST_EVENTS = 10
_RECENT_EVENTS = 100
#: of how much of a span, in bytes, and of how many spans the times are looked at
_SAMPLE_BYTES = 64 << 10
_SPANS = 8
#: events so far apart (microseconds) may belong together, whatever the stream's bound is: files of several days
_REACH = 2 * 86_400_000_000
#: the wall clock was set if it differs by so many seconds from what has passed
_CLOCK_SET_SECONDS = 60.0


class StreamClocks:
    """The wall clock, and by how much streams are ahead of it. `behind_seconds` may be read from any thread."""

    def __init__(
        self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._clock = wall, clock
        self._offset: float | None = None
        self._recent: dict[str, deque[int]] = {}
        #: streams of which the sample fits the wall clock
        self._fits: set[str] = set()
        self._times: dict[str, int] = {}
        #: of streams whose own time counts, by how much the wall clock is behind it
        self.behind_seconds: dict[str, float] = {}

    def read_wall(self) -> int:
        """The wall clock, in microseconds; if it was set since the last time, streams are compared with it again."""
        now = self._wall()
        offset = now - self._clock()
        if self._offset is not None and abs(offset - self._offset) > _CLOCK_SET_SECONDS:
            self._fits.clear()
        self._offset = offset
        return int(now * 1e6)

    def resume(self, times: Mapping[str, int], wall: int) -> None:
        """Continue with the streams' own times that the last epoch record has. One that the wall clock has passed says
        nothing any more."""
        self._times = {name: at for name, at in times.items() if at > wall}
        self.behind_seconds = {name: (at - wall) / 1e6 for name, at in self._times.items()}

    def find_time(
        self,
        stream: StreamDefinition,
        before: Mapping[str, int],
        at: Mapping[str, int],
        wall: int,
        *,
        has_backlog: bool,
    ) -> int | None:
        """The time from which the future events of an epoch are measured, if it is not the wall clock."""
        name = stream.name
        spans = [
            Span(pid, before[pid], end) for pid, end in at.items() if pid in before and end > before[pid]
        ]
        if stream.ahead is None or stream.time is None:
            return None
        if not spans or (name in self._fits and not has_backlog):
            return self._times.get(name)
        recent = self._recent.setdefault(name, deque(maxlen=_RECENT_EVENTS))
        times = _sample_times(stream, sorted(spans, key=lambda span: span.start - span.end)[:_SPANS])
        if len(times) < LEAST_EVENTS:
            recent.extend(times)
            times = list(recent)
        if len(times) >= LEAST_EVENTS:
            self._compare(name, sorted(times), wall, stream.ahead)
        return self._times.get(name)

    def _compare(self, name: str, times: list[int], wall: int, ahead: int) -> None:
        median = times[(len(times) - 1) // 2]
        if median <= wall + ahead:
            self._fits.add(name)
            if self._times.pop(name, None) is not None:
                self.behind_seconds.pop(name)
                _LOG.warning("the wall clock fits the events of %s again", name)
            return
        newest = median
        for one, following in pairwise(times[(len(times) - 1) // 2 :]):
            if following - one > max(2 * ahead, _REACH):
                break
            newest = following
        self._fits.discard(name)
        newest = max(newest, self._times.get(name, newest))
        if name not in self._times:
            _LOG.warning(
                "the wall clock of this machine is wrong, or the events of %s are: most are dated %.1f hours and more "
                "after it. They are believed, and the bound for future events follows the stream. Set the clock",
                name,
                (median - wall) / 3.6e9,
            )
        self._times[name] = newest
        self.behind_seconds[name] = (newest - wall) / 1e6


def _sample_times(stream: StreamDefinition, spans: list[Span]) -> list[int]:
    """The event times of the last records of some spans."""
    times: list[int] = []
    for span in spans:
        try:
            chunk = next(iter(stream.log.read(_end_of(stream.log, span), _SAMPLE_BYTES)), None)
            if chunk is None or not chunk.data:
                continue
            decoded = stream.decoder.decode(chunk, (str(stream.time),)).good
            column = decoded[str(stream.time)].drop_nulls().dt.cast_time_unit("us").to_physical()
        except Exception as failure:  # the scan reads the same, and reports what is wrong with it
            _LOG.debug("no sample of %s: %s", span, failure)
            continue
        times += _spread(column)
    return times


def _end_of(log: Log, span: Span) -> Span:
    """The last records of a span; all of it where the log cannot cut there."""
    units = log.units(span.partition, span.start, span.end) - _SAMPLE_BYTES // log.unit_bytes
    start = log.cut(span.partition, span.start, units) if units > 0 else span.start
    return Span(span.partition, start if span.start <= start < span.end else span.start, span.end)


def _spread(column: pl.Series) -> list[int]:
    """At most as many times as are kept of a stream, spread over a column, with its last ones."""
    if len(column) <= _RECENT_EVENTS:
        return list(column.to_list())
    positions = np.linspace(0, len(column) - 1, _RECENT_EVENTS).astype(int)
    return [int(time) for time in column.to_numpy()[positions]]
