"""Requests status, metrics and figures of a running engine, over the socket that only its user can reach."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from penstock.engine.job_server import socket_of
from penstock.engine.status import EngineStatus
from penstock.errors import ExternalError
from penstock.metrics.epoch import EpochMetrics


def request_status(state: Path, timeout_seconds: float | None = None) -> EngineStatus:
    """The status of the engine on a state directory."""
    body = _request(state, "status", timeout_seconds)
    try:
        return EngineStatus.from_json(body)
    except (KeyError, TypeError, ValueError) as failure:
        raise ExternalError(
            "ENGINE_OF_OTHER_VERSION",
            f"the engine on {state} reports a status that this version of Penstock does not know",
            detail=f"{type(failure).__name__}: {failure}",
            hint="Use the Penstock that started the engine, or start the engine again with this one.",
        ) from failure


def request_metrics(state: Path, timeout_seconds: float | None = None) -> str:
    """All metrics of the engine on a state directory, as Prometheus reads them."""
    return str(_request(state, "metrics", timeout_seconds))


def request_epochs(state: Path, first: int, timeout_seconds: float | None = None) -> list[EpochMetrics]:
    """The figures of the latest epochs of the engine on a state directory, from one on."""
    return list(map(EpochMetrics.from_plain, _request(state, f"epochs {first}", timeout_seconds)))


def _request(state: Path, request: str, timeout_seconds: float | None) -> Any:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout_seconds)
            line.connect(socket_of(state, "status"))
            with line.makefile("rwb") as file:
                file.write(request.encode() + b"\n")
                file.flush()
                return json.loads(file.readline())
    except (OSError, ValueError):
        raise ExternalError(
            "ENGINE_NOT_RUNNING",
            f"no engine runs on {state}",
            hint=f"Start one: penstock run app.py --state {state}.",
        ) from None
