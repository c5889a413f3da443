"""Declares the status of an engine, which `penstock status`, the service and the metrics show.

It travels as JSON. The names of fields are its keys; a key that a reader does not know is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from penstock.epoch.recovery import JobRecovery
from penstock.epoch.report import SCAN
from penstock.ha.schemes import Semantics
from penstock.metrics import Registry
from penstock.metrics import declared as m
from penstock.scaling.decisions import describe
from penstock.scaling.measurements import Snapshot
from penstock.scaling.record import Entry

_Record = TypeVar("_Record")


@dataclass(frozen=True)
class StageStatus:
    """The measurements of a stage. Utilisation is of one core; values by bucket are in order of the buckets."""

    utilisation: float
    rows_per_second: float
    #: None: not known yet
    backlog_seconds: float | None
    imbalance: float
    exchange_bytes: float
    state_bytes: float
    bucket_seconds: Sequence[float]
    bucket_bytes: Sequence[float]
    bucket_map: Sequence[int]


@dataclass(frozen=True)
class ExecutorStatus:
    """The measurements of an executor; its CPU usage is None before its first task."""

    cores: int
    cpu: float | None
    memory_bytes: float


@dataclass(frozen=True)
class PeriodStatus:
    """The measurements of the latest period. Rates are per second."""

    period_seconds: float
    epoch_seconds: float
    epoch_target_seconds: float
    input_rate: float
    processing_rate: float
    backlog_seconds: float | None
    stages: Mapping[str, StageStatus]
    executors: Mapping[str, ExecutorStatus]
    #: executors that are kept warm, without slices
    spare: Sequence[str]
    measured_seconds_ago: float

    @staticmethod
    def of(latest: Snapshot, measured_seconds_ago: float) -> PeriodStatus:
        """The measurements of a snapshot."""
        fleet = latest.fleet
        return PeriodStatus(
            period_seconds=latest.period_seconds,
            epoch_seconds=latest.epoch_seconds,
            epoch_target_seconds=latest.epoch_target_seconds,
            input_rate=latest.input_rate,
            processing_rate=latest.processing_rate,
            backlog_seconds=_known(latest.backlog_seconds),
            stages={
                name: StageStatus(
                    utilisation=one.utilisation,
                    # the scan's rows are the events
                    rows_per_second=one.processing_rate
                    if name == SCAN
                    else float(one.bucket_events.sum() / latest.period_seconds),
                    backlog_seconds=_known(one.backlog_seconds),
                    imbalance=one.imbalance,
                    exchange_bytes=one.exchange_bytes,
                    state_bytes=float(one.bucket_bytes.sum()),
                    bucket_seconds=one.bucket_seconds.round(4).tolist(),
                    bucket_bytes=one.bucket_bytes.tolist(),
                    bucket_map=one.bucket_map.tolist(),
                )
                for name, one in latest.stages.items()
            },
            executors={
                name: ExecutorStatus(int(cores), _known(cpu), float(memory))
                for name, cores, cpu, memory in zip(
                    fleet.ids, fleet.cores, fleet.cpu, fleet.memory, strict=True
                )
            },
            spare=list(fleet.spare),
            measured_seconds_ago=measured_seconds_ago,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON, whose key for the stages is `sub_queries`."""
        body = {"sub_queries" if name == "stages" else name: value for name, value in vars(self).items()}
        for part in ("sub_queries", "executors"):
            body[part] = {name: dict(vars(one)) for name, one in body[part].items()}
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> PeriodStatus:
        stages = {name: _read(StageStatus, one) for name, one in body["sub_queries"].items()}
        executors = {name: _read(ExecutorStatus, one) for name, one in body["executors"].items()}
        return _read(PeriodStatus, {**body, "stages": stages, "executors": executors})


