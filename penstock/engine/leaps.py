"""Leaps over stragglers: silent partitions that epochs pass over, and what they bring when they come back. Pure.

Receives the offsets an epoch was recorded with; hands the spans, as rows that lie with what was put aside. They are
in the log as ever, so whoever wants them reads them there; those of their events that were late lie in `late` too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from penstock.engine.scan import ASIDE_SCHEMA

Offset = dict[str, Any]
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
    return [Leap(stream, partition, end["at"][stream].get(partition, 0)) for stream, partition in new]


def returns(start: Offset, end: Offset) -> list[Leap]:
    """What an epoch reads of partitions that had been passed over: the spans that were leaped."""
    found = []
    for stream, partition in sorted(_passed_over(start)):
        since, to = (offset["at"].get(stream, {}).get(partition, 0) for offset in (start, end))
        if to > since:
            found.append(Leap(stream, partition, since, to))
    return found


def _passed_over(offset: Offset) -> set[tuple[str, str]]:
    """Silent partitions of streams whose others go on; where all are silent nobody is passed over."""
    found = set()
    for stream, idle in offset["idle"].items():
        going = offset["at"].get(stream, {}).keys() - set(idle)
        if going - set(offset["finished"].get(stream, ())):
            found |= {(stream, partition) for partition in idle}
    return found


def as_aside(start: Offset, end: Offset) -> pl.DataFrame | None:
    """What happened to stragglers in an epoch, as rows put aside; None if nothing."""
    told = leaps(start, end) + returns(start, end)
    rows = [
        (
            leap.stream,
            LEAPED,
            leap.partition,
            leap.start,
            "silent: passed over" if leap.to is None else f"came back, with what lies before {leap.to}",
            "",
        )
        for leap in told
    ]
    return pl.DataFrame(rows, schema=ASIDE_SCHEMA, orient="row") if rows else None
