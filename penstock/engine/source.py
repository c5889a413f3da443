"""Penstock's streaming source for Spark: a thin voice in Spark's planner process that asks the driver.

Receives Spark's questions (`latestOffset`, `partitions`); hands them to the driver's admission over a local
socket and gives back its answers. It carries no data: an epoch's tasks read their spans themselves.

Spark runs this in processes of its own, which get the class by value (see `session`): it must import nothing
of Penstock, or each of those processes would first load all of it.

Guarantees: what Spark's write-ahead log holds is what admission decided. On failure (the driver is gone) the
question raises, and Spark ends the query.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any, TextIO

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

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
            raise RuntimeError("the engine's driver does not answer its source")
        kind, value = json.loads(answer)
        if kind == "error":
            raise RuntimeError(value)
        result: dict[str, Any] = value
        return result