@dataclass(frozen=True)
class RecoveryStatus:
    """What the last recovery lost or repeated: the counts that are not 0, in all and by job."""

    semantics: Semantics
    is_over: bool
    counts: Mapping[str, int]
    jobs: Mapping[str, JobRecovery]

    def to_json(self) -> dict[str, Any]:
        return {
            "semantics": str(self.semantics),
            "over": self.is_over,
            **self.counts,
            "jobs": {name: one.to_json() for name, one in self.jobs.items()},
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> RecoveryStatus:
        counts = {name: n for name, n in body.items() if name not in ("semantics", "over", "jobs")}
        jobs = {name: JobRecovery.from_json(one) for name, one in body["jobs"].items()}
        return RecoveryStatus(Semantics(body["semantics"]), body["over"], counts, jobs)


@dataclass(frozen=True)
class DecisionStatus:
    """A decision of the elastic loop with its outcome so far, its times by the wall clock."""

    entry: Entry
    seconds_ago: float

    def to_json(self) -> dict[str, Any]:
        what = describe(self.entry.decision)
        return {**self.entry.to_json(), "what": what, "seconds_ago": self.seconds_ago}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> DecisionStatus:
        return DecisionStatus(Entry.from_json(body), body["seconds_ago"])


@dataclass(frozen=True)
class ElasticStatus:
    """The elastic loop: why it changes nothing, the changes under way, executors that failed, its last decisions."""

    resting: str
    orders: Sequence[str]
    deaths: Sequence[str]
    rehearsing: Sequence[str]
    leaving: Sequence[str]
    decisions: Sequence[DecisionStatus]
    costs: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "decisions": [one.to_json() for one in self.decisions]}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> ElasticStatus:
        decisions = list(map(DecisionStatus.from_json, body["decisions"]))
        return _read(ElasticStatus, {**body, "decisions": decisions})


@dataclass(frozen=True)
class OutageStatus:
    """What an engine waits for because something outside is away: the step, its last error, for how long, and how many
    attempts have failed."""

    step: str
    condition: str
    error: str
    seconds: float
    failures: int


@dataclass(frozen=True)
class DeliveryStatus:
    """A sink that is behind: the epoch up to which it has all rows of a job, how many epochs with rows it lacks, how
    long the first of them has waited, the last error while it is away, and for how long it has not responded."""

    job: str
    sink: str
    cursor: int
    epochs: int
    seconds: float
    failures: int
    error: str
    silent_seconds: float = 0.0


