"""What an engine says of itself to whoever asks: one JSON object, over a socket that only its user can reach.

Receives questions from other processes (`penstock status`); hands how the engine stands, what its sub-queries,
executors and buckets do, what the elastic loop has decided and, where that is kept, the figures of the latest epochs
(`epochs FIRST`).
"""

from __future__ import annotations

import json
import math
import os
from types import TracebackType
from typing import Any

from penstock.engine.elasticity import Elasticity
from penstock.engine.engine import Engine
from penstock.engine.job_server import socket_of
from penstock.engine.line_server import LineServer
from penstock.engine.recent_epochs import Recent
from penstock.epoch.report import SCAN
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_engine
from penstock.scaling.decisions import describe
from penstock.scaling.measurements import Snapshot
from penstock.scaling.progress import SHOWN_DEATHS, describe_order
from penstock.scaling.record import Entry

#: decisions of the elastic loop that are told
SHOWN_DECISIONS = 10
#: jobs of which it is told what they lost or repeated
SHOWN_JOBS = 1_000
#: where no loop measures, who asks does: over this long at least and, without epochs, at most, in seconds
_LEAST_PERIOD, _MOST_PERIOD = 0.5, 10.0


class StatusServer:
    """Answers until it is closed."""

    def __init__(self, engine: Engine, recent: Recent | None = None) -> None:
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
            return json.dumps(exported(self._engine)).encode()
        match text.split():
            case [b"epochs", first] if first.isdigit():
                return json.dumps([] if self._recent is None else self._recent.since(int(first))).encode()
        return json.dumps(status(self._engine, measured(self._engine))).encode()


def measured(engine: Engine) -> Snapshot | None:
    """The newest measurements. Where no loop asks for them, whoever wants to know does."""
    if engine.elasticity is None and engine.meter.ready(_LEAST_PERIOD, _MOST_PERIOD):
        found = engine.workers()
        placement = [worker.id for worker in found for _ in range(worker.cores)]
        return engine.meter.measured(found, placement, ())
    return engine.meter.latest


def exported(engine: Engine) -> str:
    """All metrics of an engine as Prometheus' text."""
    now = Registry()
    set_engine(now, status(engine, measured(engine)))
    engine.meter.registry.retain("job", engine.plan.outputs.keys())
    return expose(now, engine.meter.registry)


def status(engine: Engine, latest: Snapshot | None) -> dict[str, Any]:
    """How an engine stands."""
    said: dict[str, Any] = {
        "name": engine.program.name,
        "master": engine.settings.master,
        "pid": os.getpid(),
        "state": str(engine.settings.state),
        "epoch": engine.last_epoch,
        "backlog": {} if engine.admission is None else dict(engine.admission.backlog),
        "maps_version": None if engine.maps is None else engine.maps.version,
    }
    if (back := engine.role.recovery).has_epochs:
        said["recovery"] = {"semantics": str(back.semantics), "over": back.is_over, **back.outcome()}
        said["recovery"]["jobs"] = back.by_job(SHOWN_JOBS)
    if latest is not None:
        said |= measured_facts(latest) | {"measured_seconds_ago": max(engine.meter.now - latest.at, 0.0)}
    if engine.elasticity is not None:
        said["elastic"] = _elastic(engine.elasticity, engine.meter.now)
    return said


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
    """A figure as JSON takes it, which knows no NaN."""
    return None if math.isnan(figure) else float(figure)


def measured_facts(latest: Snapshot) -> dict[str, Any]:
    """What was measured in the latest period, as JSON takes it. Rates are by the second."""
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
