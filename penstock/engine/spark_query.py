"""Epochs on Spark: the streaming query whose batches they are.

Receives a Spark session and the desk that Spark's planner asks; hands each planned epoch to the runner, as `LocalQuery`
does without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.engine.admission import Offset
from penstock.engine.desk import SourceDesk
from penstock.engine.source import FORMAT
from penstock.words.errors import InternalError


def spark_query(
    spark: SparkSession,
    desk: SourceDesk,
    name: str,
    checkpoint: Path,
    epoch: Callable[[int, Offset, Offset], None],
    failed: Callable[[InternalError], None],
) -> StreamingQuery:
    """Start it; `failed` is told when Spark runs another epoch than was planned, which ends it."""
    rows = spark.readStream.format(FORMAT).option("socket", desk.path).load()

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

    writer = rows.writeStream.foreachBatch(batch).queryName(name)
    return writer.option("checkpointLocation", str(checkpoint)).start()
