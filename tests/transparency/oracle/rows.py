"""Rows and logs as the oracle sees them: plain values, in lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """What happened: when, and where in its log; an answer has no such place."""

    time: int
    #: number of the partition, then the number in it, then numbers of rows made of that one
    place: tuple[int, ...] | None
    values: Values

    def key(self, names: Iterable[str]) -> Key:
        return tuple(self.values[name] for name in names)


#: a stream is made of flows, one for every part of a union
Flows = list[list[Row]]


@dataclass(frozen=True)
class Log:
    """A stream's events, per partition as they were logged; the column of their time; how late they may be."""

    columns: Sequence[str]
    partitions: Sequence[Sequence[Values]]
    time: str
    lateness: int

    def sorted_out(self, first_partition: int) -> tuple[list[Row], list[Row]]:
        """The events that are on time, and the late ones: these happen at the newest time before them."""
        on_time, late = [], []
        for number, partition in enumerate(self.partitions, first_partition):
            newest = None
            for offset, event in enumerate(partition):
                time, place = event[self.time], (number, offset)
                if newest is None or time >= newest - self.lateness:
                    on_time.append(Row(time, place, dict(event)))
                else:
                    late.append(Row(newest, place, dict(event)))
                newest = time if newest is None else max(newest, time)
        return on_time, late
