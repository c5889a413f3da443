"""Accepts commands and questions about an engine's jobs, at a socket that only its user can reach.

Requests and answers are lines of JSON: `{"execute": sql}`, `{"submit": {...}}` with the name of a file of Python,
`{"ask": job}`, `{"route": [job, message]}` and `{"since": [job, epoch]}` are answered by `{"ok": ...}` or
`{"error": ...}`.

Guarantees: every line gets one answer. Does not guarantee order between connections.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.catalogue.code_requests import read_request
from penstock.engine.line_server import LineServer
from penstock.epoch.message import error_to_json
from penstock.errors import InternalError, PenstockError
from penstock.state.durable import make_private
from penstock.state.private import find_others

if TYPE_CHECKING:
    from penstock.catalogue.program import Program
    from penstock.delivery.result_log import JobResult

_AT = "at-"


@dataclass(frozen=True)
class ResultRows:
    """A job's rows of one epoch, as they travel over the socket: values that JSON has."""

    epoch: int
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @staticmethod
    def of(result: JobResult) -> ResultRows:
        """The rows of a result."""
        return ResultRows(result.epoch, result.rows.columns, result.rows.rows())

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> ResultRows:
        return ResultRows(body["epoch"], body["columns"], body["rows"])


class JobServer:
    """Answers until it is closed, each caller in a thread of its own."""

    def __init__(self, jobs: Program, state: Path, coordinator: str | None = None) -> None:
        self._jobs = jobs
        self.path = socket_of(state) if coordinator is None else coordinator_socket(state, coordinator)
        self._server = LineServer.at(self.path, "penstock-jobs", self._answer_line)

    def __enter__(self) -> JobServer:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _answer_line(self, text: bytes) -> bytes:
        return json.dumps(self._answer(text), default=str).encode()

    def _answer(self, text: bytes) -> dict[str, Any]:
        try:
            match json.loads(text):
                case {"execute": str() as sql}:
                    return {"ok": [reply.to_json() for reply in self._jobs.execute(sql)]}
                case {"submit": dict() as facts}:
                    request, check = read_request(facts), bool(facts.get("check"))
                    return {"ok": [reply.to_json() for reply in self._jobs.submit(request, check=check)]}
                case {"ask": str() as job}:
                    result = self._jobs.ask(job)
                    return {"ok": None if result is None else ResultRows.of(result).to_json()}
                case {"route": [str() as job, message]}:
                    return {"ok": self._jobs.questions.send_message(job, message)}
                case {"since": [str() as job, int() as epoch]}:
                    return {
                        "ok": [ResultRows.of(result).to_json() for result in self._jobs.since(job, epoch)]
                    }
            raise InternalError("BAD_REQUEST", "the engine does not know this request")
        except PenstockError as error:
            return {"error": error_to_json(error)}
        except Exception as failure:
            unexpected = InternalError("BAD_REQUEST", f"{type(failure).__name__}: {failure}")
            return {"error": error_to_json(unexpected)}


def coordinator_socket(state: Path, name: str) -> str:
    """The socket of a coordinator that runs no epochs itself."""
    return socket_of(state, f"{_AT}{hashlib.sha256(name.encode()).hexdigest()[:8]}")


def sockets_of(state: Path) -> list[str]:
    """The sockets that may answer for the jobs of a state directory: first the engine's, then those of coordinators."""
    return [socket_of(state), *sorted(glob.glob(socket_of(state, f"{_AT}*")))]


def socket_of(state: Path, kind: str = "") -> str:
    """The socket of the engine on a state directory, for jobs or another kind of request. It is not in that directory:
    names of sockets must be short."""
    folder = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    make_private(Path(folder), durable=False)
    if why := find_others(Path(folder)):
        raise InternalError(
            "SOCKET_FOLDER_TAKEN",
            f"{folder} is open to somebody else",
            detail=f"{why}.",
            hint="Set TMPDIR to a directory of your own.",
        )
    name = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:24]
    return os.path.join(folder, f"{name}{kind and '-'}{kind}.socket")
