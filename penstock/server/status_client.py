"""Requests status and metrics of a running engine, over the socket that only its user can reach."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from penstock.engine.job_server import socket_of
from penstock.errors import ExternalError


def request_status(state: Path, request: str = "status", timeout_seconds: float | None = None) -> Any:
    """Return the response of the engine on a state directory to `status`, `metrics` or `epochs N`."""
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
