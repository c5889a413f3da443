"""Plain PySpark Structured Streaming as a competent user writes it: native functions wherever there are any.

    python pyspark_program.py windows INPUT OUT.json

Input comes as rotated files: the file source takes whole files only. Patterns and taxi rides need Python state:
`transformWithState` with rows, on RocksDB as it demands. All else keeps state in the JVM's memory, Spark's default and
faster here. Counts of patterns are kept by the driver: less than Penstock does, in Spark's favour.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from program import (
    CALL_LATENESS,
    EARTH_KM,
    JOB_WINDOW,
    JOIN_SECONDS,
    LATENCY_WINDOW,
    LATENESS,
    TOP,
    WINDOW,
    Rows,
    Task,
    best,
    main,
)
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from taxi_routes import Routes, trip_of

SETTINGS = {
    "spark.driver.memory": "6g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.shuffle.partitions": "as many as cores",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "maxFilesPerTrigger": "half a million lines (patterns: 300,000)",
}
_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # the place of a line in its file is needed for order; Spark has it, but refuses it in streams unless told
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # a file must not be cut, or places in it would begin anew
    "spark.sql.files.openCostInBytes": str(64 << 20),
}
_QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def session(task: Task, further: dict[str, str] | None = None) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {key: value for key, value in SETTINGS.items() if key.startswith("spark.")}
    settings |= _QUIET | {"spark.sql.shuffle.partitions": str(task.cores)} | (further or {})
    builder = SparkSession.builder.master(f"local[{task.cores}]").appName("peer")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lines(spark: SparkSession, task: Task, events: int = 500_000) -> DataFrame:
    """The rotated files as a stream of lines; a trigger takes about so many."""
    facts = task.facts
    rotations = max(1, round(events / facts["rotation_events"]))
    reader = spark.readStream.option("maxFilesPerTrigger", rotations * facts["parts"])
    return reader.text(f"{task.input}/pieces")


def drained(
    task: Task, rows: DataFrame, each: Callable[[DataFrame, int], None] | None, sides: int = 1
) -> None:
    """Run a query until all files are read; without `each` its rows go to Parquet files."""
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", f"{task.place}/checkpoint")
    if each is None:
        writer = writer.format("parquet").option("path", f"{task.place}/rows")
    else:
        writer = writer.foreachBatch(each)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    ended(task, [query], sides)


def ended(task: Task, queries: list[Any], sides: int = 1) -> None:
    """The clock of Spark's own reports: from the first trigger's start to the last one's end."""
    from datetime import datetime

    reports = [report for query in queries for report in query.recentProgress]
    ran = [report for report in reports if "addBatch" in report["durationMs"]]
    began = [datetime.fromisoformat(report["timestamp"]).timestamp() for report in ran]
    took = [report["durationMs"]["triggerExecution"] / 1000 for report in ran]
    task.seconds = max(at + span for at, span in zip(began, took, strict=True)) - min(began)
    task.extra["epochs"] = len(ran)
    taken = sum(report["numInputRows"] for report in ran)
    if taken != sides * len(queries) * (task.facts["events"] + task.facts["closing"]):
        raise SystemExit(f"took {taken} events of {sides} x {len(queries)} x {task.facts['events']}")


# begin patterns windows clients jobs
def clicks(text: DataFrame, *further: str) -> DataFrame:
    quoted = text.select(F.split("value", '"').alias("q"), *further)
    q = quoted["q"]
    stamp = F.substring_index(F.substring_index(q[0], "[", -1), "]", 1)
    return quoted.select(
        F.to_timestamp(stamp, _FORMAT).alias("time"),
        F.substring_index(q[0], " ", 1).alias("host"),
        F.split(q[1], " ")[1].alias("path"),
        F.expr("try_cast(split(q[2], ' ')[2] AS BIGINT)").alias("bytes"),
        F.substring(q[7], len("session=") + 1, 100).alias("session"),
        *further,
    ).withWatermark("time", f"{LATENESS} seconds")


