"""Leaps over stragglers: silent partitions that epochs pass over, and what they bring when they come back; and
beginnings of partitions that only a copy may have that is away. Pure.

Receives the offsets an epoch was recorded with; hands the spans, as rows that lie with what was put aside. They are
in the log as ever, so whoever wants them reads them there; those of their events that were late lie in `late` too.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from penstock.epoch.scan import ASIDE_SCHEMA
from penstock.state.epoch_record import Offset

LEAPED = "leaped"


class Leap(NamedTuple):
    """A partition that was passed over from an offset on; `to` is how far it was read when it came back."""

    stream: str
    partition: str
    start: int
    to: int | None = None


def leaps(start: Offset, end: Offset) -> list[Leap]:
    """The silent partitions an epoch is the first to pass over."""
    new = sorted(_passed_over(end) - _passed_over(start))
    return [Leap(stream, partition, end.at[stream].get(partition, 0)) for stream, partition in new]


def returns(start: Offset, end: Offset) -> list[Leap]:
    """What an epoch reads of partitions that had been passed over: the spans that were leaped."""
    found = []
    for stream, partition in sorted(_passed_over(start)):
        since, to = (offset.at.get(stream, {}).get(partition, 0) for offset in (start, end))
        if to > since:
            found.append(Leap(stream, partition, since, to))
    return found


def begun_late(end: Offset) -> list[Leap]:
    """What an epoch leaves out before the partitions it begins: nobody will read it."""
    return [
        Leap(stream, partition, 0, end.starts[stream][partition])
        for stream, partitions in sorted(end.started_late.items())
        for partition in partitions
    ]


def _passed_over(offset: Offset) -> set[tuple[str, str]]:
    """Silent partitions of streams whose others go on; where all are silent nobody is passed over."""
    found = set()
    for stream, idle in offset.idle.items():
        going = offset.at.get(stream, {}).keys() - set(idle)
        if going - set(offset.finished.get(stream, ())):
            found |= {(stream, partition) for partition in idle}
    return found


def as_aside(start: Offset, end: Offset) -> pl.DataFrame | None:
    """What happened to stragglers in an epoch, as rows put aside; None if nothing."""
    told = [(leap, "silent: passed over") for leap in leaps(start, end)]
    told += [(leap, f"came back, with what lies before {leap.to}") for leap in returns(start, end)]
    told += [
        (leap, f"begun at {leap.to}: what lies before is left out, which a copy may have that is away")
        for leap in begun_late(end)
    ]
    rows = [(leap.stream, LEAPED, leap.partition, leap.start, why, "") for leap, why in told]
    return pl.DataFrame(rows, schema=ASIDE_SCHEMA, orient="row") if rows else None
