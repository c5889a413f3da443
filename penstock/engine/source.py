"""Penstock's streaming source for Spark: a thin voice in Spark's planner process that asks the driver.

Receives Spark's questions (`latestOffset`, `partitions`); hands them to the driver's admission over a local
socket and gives back its answers. It carries no data: an epoch's tasks read their spans themselves.

Guarantees: what Spark's write-ahead log holds is what admission decided. On failure (the driver is gone) the
question raises, and Spark ends the query.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.engine.admission import Admission
from penstock.words.errors import InternalError

FORMAT = "penstock"


class EpochSource(DataSource):
    """What `spark.readStream.format("penstock")` makes."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "epoch long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(self.options["socket"])


class _Reader(DataSourceStreamReader):
    def __init__(self, path: str) -> None:
        self._path = path
        # opened at the first question: Spark also pickles this reader
        self._line: TextIO | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._asked("initial")

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._asked("latest", start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._asked("planned", start, end)
        return [InputPartition(end["epoch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: dict[str, Any]) -> None:
        self._asked("committed", end)

    def stop(self) -> None:
        if self._line is not None:
            self._line.close()

    def _asked(self, question: str, *parts: dict[str, Any]) -> dict[str, Any]:
        if self._line is None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.connect(self._path)
            self._line = line.makefile("rw", encoding="utf-8")
        self._line.write(json.dumps([question, *parts]) + "\n")
        self._line.flush()
        answer = self._line.readline()
        if not answer:
            raise InternalError("ENGINE_GONE", "the engine's driver does not answer its source")
        kind, value = json.loads(answer)
        if kind == "error":
            raise RuntimeError(value)
        result: dict[str, Any] = value
        return result


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
        self._server.close()
        Path(self.path).unlink(missing_ok=True)
        os.rmdir(self._folder)

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
