"""The length of an empty epoch of Structured Streaming: a trivial Python source and a `foreachBatch` that returns.

It has the session settings that Penstock has. It is a comparison, not a floor: Penstock executes its epochs without
Structured Streaming (docs/decisions/0030) and may be faster.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from bench.outcome import Outcome

_DEADLINE_SECONDS = 300


class TrivialSource(DataSource):
    """Always has one row more."""

    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return "number long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


def empty_epochs(spark: SparkSession, warm: int, measured: int, folder: Path) -> Outcome:
    """A sample is the time from the end of one `foreachBatch` to the end of the next, in ms."""
    spark.dataSource.register(TrivialSource)
    ends: list[float] = []
    enough = threading.Event()

    def nothing(_: DataFrame, __: int) -> None:
        ends.append(time.perf_counter())
        if len(ends) > warm + measured:
            enough.set()

    rows = spark.readStream.format("trivial").load()
    query = rows.writeStream.foreachBatch(nothing).option("checkpointLocation", str(folder)).start()
    enough.wait(_DEADLINE_SECONDS)
    failure = query.exception()
    query.stop()
    if not enough.is_set():
        raise failure or TimeoutError(f"only {len(ends)} epochs in {_DEADLINE_SECONDS} s")
    measured_ends = ends[warm : warm + measured + 1]
    gaps = [(after - before) * 1000 for before, after in itertools.pairwise(measured_ends)]
    return Outcome(0, measured_ends[-1] - measured_ends[0], len(gaps), samples=gaps)