@dataclass(frozen=True)
class EngineStatus:
    """The status of an engine. `recovery`: None if its start had nothing to recover; `measured`: None before the first
    measurements; `elastic`: None without an elastic loop; `outage`: None while nothing outside is away."""

    name: str
    master: str
    pid: int
    #: its state directory
    state: str
    epoch: int
    #: bytes or records that wait in the log of each stream
    backlog: Mapping[str, int]
    #: the version of the bucket maps in force
    maps_version: int | None
    recovery: RecoveryStatus | None = None
    measured: PeriodStatus | None = None
    elastic: ElasticStatus | None = None
    #: of streams that are far ahead of the wall clock, by how much
    clock_behind_seconds: Mapping[str, float] = field(default_factory=dict)
    #: by stream, how often its log had to decide by a rule, such as whether a file is a copy
    log_doubts: Mapping[str, int] = field(default_factory=dict)
    outage: OutageStatus | None = None
    #: attempts that failed because something outside was away, since the start
    retries: int = 0
    #: the sinks that are behind, the farthest first
    deliveries: Sequence[DeliveryStatus] = ()
    #: the size of the results that wait for sinks and questions
    result_log_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON, which has the measurements beside the other facts."""
        body = dict(vars(self))
        del body["recovery"], body["measured"], body["elastic"], body["outage"]
        body["deliveries"] = [dict(vars(one)) for one in self.deliveries]
        for rare in ("clock_behind_seconds", "log_doubts"):
            if not body[rare]:
                del body[rare]
        if self.outage is not None:
            body["outage"] = dict(vars(self.outage))
        if self.recovery is not None:
            body["recovery"] = self.recovery.to_json()
        if self.measured is not None:
            body |= self.measured.to_json()
        if self.elastic is not None:
            body["elastic"] = self.elastic.to_json()
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> EngineStatus:
        body = dict(body)
        parts = {
            "recovery": RecoveryStatus.from_json(body["recovery"]) if "recovery" in body else None,
            "measured": PeriodStatus.from_json(body) if "sub_queries" in body else None,
            "elastic": ElasticStatus.from_json(body["elastic"]) if "elastic" in body else None,
            "clock_behind_seconds": body.get("clock_behind_seconds", {}),
            "log_doubts": body.get("log_doubts", {}),
            "outage": _read(OutageStatus, body["outage"]) if "outage" in body else None,
            "retries": body.get("retries", 0),
            "deliveries": tuple(
                _read(DeliveryStatus, {"silent_seconds": 0.0, **one}) for one in body.get("deliveries", ())
            ),
            "result_log_bytes": body.get("result_log_bytes", 0),
        }
        return _read(EngineStatus, {**body, **parts})


def _read(kind: type[_Record], body: Mapping[str, Any]) -> _Record:
    """The record of the keys that are its fields."""
    return kind(**{one.name: body[one.name] for one in fields(kind)})  # type: ignore[arg-type]


def _known(value: float) -> float | None:
    """A value as JSON takes it, which has no NaN."""
    return None if math.isnan(value) else float(value)


def set_engine(registry: Registry, status: EngineStatus) -> None:
    """Set metrics from a status. Values that are no longer reported leave the registry."""
    registry.set(m.EPOCH, status.epoch)
    registry.replace(m.BACKLOG, (((stream,), units) for stream, units in status.backlog.items()))
    behind = status.clock_behind_seconds.items()
    registry.replace(m.CLOCK_BEHIND, (((stream,), seconds) for stream, seconds in behind))
    registry.replace(m.LOG_DOUBTS, (((stream,), count) for stream, count in status.log_doubts.items()))
    outages = [] if status.outage is None else [status.outage.seconds]
    outages += [one.seconds for one in status.deliveries if one.failures]
    outages += [one.silent_seconds for one in status.deliveries]
    registry.set(m.OUTAGE_SECONDS, max(outages, default=0.0))
    registry.set(m.EXTERNAL_RETRIES, status.retries)
    registry.replace(m.DELIVERY_LAG, (((one.job, one.sink), one.epochs) for one in status.deliveries))
    registry.replace(
        m.DELIVERY_LAG_SECONDS, (((one.job, one.sink), one.seconds) for one in status.deliveries)
    )
    registry.set(m.RESULT_LOG_BYTES, status.result_log_bytes)
    period = status.measured
    if period is None:
        return
    for metric, value in (
        (m.EPOCH_SECONDS, period.epoch_seconds),
        (m.EPOCH_TARGET_SECONDS, period.epoch_target_seconds),
        (m.INPUT_RATE, period.input_rate),
        (m.PROCESSED_RATE, period.processing_rate),
        (m.BACKLOG_SECONDS, period.backlog_seconds),
    ):
        registry.replace(metric, [((), value)])
    stages, executors = period.stages.items(), period.executors.items()
    registry.set(m.EXECUTORS, len(executors))
    registry.set(m.SPARE_EXECUTORS, len(period.spare))
    registry.replace(m.EXECUTOR_CORES, (((name,), one.cores) for name, one in executors))
    registry.replace(m.EXECUTOR_CPU, (((name,), one.cpu) for name, one in executors))
    registry.replace(m.EXECUTOR_MEMORY, (((name,), one.memory_bytes) for name, one in executors))
    registry.replace(m.STAGE_UTILISATION, (((name,), one.utilisation) for name, one in stages))
    registry.replace(m.STAGE_ROWS_RATE, (((name,), one.rows_per_second) for name, one in stages))
    registry.replace(m.STAGE_EXCHANGE_RATE, (((name,), one.exchange_bytes) for name, one in stages))
    registry.replace(m.STAGE_IMBALANCE, (((name,), one.imbalance) for name, one in stages))
    registry.replace(m.STAGE_STATE, (((name,), one.state_bytes) for name, one in stages))
    heat = (
        ((name, str(bucket)), busy / period.period_seconds)
        for name, one in stages
        for bucket, busy in enumerate(one.bucket_seconds)
    )
    registry.replace(m.BUCKET_HEAT, heat)
    state = (
        ((name, str(bucket)), size) for name, one in stages for bucket, size in enumerate(one.bucket_bytes)
    )
    registry.replace(m.BUCKET_STATE, state)
