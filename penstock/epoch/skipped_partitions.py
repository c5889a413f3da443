"""Finds the spans that an epoch skips: of idle partitions, and before the first offset of partitions. Pure.

A *skipped partition* is an idle one that the others do not wait for. When it comes back, what it has from before may be
late. The spans become rows of the side output; they are in the log as before, so whoever wants them reads them there.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from penstock.epoch.scan import SIDE_OUTPUT_SCHEMA
from penstock.state.epoch_record import Offset

#: the name of these rows in the state directory
LEAPED = "leaped"


class SkippedSpan(NamedTuple):
    """A partition that is skipped from an offset on; `end` is how far it was read when it came back."""

    stream: str
    partition: str
    start: int
    end: int | None = None


def newly_skipped(start: Offset, end: Offset) -> list[SkippedSpan]:
    """The idle partitions that an epoch is the first to skip."""
    new = sorted(_skipped(end) - _skipped(start))
    return [SkippedSpan(stream, partition, end.at[stream].get(partition, 0)) for stream, partition in new]


def returned_spans(start: Offset, end: Offset) -> list[SkippedSpan]:
    """The spans that an epoch reads of partitions that had been skipped."""
    spans = []
    for stream, partition in sorted(_skipped(start)):
        before, after = (offset.at.get(stream, {}).get(partition, 0) for offset in (start, end))
        if after > before:
            spans.append(SkippedSpan(stream, partition, before, after))
    return spans


def late_starts(end: Offset) -> list[SkippedSpan]:
    """The spans before the first offsets of new partitions: nobody reads them, only a copy that is away has them."""
    return [
        SkippedSpan(stream, partition, 0, end.starts[stream][partition])
        for stream, partitions in sorted(end.started_late.items())
        for partition in partitions
    ]


def _skipped(offset: Offset) -> set[tuple[str, str]]:
    """Idle partitions of streams that have others which continue; where all are idle none is skipped."""
    skipped = set()
    for stream, idle in offset.idle.items():
        active = offset.at.get(stream, {}).keys() - set(idle)
        if active - set(offset.finished.get(stream, ())):
            skipped |= {(stream, partition) for partition in idle}
    return skipped


def skipped_rows(start: Offset, end: Offset) -> pl.DataFrame | None:
    """The spans that an epoch skips, or reads after they were skipped, as rows of the side output; None if none."""
    # the texts are in files of state directories: they stay as they are
    reasons = [(span, "silent: passed over") for span in newly_skipped(start, end)]
    reasons += [(span, f"came back, with what lies before {span.end}") for span in returned_spans(start, end)]
    reasons += [
        (span, f"begun at {span.end}: what lies before is left out, which a copy may have that is away")
        for span in late_starts(end)
    ]
    rows = [(span.stream, LEAPED, span.partition, span.start, reason, "") for span, reason in reasons]
    return pl.DataFrame(rows, schema=SIDE_OUTPUT_SCHEMA, orient="row") if rows else None
