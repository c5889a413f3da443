"""The peers' Spark: the settings a competent user would choose on one machine, and the fastest native parse.

Also a streaming frame of a data set's events, and a streaming query that runs over it to the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.dataset import Dataset
from bench.outcome import AnswerRows, Outcome, span_seconds
from penstock.errors import InternalError
from penstock.spark.java import java_home

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: the closing line of a data set's rotated files
_CLOSING_EVENTS = 1
_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def peer_session(further: dict[str, str] | None = None, cores: int | None = None) -> SparkSession:
    """A session of plain PySpark on so many cores, by default on all of this machine."""
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = cores or os.cpu_count() or 1
    settings = {
        "spark.driver.memory": "6g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.shuffle.partitions": str(cores),
        # small queries inside foreachBatch: planning them again and again costs more than it saves
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("peer")
    for key, value in (settings | (further or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lines(spark: SparkSession, dataset: Dataset, rotations: int) -> DataFrame:
    """The rotated files as a stream of lines; a trigger takes that many rotations of all servers."""
    reader = spark.readStream.option("maxFilesPerTrigger", rotations * dataset.servers)
    return reader.text(str(dataset.rotated))


def parse_lines(text: DataFrame, *further: str) -> DataFrame:
    """The events' `time`, `path` and `session`, by native functions only, and further columns of `text`.

    Splitting at the quotes took half the time of a regular expression, and no longer than substrings.
    """
    quoted = text.select(F.split("value", '"').alias("q"), *further)
    q = quoted["q"]
    return quoted.select(
        F.to_timestamp(F.substring_index(F.substring_index(q[0], "[", -1), "]", 1), _FORMAT).alias("time"),
        F.split(q[1], " ")[1].alias("path"),
        F.substring(q[7], len("session=") + 1, 100).alias("session"),
        *further,
    )


def run_to_end(
    rows: DataFrame,
    each: Callable[[DataFrame, int], None],
    answer: Callable[[], AnswerRows],
    dataset: Dataset,
    checkpoint: Path,
) -> Outcome:
    """Run a streaming query until all files are read, with the same clock as Penstock's runs."""
    seconds, epochs = _time_query(rows.writeStream.foreachBatch(each), dataset, checkpoint)
    return Outcome(dataset.events, seconds, epochs, answer())


def write_parquet(rows: DataFrame, dataset: Dataset, place: Path, sides: int = 1) -> tuple[float, int, Path]:
    """Run a streaming query into Parquet files until all files are read: seconds, epochs and where they are.

    `sides`: how many times the query reads the data set.
    """
    results = place / "results"
    writer = rows.writeStream.format("parquet").option("path", str(results))
    return *_time_query(writer, dataset, place / "checkpoint", sides), results


def _time_query(writer: Any, dataset: Dataset, checkpoint: Path, sides: int = 1) -> tuple[float, int]:
    appending = writer.outputMode("append").option("checkpointLocation", str(checkpoint))
    query = appending.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.recentProgress
    taken = sum(report["numInputRows"] for report in progress)
    if taken != sides * (dataset.events + _CLOSING_EVENTS):
        raise InternalError("BENCH_EVENTS_LOST", f"PySpark took {taken} of {sides} x {dataset.events} events")
    return span_seconds(progress)
