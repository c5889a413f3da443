"""The operators in plain PySpark: native functions from the line to the Parquet file, no Python on the way.

Windows and joins are Structured Streaming's own, with watermarks.

There is no product here: Spark refuses a join of two streams without an equality (`refused_product` shows it).
This benchmark's own predicate could be rewritten by hand, each call once under either of its numbers, into an equality
and a later removal of doubles; that is another query, and most predicates have no such form.

What was measured before choosing: the CSV source takes as much processor time as splitting lines of text; joins
with the state in the JVM's memory, which is Spark's default, took a third of the time that RocksDB took.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.call_data import TIMES
from bench.dataset import Dataset
from bench.operator_queries import EARTH_KM, LATENESS_SECONDS, Query, answer
from bench.outcome import Outcome
from bench.pyspark_session import peer_session, write_parquet
from penstock.errors import InternalError

#: rotations a trigger takes: half a million calls, where Spark is at its best
_ROTATIONS = 5
_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_SCHEMA = "src string, dst string, start long, end long, district int, lat double, lon double, ts long"
_LATENESS = f"{LATENESS_SECONDS} seconds"


def runs(
    queries: Sequence[Query], datasets: Sequence[Dataset], cores: int | None, place: Path
) -> list[Outcome]:
    """Each question over its data set in turn, in one session; the first ones warm it up for the later."""
    spark = peer_session(_SETTINGS, cores)
    return [
        _run(spark, query, dataset, place / str(number))
        for number, (query, dataset) in enumerate(zip(queries, datasets, strict=True))
    ]


def refused_product(spark: SparkSession, dataset: Dataset, place: Path) -> str:
    """Return the error of Spark for a product of the stream with itself."""
    left, right = _calls(spark, dataset), _right_side(_calls(spark, dataset))
    same = " or ".join(f"{a} = {b}_right" for a in ("src", "dst") for b in ("src", "dst"))
    pairs = left.withWatermark("ts", _LATENESS).join(
        right.withWatermark("ts_right", _LATENESS), F.expr(f"({same}) and {_near(10)}")
    )
    try:
        write_parquet(pairs, dataset, place, sides=2)
    except StreamingQueryException as refusal:
        return str(refusal)
    raise InternalError("BENCH_DISAGREES", "Spark has learned products of streams; measure them")


def _run(spark: SparkSession, query: Query, dataset: Dataset, place: Path) -> Outcome:
    sides = 2 if query.operator == "join" else 1
    seconds, epochs, results = write_parquet(_rows(spark, query, dataset), dataset, place, sides)
    rows = pl.read_parquet(results / "*.parquet")
    return Outcome(dataset.events, seconds, epochs, answer(query, rows))


def _rows(spark: SparkSession, query: Query, dataset: Dataset) -> DataFrame:
    calls = _calls(spark, dataset)
    duration = ((F.unix_micros("end") - F.unix_micros("start")) / 1_000_000).cast("long").alias("duration")
    match query.operator:
        case "map":
            return calls.select("src", duration)
        case "aggregate":
            size, advance = f"{query.seconds} seconds", f"{query.advance_seconds} seconds"
            timed = calls.select("district", "ts", duration).withWatermark("ts", _LATENESS)
            windows = timed.groupBy(F.window("ts", size, advance), "district")
            aggregated = windows.agg(F.count("*").alias("count"), F.avg("duration").alias("avg_duration"))
            start = F.col("window.start").alias("window_start")
            return aggregated.select(start, "district", "count", "avg_duration")
        case "join":
            needed = ("src", "start", "lat", "lon", "ts")
            left, right = calls.select(*needed), _right_side(_calls(spark, dataset).select(*needed))
            order = f"start < start_right and start_right <= start + interval {query.seconds} seconds"
            pairs = left.withWatermark("ts", _LATENESS).join(
                right.withWatermark("ts_right", _LATENESS),
                F.expr(f"src = src_right and {_near(query.seconds)} and {order}"),
            )
            return pairs.select("src", "start", "start_right", _kilometres().alias("km"))
    raise InternalError("BENCH_FAILED", f"plain PySpark does not run {query.operator}")


def _calls(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The rotated files as a stream of typed calls."""
    reader = spark.readStream.option("maxFilesPerTrigger", _ROTATIONS * dataset.servers)
    read = reader.schema(_SCHEMA).csv(str(dataset.rotated))
    return read.withColumns({name: F.timestamp_micros(name) for name in TIMES})


def _right_side(calls: DataFrame) -> DataFrame:
    """The right side of a join."""
    return calls.select(*(F.col(name).alias(f"{name}_right") for name in calls.columns))


def _near(seconds: int) -> str:
    distance = f"interval {seconds} seconds"
    return f"ts_right >= ts - {distance} and ts_right <= ts + {distance}"


def _kilometres() -> Column:
    """The great-circle distance of the two calls, by the haversine."""
    lat, lat_right = F.radians("lat"), F.radians("lat_right")
    north = F.sin((lat_right - lat) / 2)
    east = F.sin((F.radians("lon_right") - F.radians("lon")) / 2)
    return 2 * EARTH_KM * F.asin(F.sqrt(north * north + F.cos(lat) * F.cos(lat_right) * east * east))
