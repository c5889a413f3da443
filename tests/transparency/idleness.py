"""Works out from the record of every epoch what idle partitions make late, as `docs/semantics.md` defines it.

A record says what an epoch was given: how far it read, which partitions were idle or finished, how far watermarks could
rise. The watermarks themselves are worked out here, one event at a time; nothing of the product computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord
from tests.operators.harness import LATENESS, History, Place

BEFORE_ALL, AFTER_ALL = -(1 << 62), 1 << 62

Bounds = dict[str, dict[Place, int]]


@dataclass
class _Stream:
    """The time of a stream after an epoch."""

    newest: dict[str, int] = field(default_factory=dict)
    watermark: int = BEFORE_ALL
    #: whether some of what ends at the watermark has been emitted, so that an event at it is late too
    is_partly_emitted: bool = False
    is_idle: bool = False
    has_ended: bool = False

    @property
    def bound(self) -> int:
        return self.watermark + self.is_partly_emitted

    def advance(self, name: str, record: EpochRecord) -> None:
        end = record.end
        partitions, idle, finished = set(end.at[name]), set(end.idle[name]), set(end.finished[name])
        active = partitions - idle - finished
        reached = self.watermark
        if active:
            if active <= self.newest.keys():
                reached = min(self.newest[one] for one in active) - LATENESS
        elif end.closed[name] and finished == partitions:
            reached = AFTER_ALL
        elif self.newest:
            reached = max(self.newest.values()) - LATENESS
        self.is_idle, self.has_ended = bool(idle) and not active, reached == AFTER_ALL
        self._raise(reached, end.watermark_limits.get(name))

    def _raise(self, reached: int, limit: tuple[int, int] | None) -> None:
        reached = max(reached, self.watermark)
        raised = reached if limit is None else max(self.watermark, min(reached, limit[0]))
        self.is_partly_emitted &= raised == self.watermark
        if limit is not None and raised == limit[0] < reached:
            self.is_partly_emitted |= limit[1] > 0
        self.watermark = raised

    def follow(self, level: int) -> None:
        if level > self.watermark:
            self.watermark, self.is_partly_emitted = level, False


def read_records(state: Path) -> list[EpochRecord]:
    """The records of all epochs of a state directory."""
    records = StateDirectory(state).records
    found = [records.read(epoch) for epoch in range(records.newest_epoch() + 1)]
    assert all(found)
    return [record for record in found if record is not None]


def bounds_of(
    records: Iterable[EpochRecord], histories: Mapping[str, History], *, read_together: bool
) -> Bounds:
    """The watermark before the epoch that read each event. `read_together`: an operator reads all of the streams."""
    bounds: Bounds = {name: {} for name in histories}
    streams: dict[str, _Stream] = {}
    for record in records:
        for name, span in record.spans:
            stream, partition = streams.setdefault(name, _Stream()), int(span.partition[1:])
            bound = stream.bound
            for offset in range(span.start, span.end):
                bounds[name][partition, offset] = bound
                time = histories[name].partitions[partition][offset].time
                stream.newest[span.partition] = max(time, stream.newest.get(span.partition, time))
        for name in record.end.at:
            streams.setdefault(name, _Stream()).advance(name, record)
        if read_together:
            _let_idle_follow(streams.values())
    return bounds


def _let_idle_follow(streams: Iterable[_Stream]) -> None:
    """An idle stream does not hold back those that an operator reads beside it; of idle ones, the furthest is ahead."""
    idle = [one for one in streams if one.is_idle]
    active = [one.watermark for one in streams if not one.is_idle and not one.has_ended]
    level = min(active) if active else max((one.watermark for one in idle), default=BEFORE_ALL)
    for stream in idle:
        stream.follow(level)


def late_places(bounds: Bounds, histories: Mapping[str, History]) -> dict[str, frozenset[Place]]:
    """The events that were older than the watermark when they were read."""
    return {
        name: frozenset(
            place
            for place, bound in found.items()
            if histories[name].partitions[place[0]][place[1]].time < bound
        )
        for name, found in bounds.items()
    }


@dataclass(frozen=True)
class Idleness:
    """What a run recorded of idle partitions."""

    #: whether an epoch had an idle partition; whether one came back with events, and with some that are late only
    #: because of that
    was_idle: bool
    came_back: bool
    was_late: bool

    @property
    def names(self) -> list[str]:
        """What of it there was."""
        return [name for name, there in vars(self).items() if there]


def idleness_of(
    records: Iterable[EpochRecord], late: Mapping[str, frozenset[Place]], histories: Mapping[str, History]
) -> Idleness:
    idle: set[tuple[str, str]] = set()
    came_back = False
    for record in records:
        came_back |= any((name, span.partition) in idle for name, span in record.spans)
        idle |= {(name, one) for name, partitions in record.end.idle.items() for one in partitions}
    was_late = any(
        (event.partition, event.offset) in places
        for name, places in late.items()
        for event in histories[name].on_time()
    )
    return Idleness(bool(idle), came_back, was_late)
