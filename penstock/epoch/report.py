"""Reports what an epoch, and what a run of an engine, did: for rate control, metrics, the elastic loop and people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property

import polars as pl

from penstock.epoch.migration import MigrationResult
from penstock.epoch.rate_control import PendingEmissions
from penstock.epoch.task_work import StageWork, TaskWork
from penstock.metrics.epoch import REPLAY_SECONDS, EpochMetrics, StageMetrics
from penstock.state.bucket_map import BucketMaps

#: the phase of an epoch that reads the logs
SCAN = "scan"


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did.

    `oldest` and `newest` are the event times (microseconds) of its oldest and newest event that was not late.
    `skipped_partitions` counts the idle partitions that it is the first to skip, and those whose first offsets it
    skips. `committed_at` is the wall clock (seconds since 1970) when its results were in the sinks and its manifest in
    place.
    """

    epoch: int
    events: int
    bytes: int
    late: int
    #: dead letters
    bad: int
    seconds: float
    stage_seconds: Mapping[str, float]
    units: Mapping[str, int]
    watermark: int | None
    state_bytes: int
    rows: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    #: whether it was recorded before; whether the sinks were known to have its rows; and then received none again
    replayed: bool = False
    already_delivered: bool = False
    delivery_skipped: bool = False
    #: whether sinks that were known to have its rows received them again, and the rows that they took, by output
    redelivered: bool = False
    repeated_rows: Mapping[str, int] = field(default_factory=dict)
    #: the outputs that skip it, with the rows they would have had; and the outputs whose own state skips it
    withheld_rows: Mapping[str, int] = field(default_factory=dict)
    suspended: frozenset[str] = frozenset()
    #: by how many bytes a worker grew in the own code of a job, where that is worth reporting
    job_bytes: Mapping[str, int] = field(default_factory=dict)
    #: whether some output needs it to be repeated after a loss
    needs_replay: bool = True
    #: the last epoch whose state is durable
    durable_epoch: int = -1
    #: bytes of the runs it wrote, of the runs copied to disk with it, and CPU time of the last durable manifest
    run_bytes: int = 0
    checkpoint_bytes: int = 0
    manifest_cpu_seconds: float = 0.0
    oldest: int | None = None
    newest: int | None = None
    committed_at: float = 0.0
    skipped_partitions: int = 0
    #: the watermark of each stream; `watermark` is the least of them
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    #: what the watermark of each stream has yet to decide
    pending: Mapping[str, PendingEmissions] = field(default_factory=dict)
    #: what each task did, and each stage
    tasks: tuple[TaskWork, ...] = ()
    work: Mapping[str, StageWork] = field(default_factory=dict)
    #: the bucket maps it ran with, and the migration that came into force with it
    maps: BucketMaps | None = None
    migration: MigrationResult | None = None

    @cached_property
    def metrics(self) -> EpochMetrics:
        """The epoch in numbers, without its rows."""
        rows = {name: frame.height for name, frame in self.rows.items() if frame.height}
        replay = self.newest is not None and self.committed_at - self.newest / 1e6 > REPLAY_SECONDS
        until = {} if replay else {name: _results_until(self.rows[name], self.newest) for name in rows}
        stages = {
            name: StageMetrics(
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
            stages[SCAN] = StageMetrics(sum(task.rows for task in scans), 0, sum(seconds), max(seconds))
        return EpochMetrics(
            **{name: getattr(self, name) for name in _SHARED_FIELDS},
            stages=stages,
            executors=executors,
            rows=rows,
            until={name: at for name, at in until.items() if at is not None},
        )


#: fields that a report and its metrics share
_SHARED_FIELDS = tuple(
    one.name
    for one in fields(EpochMetrics)
    if one.name in EpochReport.__dataclass_fields__ and one.name != "rows"
)


def _results_until(rows: pl.DataFrame, newest: int | None) -> float | None:
    """The event time, in seconds, up to which rows are results: the end of their last window, but no later than the
    newest event."""
    newest_seconds = math.inf if newest is None else newest / 1e6
    for name in ("as_of", "window_end"):
        column = rows.get_column(name, default=None)
        end = None if column is None else column.max()
        if isinstance(end, datetime):
            instant = end if end.tzinfo is not None else end.replace(tzinfo=UTC)
            return min(instant.timestamp(), newest_seconds)
    return None if newest is None else newest_seconds


@dataclass
class RunSummary:
    """What a run of an engine did."""

    epochs: int = 0
    events: int = 0
    late: int = 0
    skipped_partitions: int = 0
    #: dead letters
    bad: int = 0
    seconds: float = 0.0
    first_epoch: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    def add(self, report: EpochReport) -> None:
        """Add an epoch."""
        self.epochs += 1
        self.events += report.events
        self.late += report.late
        self.skipped_partitions += report.skipped_partitions
        self.bad += report.bad
        self.first_epoch = report.epoch if self.first_epoch is None else self.first_epoch
