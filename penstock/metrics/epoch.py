"""Folds the numbers of an epoch into a registry. Every number that is counted over epochs is counted here, once.

The numbers come from the epoch's report, or as JSON from another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.metrics import declared as m
from penstock.metrics.registry import Registry

#: events older than this when their epoch is committed are a replay: latency means nothing for them
REPLAY_SECONDS = 3600.0
#: instants beyond this, either way, are no instants (some 8,000 years from 1970)
_MOST_MICROS = 250_000_000_000_000_000


@dataclass(frozen=True)
class StageMetrics:
    """A stage in an epoch: rows received, the bytes they were exchanged in, task time, and the time of its slowest
    task."""

    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0


@dataclass(frozen=True)
class EpochMetrics:
    """An epoch in numbers. Event times are microseconds since 1970, `committed_at` and `until` seconds."""

    epoch: int
    events: int = 0
    bytes: int = 0
    late: int = 0
    #: dead letters
    bad: int = 0
    skipped_partitions: int = 0
    seconds: float = 0.0
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    state_bytes: int = 0
    replayed: bool = False
    oldest: int | None = None
    newest: int | None = None
    committed_at: float = 0.0
    durable_epoch: int = -1
    run_bytes: int = 0
    checkpoint_bytes: int = 0
    manifest_cpu_seconds: float = 0.0
    stages: Mapping[str, StageMetrics] = field(default_factory=dict)
    #: task time and CPU time of each executor
    executors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: rows that each job emitted; and up to which event time, where the rows or the epoch have one
    rows: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)
    repeated_rows: Mapping[str, int] = field(default_factory=dict)
    withheld_rows: Mapping[str, int] = field(default_factory=dict)
    #: by how many bytes a worker grew in the own code of a job, where that is worth reporting
    job_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def ages(self) -> tuple[float | None, float | None]:
        """How old its newest and its oldest event were when it was committed, in seconds."""
        newest, oldest = (
            None if at is None else self.committed_at - at / 1e6 for at in (self.newest, self.oldest)
        )
        return newest, oldest

    def to_plain(self) -> dict[str, Any]:
        """The numbers as JSON takes them."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> EpochMetrics:
        """The numbers from JSON, as far as this version knows them."""
        known = {name: plain[name] for name in EpochMetrics.__dataclass_fields__ if name in plain}
        known["stages"] = {name: StageMetrics(**one) for name, one in plain.get("stages", {}).items()}
        known["executors"] = {name: (one[0], one[1]) for name, one in plain.get("executors", {}).items()}
        return EpochMetrics(**known)


def fold_epoch(registry: Registry, epoch: EpochMetrics) -> None:
    """Add an epoch to a registry."""
    registry.set(m.EPOCH, epoch.epoch)
    registry.set(m.DURABLE_EPOCH, epoch.durable_epoch)
    registry.set(m.STATE_BYTES, epoch.state_bytes)
    registry.add(m.EPOCHS, 1)
    registry.add(m.EPOCHS_REPLAYED, int(epoch.replayed))
    registry.observe(m.EPOCH_DURATION, epoch.seconds)
    registry.set(m.LAST_EPOCH_SECONDS, epoch.seconds)
    for metric, amount in (
        (m.EVENTS, epoch.events),
        (m.INPUT_BYTES, epoch.bytes),
        (m.LATE_EVENTS, epoch.late),
        (m.DEAD_LETTERS, epoch.bad),
        (m.SKIPPED_PARTITIONS, epoch.skipped_partitions),
        (m.RUN_BYTES, epoch.run_bytes),
        (m.CHECKPOINT_BYTES, epoch.checkpoint_bytes),
    ):
        registry.add(metric, amount)
    if epoch.durable_epoch == epoch.epoch:
        registry.set(m.MANIFEST_CPU_SECONDS, epoch.manifest_cpu_seconds)
    for phase, seconds in epoch.stage_seconds.items():
        registry.add(m.PHASE_SECONDS, seconds, phase)
    for stream, units in epoch.units.items():
        registry.add(m.READ, units, stream)
    registry.replace(
        m.WATERMARK,
        (((stream,), _instant(mark)) for stream, mark in epoch.watermarks.items()),
    )
    _fold_latency(registry, epoch)
    _fold_work(registry, epoch)
    _fold_jobs(registry, epoch)


def _instant(micros: int | None) -> float | None:
    """A watermark in seconds; none before the first event, nor once all of time has passed."""
    return None if micros is None or abs(micros) > _MOST_MICROS else micros / 1e6


def _fold_latency(registry: Registry, epoch: EpochMetrics) -> None:
    """Add the latency of an epoch's events, as if spread evenly from its newest to its oldest."""
    newest, oldest = epoch.ages
    if newest is not None and oldest is not None and epoch.events and newest <= REPLAY_SECONDS:
        least = max(newest, 0.0)
        registry.observe_between(m.LATENCY, least, max(least, oldest), times=epoch.events)


def _fold_work(registry: Registry, epoch: EpochMetrics) -> None:
    for name, stage in epoch.stages.items():
        registry.add(m.STAGE_ROWS, stage.rows, name)
        registry.add(m.STAGE_BUSY, stage.seconds, name)
        registry.add(m.STAGE_EXCHANGED, stage.bytes, name)
        registry.observe(m.STAGE_LATENCY, stage.slowest_seconds, name)
    for executor, (busy, cpu) in epoch.executors.items():
        registry.add(m.EXECUTOR_BUSY, busy, executor)
        registry.add(m.EXECUTOR_CPU_SECONDS, cpu, executor)


def _fold_jobs(registry: Registry, epoch: EpochMetrics) -> None:
    for job, rows in epoch.rows.items():
        registry.add(m.JOB_ROWS, rows, job)
        registry.add(m.JOB_EPOCHS, 1, job)
        registry.set(m.JOB_EPOCH, epoch.epoch, job)
    for job, until in epoch.until.items():
        latency = max(epoch.committed_at - until, 0.0)
        if latency <= REPLAY_SECONDS:
            registry.observe(m.JOB_LATENCY, latency, job)
    for job, rows in epoch.repeated_rows.items():
        registry.add(m.JOB_REPEATED_ROWS, rows, job)
    for job, rows in epoch.withheld_rows.items():
        registry.add(m.JOB_WITHHELD_ROWS, rows, job)
    registry.replace(m.JOB_MEMORY, (((job,), size) for job, size in epoch.job_bytes.items()))
