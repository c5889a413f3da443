"""The driver's end of the line to Spark's source: answers its questions in a thread of its own.

Receives questions from the reader in `source`; hands them to admission, and remembers what Spark has planned.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any

from penstock.engine.admission import Admission
from penstock.engine.lines import LineServer


class SourceDesk:
    """The driver's end of the line: answers the reader's questions in a thread of its own."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._folder = tempfile.mkdtemp(prefix="penstock-")
        self.path = os.path.join(self._folder, "source")
        #: the start and end offsets of the epoch Spark has planned last
        self.planned: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._server = LineServer(self.path, "penstock-source", self._answered)

    def close(self) -> None:
        """Hang up."""
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answered(self, text: bytes) -> bytes:
        try:
            answer = ["ok", self._answer(*json.loads(text))]
        except Exception as failure:
            self._admission.failure = failure
            answer = ["error", f"{type(failure).__name__}: {failure}"]
        return json.dumps(answer).encode()

    def _answer(self, question: str, *parts: dict[str, Any]) -> dict[str, Any]:
        match question:
            case "initial":
                return self._admission.initial()
            case "latest":
                return self._admission.latest(parts[0])
            case "planned":
                self.planned = (parts[0], parts[1])
        return {}
