"""Rows and logs of the oracle: plain values, in lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """A row with its time, and the position of its event in the log if it stands for a single event."""

    time: int
    #: the number of the partition, the offset in it, then numbers of the rows derived from that event
    position: tuple[int, ...] | None
    values: Values

    def key(self, names: Iterable[str]) -> Key:
        return tuple(self.values[name] for name in names)


#: a stream is made of flows, one for every part of a union
Flows = list[list[Row]]


@dataclass(frozen=True)
class Log:
    """A stream's events by partition, in the order of the log; their time column, and the allowed lateness.

    `bounds` has, by partition and offset, the stream's watermark when an event was read. It matters where a partition
    was idle: an event before its bound is late.
    """

    columns: Sequence[str]
    partitions: Sequence[Sequence[Values]]
    time: str
    lateness: int
    bounds: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def split_late(self, first_partition: int) -> tuple[list[Row], list[Row]]:
        """Return the events on time, and the late ones, with the newest time before them as their time."""
        on_time, late = [], []
        for number, partition in enumerate(self.partitions, first_partition):
            newest = None
            for offset, event in enumerate(partition):
                time, position = event[self.time], (number, offset)
                bound = self.bounds.get((number - first_partition, offset), time)
                if time >= bound and (newest is None or time >= newest - self.lateness):
                    on_time.append(Row(time, position, dict(event)))
                else:
                    late.append(Row(max(bound, newest or bound), position, dict(event)))
                newest = time if newest is None else max(newest, time)
        return on_time, late
