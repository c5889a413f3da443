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
    """The silent partitions an epoch is the first to pass over, of streams whose others go on."""
    found = []
    for stream, idle in end["idle"].items():
        at = end["at"].get(stream, {})
        if at.keys() - set(idle) - set(end["finished"].get(stream, ())):
            new = sorted(set(idle) - set(start["idle"].get(stream, ())))
            found += [Leap(stream, partition, at.get(partition, 0)) for partition in new]
    return found


def returns(start: Offset, end: Offset) -> list[Leap]:
    """What an epoch reads of partitions that had been passed over: the spans that were leaped."""
    found = []
    for stream, idle in start["idle"].items():
        before, after = start["at"].get(stream, {}), end["at"].get(stream, {})
        for partition in idle:
            since, to = before.get(partition, 0), after.get(partition, 0)
            if to > since:
                found.append(Leap(stream, partition, since, to))
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
