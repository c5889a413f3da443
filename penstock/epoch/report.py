"""What an epoch did, as whoever watches the engine is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property

import polars as pl

from penstock.epoch.emission_limit import Due
from penstock.epoch.migration import Moved
from penstock.epoch.task_work import TaskWork, Work
from penstock.metrics.epoch import REPLAY_SECONDS, EpochFigures, StageFigures
from penstock.state.bucket_map import BucketMaps

#: the stage that reads the logs
SCAN = "scan"


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
    maps: BucketMaps | None = None
    moved: Moved | None = None

    @cached_property
    def figures(self) -> EpochFigures:
        """The epoch in numbers, without its rows."""
        rows = {name: frame.height for name, frame in self.rows.items() if frame.height}
        replay = self.newest is not None and self.committed_at - self.newest / 1e6 > REPLAY_SECONDS
        until = {} if replay else {name: _until(self.rows[name], self.newest) for name in rows}
        stages = {
            name: StageFigures(
                work.rows, work.bytes, work.seconds, max(work.seconds_by_slice.values(), default=0.0)
            )
            for name, work in self.work.items()
        }
        executors: dict[str, tuple[float, float]] = {}
        for task in self.tasks:
            busy, cpu = executors.get(task.executor, (0.0, 0.0))
            executors[task.executor] = busy + task.seconds, cpu + task.cpu_seconds
        if scans := [task for task in self.tasks if task.stage == SCAN]:
            seconds = [task.seconds for task in scans]
            stages[SCAN] = StageFigures(sum(task.rows for task in scans), 0, sum(seconds), max(seconds))
        return EpochFigures(
            **{name: getattr(self, name) for name in _ALIKE},
            stages=stages,
            executors=executors,
            rows=rows,
            until={name: at for name, at in until.items() if at is not None},
        )


#: fields that a report and its figures have alike
_ALIKE = tuple(
    one.name
    for one in fields(EpochFigures)
    if one.name in EpochReport.__dataclass_fields__ and one.name != "rows"
)


def _until(rows: pl.DataFrame, newest: int | None) -> float | None:
    """The event time, in seconds, up to which rows are results: the end of their last window, but no later than the
    newest event."""
    known = math.inf if newest is None else newest / 1e6
    for name in ("as_of", "window_end"):
        column = rows.get_column(name, default=None)
        ends = None if column is None else column.max()
        if isinstance(ends, datetime):
            instant = ends if ends.tzinfo is not None else ends.replace(tzinfo=UTC)
            return min(instant.timestamp(), known)
    return None if newest is None else known
