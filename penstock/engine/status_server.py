"""Serves an engine's status to other processes, over a socket that only its user can reach.

Lines and their answers (JSON): `metrics` gives Prometheus' text, `epochs FIRST` the figures of the latest epochs if
they are kept, and any other line (`penstock status`) the whole status: stages, executors, buckets, the latest decisions
of the elastic loop.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from penstock.delivery.sink_delivery import DeliveryLag
from penstock.engine.elasticity import Elasticity
from penstock.engine.engine import Engine
from penstock.engine.job_server import socket_of
from penstock.engine.line_server import LineServer
from penstock.engine.status import (
    DecisionStatus,
    DeliveryStatus,
    ElasticStatus,
    EngineStatus,
    OutageStatus,
    PeriodStatus,
    RecoveryStatus,
    set_engine,
)
from penstock.epoch.recovery import RecoveryOutcome
from penstock.epoch.report import EpochReport
from penstock.metrics import Registry, expose
from penstock.retries import Outage
from penstock.scaling.measurements import Snapshot
from penstock.scaling.progress import SHOWN_DEATHS, describe_order

#: epochs that are kept: a service polls twice a second
KEPT_EPOCHS = 100
#: outputs of which an epoch's row counts are kept
MOST_OUTPUTS = 1_000
#: decisions of the elastic loop that are shown
SHOWN_DECISIONS = 10
#: jobs of which losses and repetitions are shown
SHOWN_JOBS = 1_000
#: without an elastic loop a request measures: over this many seconds at least and, without epochs, at most
_LEAST_PERIOD, _MOST_PERIOD = 0.5, 10.0


class RecentEpochs:
    """The figures of the latest epochs as JSON takes them, without rows. From any thread."""

    def __init__(self) -> None:
        self._epochs: deque[dict[str, Any]] = deque(maxlen=KEPT_EPOCHS)
        self._lock = threading.Lock()

    def add(self, report: EpochReport) -> None:
        figures = report.metrics.to_plain()
        figures |= {name: dict(list(figures[name].items())[:MOST_OUTPUTS]) for name in ("rows", "until")}
        with self._lock:
            self._epochs.append(figures)

    def since(self, epoch: int) -> list[dict[str, Any]]:
        """The epochs from one on, as far as they are kept."""
        with self._lock:
            return [figures for figures in self._epochs if figures["epoch"] >= epoch]


class StatusServer:
    """Answers until it is closed."""

    def __init__(self, engine: Engine, recent: RecentEpochs | None = None) -> None:
        self._engine, self._recent = engine, recent
        self.path = socket_of(engine.settings.state, "status")
        self._server = LineServer.at(self.path, "penstock-status", self._answer)

    def __enter__(self) -> StatusServer:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _answer(self, text: bytes) -> bytes:
        if text.strip() == b"metrics":
            return json.dumps(export_metrics(self._engine)).encode()
        match text.split():
            case [b"epochs", first] if first.isdigit():
                return json.dumps([] if self._recent is None else self._recent.since(int(first))).encode()
        return json.dumps(status(self._engine, latest_snapshot(self._engine)).to_json()).encode()


#: sinks that are behind, as far as a status names them
_SHOWN_LAGS = 100


def latest_snapshot(engine: Engine) -> Snapshot | None:
    """The newest measurements. Without an elastic loop, this measures if it is time."""
    if engine.elasticity is None and engine.meter.is_ready(_LEAST_PERIOD, _MOST_PERIOD):
        workers = engine.workers()
        placement = [worker.id for worker in workers for _ in range(worker.cores)]
        return engine.meter.measure(workers, placement, ())
    return engine.meter.latest


def export_metrics(engine: Engine) -> str:
    """All metrics of an engine as Prometheus' text."""
    now = Registry()
    set_engine(now, status(engine, latest_snapshot(engine)))
    engine.meter.registry.retain("job", engine.plan.outputs.keys())
    return expose(now, engine.meter.registry)


def status(engine: Engine, latest: Snapshot | None) -> EngineStatus:
    """The status of an engine."""
    recovery, elasticity, now = engine.role.recovery, engine.elasticity, engine.meter.now
    return EngineStatus(
        name=engine.program.name,
        master=engine.settings.master,
        pid=os.getpid(),
        state=str(engine.settings.state),
        epoch=engine.last_epoch,
        backlog={} if engine.admission is None else dict(engine.admission.backlog),
        clock_behind_seconds={} if engine.admission is None else dict(engine.admission.clocks.behind_seconds),
        log_doubts={} if engine.admission is None else dict(engine.admission.log_doubts),
        maps_version=None if engine.maps is None else engine.maps.version,
        recovery=_recovery_status(recovery) if recovery.has_epochs else None,
        measured=None if latest is None else PeriodStatus.of(latest, max(now - latest.at, 0.0)),
        elastic=None if elasticity is None else _elastic_status(elasticity, now),
        outage=None if engine.retries.outage is None else _outage_status(engine.retries.outage),
        retries=engine.retry_count,
        deliveries=_delivery_status(engine.program.deliveries.lags()[:_SHOWN_LAGS]),
        result_log_bytes=engine.program.result_log_bytes,
    )


def _outage_status(outage: Outage) -> OutageStatus:
    seconds = round(max(time.monotonic() - outage.since, 0.0), 1)
    return OutageStatus(outage.step, outage.condition, str(outage.error), seconds, outage.failures)


def _delivery_status(lags: Sequence[DeliveryLag]) -> tuple[DeliveryStatus, ...]:
    return tuple(
        DeliveryStatus(
            one.job,
            one.sink,
            one.cursor,
            one.epochs,
            round(one.seconds, 1),
            one.failures,
            one.error,
            round(one.silent_seconds, 1),
        )
        for one in lags
    )


def _recovery_status(recovery: RecoveryOutcome) -> RecoveryStatus:
    jobs = recovery.by_job(SHOWN_JOBS)
    return RecoveryStatus(recovery.semantics, recovery.is_over, recovery.counts(), jobs)


def _elastic_status(elasticity: Elasticity, now: float) -> ElasticStatus:
    loop, ahead = elasticity.loop, elasticity.ahead
    return ElasticStatus(
        resting=loop.resting,
        orders=[describe_order(order, now) for order in loop.orders],
        deaths=[death.describe(now) for death in loop.deaths[-SHOWN_DEATHS:]],
        rehearsing=list(elasticity.rehearsing),
        leaving=list(elasticity.leaving),
        decisions=[
            DecisionStatus(entry.shift_clock(ahead), round(max(now - entry.at, 0.0), 1))
            for entry in loop.record.entries[-SHOWN_DECISIONS:]
        ],
        costs=json.loads(loop.costs.to_json()),
    )
