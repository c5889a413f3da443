"""Sends statements and questions to the engine on a state directory or, if none runs, to a coordinator of its jobs.

An error of the other side is raised here.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.catalogue.command import Reply
from penstock.engine.job_server import ResultRows, socket_of, sockets_of
from penstock.epoch.message import error_from_json
from penstock.errors import ExternalError, UserError


class JobClient:
    """A connection to a running engine. To be closed."""

    def __init__(self, state: Path) -> None:
        line = _line(sockets_of(state))
        if line is None:
            raise ExternalError(
                "ENGINE_NOT_RUNNING",
                f"no engine runs on {state}",
                hint=f"Start one: penstock run FILE --state {state}.",
            )
        self._line = line
        self._file = self._line.makefile("rwb")

    def __enter__(self) -> JobClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._line.close()

    def execute(self, sql: str) -> list[Reply]:
        """Execute statements; returns a reply for each."""
        return list(map(Reply.from_json, self._request({"execute": sql})))

    def submit(self, request: str, file: Path, **more: Any) -> list[Reply]:
        """Create, alter or deploy jobs from a Python file, which the engine reads; returns a reply for each."""
        # the engine may have another working directory
        facts = {"request": request, "file": str(file.absolute()), **more}
        return list(map(Reply.from_json, self._request({"submit": facts})))

    def ask(self, job: str) -> ResultRows | None:
        """A job's latest result; None before its first."""
        result = self._request({"ask": job})
        return None if result is None else ResultRows.from_json(result)

    def route(self, job: str, message: Any) -> Any:
        """What a job answers to a message."""
        return self._request({"route": [job, message]})

    def since(self, job: str, epoch: int) -> list[ResultRows]:
        """A job's rows from an epoch on."""
        return list(map(ResultRows.from_json, self._request({"since": [job, epoch]})))

    def _request(self, request: dict[str, Any]) -> Any:
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise ExternalError("ENGINE_GONE", "the engine ended before it answered", hint="Start it again.")
        answer = json.loads(line)
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer["ok"]


def _line(paths: Sequence[str]) -> socket.socket | None:
    """A connection to the first of these sockets that a server listens on."""
    for path in paths:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(path)
        except OSError:
            line.close()
        else:
            return line
    return None


def running_state(state: Path | None, kind: str = "") -> Path:
    """This state directory or, if None, the only one under .penstock whose engine has this kind of socket."""
    if state is not None:
        return state
    root = Path(".penstock")
    found = [p for p in sorted(root.iterdir()) if p.is_dir()] if root.is_dir() else []
    running = [
        place
        for place in found
        if any(map(os.path.exists, [socket_of(place, kind)] if kind else sockets_of(place)))
    ]
    if not running and not kind:  # an engine of an app refuses commands with a reason
        running = [place for place in found if os.path.exists(socket_of(place, "status"))]
    if len(running) == 1:
        return running[0]
    names = ", ".join(map(str, running)) if running else "none"
    raise UserError(
        "WHICH_ENGINE",
        "more than one engine could be meant, or none",
        detail=f"running under {root}: {names}",
        hint="Give its state directory: --state DIR.",
    )
