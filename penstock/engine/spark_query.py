"""Epochs on Spark: the streaming query whose batches they are.

Receives a Spark session and the desk that Spark's planner asks; hands each planned epoch to the runner, as `LocalQuery`
does without Spark.

Spark gives a query up whose Python processes are not up within ten seconds, which no setting changes, and on a busy
machine they are not. One that ends so before its first epoch has done nothing, and is begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.engine.admission import Offset
from penstock.engine.desk import SourceDesk
from penstock.engine.failures import came_late
from penstock.engine.source import FORMAT
from penstock.words.errors import InternalError

#: how often a query is begun that Spark gives up before its first epoch
_TIMES = 5


class SparkQuery:
    """A query of Spark's; `begin` starts it, `planned` says whether it has come to an epoch."""

    def __init__(self, begin: Callable[[], StreamingQuery], planned: Callable[[], bool]) -> None:
        self._begin, self._planned, self._left = begin, planned, _TIMES
        self._query = self._begun()

    @property
    def isActive(self) -> bool:
        return bool(self._query.isActive)

    def again(self) -> bool:
        """Begin it again, if it has ended because processes came too late for it; whether that was so."""
        if self.isActive or self._planned() or not self._left or not came_late(self._query.exception()):
            return False
        self._query = self._begun()
        return True

    def exception(self) -> BaseException | None:
        return self._query.exception()

    def stop(self) -> None:
        self._query.stop()

    def _begun(self) -> StreamingQuery:
        while True:
            self._left -= 1
            try:
                return self._begin()
            except PySparkException as failure:  # a process is asked for the source's columns first
                if not self._left or not came_late(failure):
                    raise


def spark_query(
    spark: SparkSession,
    desk: SourceDesk,
    name: str,
    checkpoint: Path,
    epoch: Callable[[int, Offset, Offset], None],
    failed: Callable[[InternalError], None],
) -> SparkQuery:
    """Start it; `failed` is told when Spark runs another epoch than was planned, which ends it."""

    def batch(_: DataFrame, number: int) -> None:
        planned = desk.planned
        if planned is None or planned[1]["epoch"] != number:
            failure = InternalError(
                "EPOCH_OUT_OF_STEP",
                f"Spark runs epoch {number}, but planned {planned and planned[1]['epoch']}",
                hint="The state directory and Spark's part of it do not belong together.",
            )
            failed(failure)
            raise failure
        epoch(number, *planned)

    def begin() -> StreamingQuery:
        rows = spark.readStream.format(FORMAT).option("socket", desk.path).load()
        writer = rows.writeStream.foreachBatch(batch).queryName(name)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    return SparkQuery(begin, lambda: desk.planned is not None)
