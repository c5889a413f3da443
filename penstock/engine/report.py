"""What an epoch did, as whoever watches the engine is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from penstock.engine.closing import Due
from penstock.engine.moves import Moved
from penstock.engine.work import TaskWork, Work
from penstock.state.bucket_map import Maps


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did, for people and for the rate control.

    `oldest` and `newest` are the event times (microseconds) of its oldest and newest event that was not late;
    `leaped` counts the silent partitions it is the first to pass over, and those it begins after their beginning;
    `committed_at` is the wall clock (seconds since 1970) when its results were in the sinks and its manifest in place.
    """

    epoch: int
    events: int
    bytes: int
    late: int
    bad: int
    seconds: float
    stage_seconds: Mapping[str, float]
    units: Mapping[str, int]
    watermark: int | None
    state_bytes: int
    rows: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    #: whether it had been recorded before, whether the sinks were known to have its rows, and were not offered any
    replayed: bool = False
    told_before: bool = False
    delivered_before: bool = False
    #: whether they were offered to sinks that had them, and the rows that sinks took once more, by output
    offered_again: bool = False
    repeated_rows: Mapping[str, int] = field(default_factory=dict)
    #: outputs it was left out for, with the rows that were worked out all the same; and those whose state rested
    withheld_rows: Mapping[str, int] = field(default_factory=dict)
    rested: frozenset[str] = frozenset()
    #: whether some output would have it repeated after a loss
    to_repeat: bool = True
    #: the last epoch whose state is durable
    durable_epoch: int = -1
    #: bytes of the runs it wrote, of those that were brought to disk with it, and CPU that the last manifest took
    run_bytes: int = 0
    checkpoint_bytes: int = 0
    manifest_cpu_seconds: float = 0.0
    oldest: int | None = None
    newest: int | None = None
    committed_at: float = 0.0
    leaped: int = 0
    #: that of each stream; `watermark` is the least of them
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    #: what the time of each stream has yet to decide, and did
    due: Mapping[str, Due] = field(default_factory=dict)
    #: what each task did, and each sub-query
    tasks: tuple[TaskWork, ...] = ()
    work: Mapping[str, Work] = field(default_factory=dict)
    #: the maps it ran with, and the move of buckets that came into force with it
    maps: Maps | None = None
    moved: Moved | None = None