# end patterns windows clients jobs
# begin patterns
class LastPages(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getListState("last", "path string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        ordered = [path for _, path in sorted((row.place, row.path) for row in rows)]
        pages = [path for (path,) in self._last.get()] + ordered
        self._last.put([(path,) for path in pages[-2:]])
        for at in range(len(pages) - 2):
            yield Row(pattern=" > ".join(pages[at : at + 3]))

    def close(self) -> None:
        pass


def patterns(task: Task) -> Rows:
    spark = session(task, _ROCKSDB)
    rotation = F.substring(F.col("_metadata.file_name"), 1, 5).cast("long")
    place = (rotation * (1 << 40) + F.monotonically_increasing_id() % (1 << 33)).alias("place")
    text = lines(spark, task, 300_000).select("value", place)
    events = clicks(text, "place").select("session", "place", "path")
    found = events.groupBy("session").transformWithState(LastPages(), "pattern string", "Append", "None")
    totals: Counter[str] = Counter()

    def each(batch: DataFrame, _: int) -> None:
        counted = batch.groupBy("pattern").count().toArrow()
        totals.update(dict(zip(*(column.to_pylist() for column in counted.columns), strict=True)))

    drained(task, found, each)
    return best(totals.items())


# end patterns
# begin windows latency
def top_pages(events: DataFrame, seconds: int, told: Callable[[list[Any]], None]) -> tuple[DataFrame, Any]:
    counts = events.groupBy(F.window("time", f"{seconds} seconds"), "path").count()
    best_first = Window.partitionBy("window").orderBy(F.desc("count"), "path")

    def each(closed: DataFrame, _: int) -> None:
        ranked = closed.withColumn("rank", F.row_number().over(best_first)).where(F.col("rank") <= TOP)
        told(ranked.select(F.unix_timestamp("window.start"), "rank", "path", "count").collect())

    return counts, each


# end windows latency
# begin windows
def windows(task: Task) -> Rows:
    told: list[Any] = []
    drained(task, *top_pages(clicks(lines(session(task), task)), WINDOW, told.extend))
    return told


# end windows
# begin clients
def clients(task: Task) -> Rows:
    spark = session(task)
    by_host = clicks(lines(spark, task)).groupBy(F.window("time", f"{WINDOW} seconds"), "host")
    told = by_host.agg(
        F.count("*").alias("visits"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    times = [F.unix_timestamp(name).alias(name.split(".")[-1]) for name in ("window.start", "first", "last")]
    drained(task, told.select(times[0], "host", "visits", *times[1:]), None)
    # end clients
    found = spark.read.parquet(f"{task.place}/rows").toArrow()
    return zip(*(column.to_pylist() for column in found.columns), strict=True)


# begin join
def join(task: Task) -> Rows:
    spark = session(task)

    def calls(suffix: str) -> DataFrame:
        names = ["src", "dst", "start", "end", "district", "lat", "lon", "ts"]
        parts = F.split("value", ",")
        types = ["string", "string", "long", "long", "int", "double", "double", "long"]
        found = [parts[at].cast(types[at]).alias(names[at]) for at in (0, 2, 5, 6, 7)]
        typed = lines(spark, task).select(*found)
        typed = typed.withColumns({name: F.timestamp_micros(name) for name in ("start", "ts")})
        renamed = typed.select(*(F.col(name).alias(name + suffix) for name in typed.columns))
        return renamed.withWatermark(f"ts{suffix}", f"{CALL_LATENESS} seconds")

    distance = f"interval {JOIN_SECONDS} seconds"
    near = f"src = src_right and ts_right >= ts - {distance} and ts_right <= ts + {distance}"
    order = f"start < start_right and start_right <= start + {distance}"
    lat, lat_right = F.radians("lat"), F.radians("lat_right")
    north = F.sin((lat_right - lat) / 2)
    east = F.sin((F.radians("lon_right") - F.radians("lon")) / 2)
    km = 2 * EARTH_KM * F.asin(F.sqrt(north * north + F.cos(lat) * F.cos(lat_right) * east * east))
    pairs = calls("").join(calls("_right"), F.expr(f"{near} and {order}"))
    starts = [F.unix_micros(name).alias(name) for name in ("start", "start_right")]
    drained(task, pairs.select("src", *starts, km.alias("km")), None, sides=2)
    # end join
    found = spark.read.parquet(f"{task.place}/rows").toArrow().to_pydict()
    task.extra["answer"] = {"km": round(sum(found["km"]))}
    return zip(found["src"], found["start"], found["start_right"], strict=True)


# begin taxi
class BestRoutes(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("routes", "routes binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        import pickle

        kept = self._state.get()
        routes = Routes() if kept is None else pickle.loads(kept[0])
        for _, line in sorted((row.place, row.value) for row in rows):
            trip = trip_of(line)
            told = None if trip is None else routes.took(trip)
            if told is not None:
                yield Row(pickup=told[0], dropoff=told[1], best=told[2])
        self._state.update((pickle.dumps(routes),))

    def close(self) -> None:
        pass


def taxi(task: Task) -> Rows:
    spark = session(task, _ROCKSDB)
    rotation = F.substring(F.col("_metadata.file_name"), 1, 5).cast("long")
    place = (rotation * (1 << 40) + F.monotonically_increasing_id() % (1 << 33)).alias("place")
    trips = lines(spark, task, 100_000).select("value", place)
    everybody = trips.withColumn("all", F.lit(0)).groupBy("all")
    schema = "pickup string, dropoff string, best string"
    found: list[Any] = []
    rows = everybody.transformWithState(BestRoutes(), schema, "Append", "None")
    drained(task, rows, lambda batch, _: found.extend(batch.collect()))
    return found


# end taxi
# begin jobs
def jobs(task: Task) -> Rows:
    spark = session(task, {"spark.scheduler.mode": "FAIR"})
    found: list[Any] = []
    queries = []
    for number, page in enumerate(task.pages):
        # the condition lets the closing line pass, or the last windows would never close
        mine = clicks(lines(spark, task)).where((F.col("path") == page) | (F.col("time") >= "2026-12-31"))
        counts = mine.groupBy(F.window("time", f"{JOB_WINDOW} seconds"))
        told = counts.agg(F.count("*").alias("n"), F.coalesce(F.sum("bytes"), F.lit(0)).alias("b"))
        told = told.select(F.lit(number), F.unix_timestamp("window.start"), "n", "b")
        writer = told.writeStream.outputMode("append").trigger(availableNow=True)
        writer = writer.foreachBatch(lambda rows, _: found.extend(rows.collect()))
        queries.append(writer.option("checkpointLocation", f"{task.place}/{number}").start())
    for query in queries:
        query.awaitTermination()
    ended(task, queries)
    return found


# end jobs
# begin latency
def latency(task: Task) -> Rows:
    events = clicks(session(task).readStream.text(f"{task.input}/pieces"))
    arrived: dict[int, float] = {}

    def told(rows: list[Any]) -> None:
        for row in rows:
            arrived.setdefault(row[0], time.time())

    counts, each = top_pages(events, LATENCY_WINDOW, told)
    writer = counts.writeStream.outputMode("append").foreachBatch(each)
    query = writer.option("checkpointLocation", f"{task.place}/checkpoint").start()
    # end latency
    stopped = threading.Event()
    stopped.wait(task.live_seconds)
    query.stop()
    task.seconds = task.live_seconds
    return sorted(arrived.items())


WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, taxi, jobs, latency)}

if __name__ == "__main__":
    main("pyspark", WORKLOADS, ["pyspark", "pyarrow"], SETTINGS)
