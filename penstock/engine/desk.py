"""The driver's end of the line to Spark's source: answers its questions in a thread of its own.

Receives questions from the reader in `source`; hands them to admission, and remembers what Spark has planned.

A desk can be open before there is an admission: then Spark gets one empty batch, which it asks for anyway, and is kept
waiting. Where the engine goes on from, it says when it takes the desk over; Spark never learns: to it the offset after
the empty batch is the one before the engine's first epoch.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from typing import Any

from penstock.engine.admission import Admission
from penstock.engine.lines import LineServer

Offset = dict[str, Any]
#: before and after the empty batch of a desk that waits
_BEFORE: Offset = {"epoch": -1}
_WAITING: Offset = {"epoch": -1, "waiting": True}
#: how long a question waits for an admission before it is answered with "nothing yet"
_WAIT_SECONDS = 1.0


class SourceDesk:
    """The driver's end of the line: answers the reader's questions in a thread of its own."""

    def __init__(self, admission: Admission | None = None) -> None:
        self._admission = admission
        self._reached: Offset | None = None
        self._taken_over = threading.Event()
        self._folder = tempfile.mkdtemp(prefix="penstock-")
        self.path = os.path.join(self._folder, "source")
        #: the start and end offsets of the epoch Spark has planned last
        self.planned: tuple[Offset, Offset] | None = None
        self._server = LineServer(self.path, "penstock-source", self._answered)

    def take_over(self, admission: Admission, reached: Offset) -> None:
        """Answer by an admission from now on, which goes on from an offset."""
        self._reached, self._admission = reached, admission
        self._taken_over.set()

    def close(self) -> None:
        """Hang up."""
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answered(self, text: bytes) -> bytes:
        try:
            answer = ["ok", self._answer(*json.loads(text))]
        except Exception as failure:
            if self._admission is not None:
                self._admission.failure = failure
            answer = ["error", f"{type(failure).__name__}: {failure}"]
        return json.dumps(answer).encode()

    def _answer(self, question: str, *parts: Offset) -> Offset:
        match question:
            case "initial":
                return _BEFORE if self._admission is None else self._admission.initial()
            case "latest":
                return self._latest(parts[0])
            case "planned":
                self.planned = (self._ours(parts[0]), parts[1])
        return {}

    def _latest(self, start: Offset) -> Offset:
        if self._admission is None:
            if start == _BEFORE:
                return _WAITING
            if not self._taken_over.wait(_WAIT_SECONDS):
                return start
        assert self._admission is not None
        ours = self._ours(start)
        end = self._admission.latest(ours)
        return start if end == ours else end

    def _ours(self, offset: Offset) -> Offset:
        """An offset of Spark's as the engine knows it."""
        return self._reached if self._reached is not None and offset == _WAITING else offset
