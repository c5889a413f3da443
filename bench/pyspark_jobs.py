"""Many jobs in plain PySpark: each is a streaming query of its own, all of them in one session.

Windows are Structured Streaming's own, with watermarks;
native functions from the line to the window, and Arrow from there to Python, which keeps what is emitted.

Spark has no way to let queries share their reading: each lists, reads and splits all files for itself. What a competent
user can do is done: fair scheduling, so that no query waits for all others, and only the columns a job needs.

A job's condition lets the closing line pass, whatever it has: Spark pushes a condition below the watermark unless it
names the time, and then a job that leaves that line out would never close its last windows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from bench.dataset import Dataset
from bench.job_queries import Aggregate, Job, answer
from bench.outcome import Outcome, span_seconds
from bench.pyspark_session import lines, peer_session
from penstock.errors import InternalError

#: rotations a trigger takes: half a million events, where Spark is at its best
_ROTATIONS = 5
_SETTINGS = {"spark.scheduler.mode": "FAIR"}
_LATENESS = "2 seconds"
_CLOSING = "TIMESTAMP '2026-12-31 00:00:00'"
_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def runs(
    jobs: Sequence[Sequence[Job]],
    datasets: Sequence[Dataset],
    cores: int | None,
    limit_seconds: float,
    place: Path,
) -> list[Outcome]:
    """Some jobs over each data set in turn, in one session; the first ones warm it up for the later."""
    spark = peer_session(_SETTINGS, cores)
    return [
        _run(spark, some, dataset, limit_seconds, place / str(number))
        for number, (some, dataset) in enumerate(zip(jobs, datasets, strict=True))
    ]


def _run(
    spark: SparkSession, jobs: Sequence[Job], dataset: Dataset, limit_seconds: float, place: Path
) -> Outcome:
    """All jobs at once until each has read all files, or the time is up; then `events` is what the slowest has read."""
    frames: dict[int, list[pl.DataFrame]] = {job.number: [] for job in jobs}
    deadline = time.monotonic() + limit_seconds
    queries = [_start_query(spark, job, dataset, frames[job.number], place / str(job.number)) for job in jobs]
    for query in queries:
        while query.isActive and time.monotonic() < deadline:
            query.awaitTermination(max(1, round(deadline - time.monotonic())))
    late = [query for query in queries if query.isActive]
    stopping = [threading.Thread(target=query.stop) for query in late]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
    return outcome(jobs, dataset, [query.recentProgress for query in queries], frames, bool(late))


def outcome(
    jobs: Sequence[Job],
    dataset: Dataset,
    progress: Sequence[Sequence[Any]],
    frames: dict[int, list[pl.DataFrame]],
    cut_short: bool,
) -> Outcome:
    """Return the outcome by the queries' own reports: from the first one's first trigger to the last one's last.

    `stages` says how many jobs were done and which share of all reading; there are results only if all were.
    """
    read = [sum(report["numInputRows"] for report in reports) for reports in progress]
    whole = dataset.events + 1  # and the closing line
    if not cut_short and read != [whole] * len(jobs):
        raise InternalError(
            "BENCH_EVENTS_LOST", f"PySpark took {min(read)} of {whole} events, {len(jobs)} jobs"
        )
    batches = [report for reports in progress for report in reports if "addBatch" in report["durationMs"]]
    if not batches:
        raise InternalError("BENCH_FAILED", f"no trigger of {len(jobs)} jobs has ended within the time limit")
    seconds, epochs = span_seconds(batches)
    stages = {
        "jobs": float(len(jobs)),
        "jobs done": float(sum(events == whole for events in read)),
        "share read": sum(read) / (whole * len(jobs)),
    }
    answers = [] if cut_short else [answer(job, _concatenate(frames[job.number], job)) for job in jobs]
    return Outcome(min(dataset.events, *read), seconds, epochs, answers, stages=stages)


def _start_query(
    spark: SparkSession, job: Job, dataset: Dataset, frames: list[pl.DataFrame], place: Path
) -> Any:
    def each(closed: DataFrame, _: int) -> None:
        frame = pl.from_arrow(_ranked(closed, job).toArrow())
        assert isinstance(frame, pl.DataFrame)
        frames.append(frame)

    writer = _rows(spark, job, dataset).writeStream.foreachBatch(each).outputMode("append")
    return writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()


def _rows(spark: SparkSession, job: Job, dataset: Dataset) -> DataFrame:
    """The job as a streaming query; what it emits once a window is closed."""
    events = _clicks(lines(spark, dataset, _ROTATIONS), job.columns).withWatermark("time", _LATENESS)
    matching = events.where(f"({job.where_sql()}) OR time >= {_CLOSING}")
    window = F.window("time", f"{job.seconds} seconds", f"{job.every} seconds")
    counted = matching.groupBy(window, *job.keys).agg(*map(_aggregate, job.aggregates))
    start = F.unix_micros("window.start").alias("window_start")
    return counted.select(start, *job.keys, *(aggregate.name for aggregate in job.aggregates))


def _ranked(closed: DataFrame, job: Job) -> DataFrame:
    if job.top is None:
        return closed
    best_first = Window.partitionBy("window_start").orderBy(F.desc(job.aggregates[0].name), *job.keys)
    ranked = closed.withColumn("_rank", F.row_number().over(best_first))
    return ranked.where(F.col("_rank") <= job.top).drop("_rank")


def _clicks(text: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The events' `time` and these columns, by native functions only."""
    quoted = text.select(F.split("value", '"').alias("q"))
    q = quoted["q"]
    request, numbers = F.split(q[1], " "), F.split(q[2], " ")
    stamp = F.substring_index(F.substring_index(q[0], "[", -1), "]", 1)
    known: dict[str, Column] = {
        "method": request[0],
        "path": request[1],
        "status": numbers[1].cast("int"),
        "bytes": F.expr("try_cast(split(q[2], ' ')[2] AS BIGINT)"),
        "referer": F.nullif(q[3], F.lit("-")),
        "agent": F.nullif(q[5], F.lit("-")),
        "session": F.substring(q[7], len("session=") + 1, 100),
    }
    selected = [known[name].alias(name) for name in columns]
    return quoted.select(F.to_timestamp(stamp, _FORMAT).alias("time"), *selected)


def _aggregate(aggregate: Aggregate) -> Column:
    return F.expr(f"{aggregate.function}({aggregate.column})").alias(aggregate.name)


def _concatenate(frames: list[pl.DataFrame], job: Job) -> pl.DataFrame:
    """Concatenate what all triggers emitted; without any, no rows."""
    if frames:
        return pl.concat(frames)
    names = ("window_start", *job.keys, *(aggregate.name for aggregate in job.aggregates))
    return pl.DataFrame(schema=dict.fromkeys(names, pl.Int64))
