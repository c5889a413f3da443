"""Asks a running engine about itself, over the socket that only its user can reach."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from penstock.engine.job_server import socket_of
from penstock.errors import ExternalError


def asked(state: Path, question: str = "status", patience: float | None = None) -> Any:
    """What the engine on a state directory answers; within so many seconds, if that is said."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(patience)
            line.connect(socket_of(state, "status"))
            with line.makefile("rwb") as file:
                file.write(question.encode() + b"\n")
                file.flush()
                return json.loads(file.readline())
    except (OSError, ValueError):
        raise ExternalError(
            "ENGINE_NOT_RUNNING",
            f"no engine runs on {state}",
            hint=f"Start one: penstock run app.py --state {state}.",
        ) from None
