"""Window counts in plain PySpark: native functions from the line to the count, no Python on the way.

Windows close by the watermark (append mode) and are ranked as they close.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from bench.dataset import Dataset
from bench.outcome import AnswerRows, Outcome
from bench.pyspark_session import lines, parse_lines, peer_session, run_to_end
from bench.reference import TOP, WINDOW_SECONDS

#: rotations a trigger takes: half a million events, where Spark is at its best
_ROTATIONS = 5


def runs(datasets: list[Dataset], place: Path) -> list[Outcome]:
    """The query over each data set in turn, in one session; the first ones warm it up for the last."""
    spark = peer_session()
    return [window_counts(spark, dataset, place / str(number)) for number, dataset in enumerate(datasets)]


def window_counts(spark: SparkSession, dataset: Dataset, checkpoint: Path) -> Outcome:
    """One run over a data set."""
    events = parse_lines(lines(spark, dataset, _ROTATIONS)).withWatermark("time", "2 seconds")
    counts = events.groupBy(F.window("time", f"{WINDOW_SECONDS} seconds"), "path").count()
    best_first = Window.partitionBy("window").orderBy(F.desc("count"), "path")
    results: AnswerRows = []

    def each(closed: DataFrame, _: int) -> None:
        ranked = closed.withColumn("rank", F.row_number().over(best_first)).where(F.col("rank") <= TOP)
        start = F.unix_timestamp("window.start")
        results.extend(list(row) for row in ranked.select(start, "rank", "path", "count").collect())

    return run_to_end(counts, each, lambda: sorted(results), dataset, checkpoint)
