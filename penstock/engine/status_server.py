"""Serves an engine's status to other processes, over a socket that only its user can reach.

Lines and their answers (JSON): `metrics` gives Prometheus' text, `epochs FIRST` the figures of the latest epochs if
they are kept, and any other line (`penstock status`) the whole status: stages, executors, buckets, the latest decisions
of the elastic loop.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import deque
from types import TracebackType
from typing import Any

from penstock.engine.elasticity import Elasticity
from penstock.engine.engine import Engine
from penstock.engine.job_server import socket_of
from penstock.engine.line_server import LineServer
from penstock.epoch.report import SCAN, EpochReport
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_engine
from penstock.scaling.decisions import describe
from penstock.scaling.measurements import Snapshot
from penstock.scaling.progress import SHOWN_DEATHS, describe_order
from penstock.scaling.record import Entry

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
        return json.dumps(status(self._engine, latest_snapshot(self._engine))).encode()


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


def status(engine: Engine, latest: Snapshot | None) -> dict[str, Any]:
    """The status of an engine, as JSON takes it."""
    facts: dict[str, Any] = {
        "name": engine.program.name,
        "master": engine.settings.master,
        "pid": os.getpid(),
        "state": str(engine.settings.state),
        "epoch": engine.last_epoch,
        "backlog": {} if engine.admission is None else dict(engine.admission.backlog),
        "maps_version": None if engine.maps is None else engine.maps.version,
    }
    if (recovery := engine.role.recovery).has_epochs:
        facts["recovery"] = {
            "semantics": str(recovery.semantics),
            "over": recovery.is_over,
            **recovery.counts(),
        }
        facts["recovery"]["jobs"] = {name: one.to_json() for name, one in recovery.by_job(SHOWN_JOBS).items()}
    if latest is not None:
        facts |= snapshot_facts(latest) | {"measured_seconds_ago": max(engine.meter.now - latest.at, 0.0)}
    if engine.elasticity is not None:
        facts["elastic"] = _elastic(engine.elasticity, engine.meter.now)
    return facts


def _elastic(elasticity: Elasticity, now: float) -> dict[str, Any]:
    loop, ahead = elasticity.loop, elasticity.ahead
    return {
        "resting": loop.resting,
        "orders": [describe_order(order, now) for order in loop.orders],
        "deaths": [death.describe(now) for death in loop.deaths[-SHOWN_DEATHS:]],
        "rehearsing": list(elasticity.rehearsing),
        "leaving": list(elasticity.leaving),
        "decisions": [_entry(entry, now, ahead) for entry in loop.record.entries[-SHOWN_DECISIONS:]],
        "costs": json.loads(loop.costs.to_json()),
    }


def _entry(entry: Entry, now: float, ahead: float) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(entry.shift_clock(ahead).to_json())
    return plain | {"what": describe(entry.decision), "seconds_ago": round(max(now - entry.at, 0.0), 1)}


def _known(figure: float) -> float | None:
    """A figure as JSON takes it, which has no NaN."""
    return None if math.isnan(figure) else float(figure)


def snapshot_facts(latest: Snapshot) -> dict[str, Any]:
    """The measurements of the latest period, as JSON takes them. Rates are per second."""
    fleet = latest.fleet
    return {
        "period_seconds": latest.period_seconds,
        "epoch_seconds": latest.epoch_seconds,
        "epoch_target_seconds": latest.epoch_target_seconds,
        "input_rate": latest.input_rate,
        "processing_rate": latest.processing_rate,
        "backlog_seconds": _known(latest.backlog_seconds),
        "sub_queries": {
            name: {
                "utilisation": one.utilisation,
                # the scan's rows are the events
                "rows_per_second": one.processing_rate
                if name == SCAN
                else float(one.bucket_events.sum() / latest.period_seconds),
                "backlog_seconds": _known(one.backlog_seconds),
                "imbalance": one.imbalance,
                "exchange_bytes": one.exchange_bytes,
                "state_bytes": float(one.bucket_bytes.sum()),
                "bucket_seconds": one.bucket_seconds.round(4).tolist(),
                "bucket_bytes": one.bucket_bytes.tolist(),
                "bucket_map": one.bucket_map.tolist(),
            }
            for name, one in latest.sub_queries.items()
        },
        "executors": {
            name: {"cores": int(cores), "cpu": _known(cpu), "memory_bytes": float(memory)}
            for name, cores, cpu, memory in zip(fleet.ids, fleet.cores, fleet.cpu, fleet.memory, strict=True)
        },
        "spare": list(fleet.spare),
    }
