"""The driver's end of the line to Spark's source: answers its questions in a thread of its own.

Receives questions from the reader in `source`; hands them to admission, and remembers what Spark has planned.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from typing import Any

from penstock.engine.admission import Admission


class SourceDesk:
    """The driver's end of the line: answers the reader's questions in a thread of its own."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._folder = tempfile.mkdtemp(prefix="penstock-")
        self.path = os.path.join(self._folder, "source")
        #: the start and end offsets of the epoch Spark has planned last
        self.planned: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.path)
        self._server.listen()
        threading.Thread(target=self._serve, name="penstock-source", daemon=True).start()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for callers
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer_all, args=(line,), daemon=True).start()

    def _answer_all(self, line: socket.socket) -> None:
        # the reader hangs up, or dies, when its query ends
        with contextlib.suppress(OSError), line, line.makefile("rw", encoding="utf-8") as file:
            for text in file:
                try:
                    answer = ["ok", self._answer(*json.loads(text))]
                except Exception as failure:
                    self._admission.failure = failure
                    answer = ["error", f"{type(failure).__name__}: {failure}"]
                file.write(json.dumps(answer) + "\n")
                file.flush()

    def _answer(self, question: str, *parts: dict[str, Any]) -> dict[str, Any]:
        match question:
            case "initial":
                return self._admission.initial()
            case "latest":
                return self._admission.latest(parts[0])
            case "planned":
                self.planned = (parts[0], parts[1])
        return {}
