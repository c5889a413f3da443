"""On Spark, epochs return to their target length after the load has risen tenfold."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.testing.list_sink import ListSink

USUAL, FACTOR = 6_000, 10
TARGET, CATCH_UP, DEADLINE = 1.0, 2.0, 50.0
#: the time that an event takes in each of two tasks: at most 50,000 events a second, fewer than arrive in the spike
EACH_SECONDS = 40e-6


@pytest.mark.spark
def test_epochs_return_to_their_target_after_a_spike_of_ten_times_the_load(
    spark: SparkSession, tmp_path: Path
) -> None:
    def process_slowly(rows: pl.DataFrame) -> pl.DataFrame:
        time.sleep(rows.height * EACH_SECONDS)
        return rows

    log = ps.generated(
        rate=USUAL, profile="spike", spike_factor=FACTOR, at_seconds=4, for_seconds=4, partitions=2
    )
    clicks = ps.stream(
        "clicks", log, ps.combined_log(extra=[ps.Cookie("session")]), time="time", lateness="1s"
    )
    counts = clicks.map_batches(process_slowly).key_by("path").window("5s").count()
    settings = Settings(
        state=tmp_path / "state", master="local[2]", epoch_seconds=TARGET, catch_up_seconds=CATCH_UP
    )
    engine = Engine(ps.app("spike", ps.output("counts", counts.top(3), ListSink())), settings, spark)
    started, epochs = time.monotonic(), list[EpochReport]()

    def watch(report: EpochReport) -> None:
        epochs.append(report)
        if is_settled(epochs) or time.monotonic() - started > DEADLINE:
            engine.stop()

    engine.run(watch)
    lengths = [round(epoch.seconds, 2) for epoch in epochs]
    assert is_settled(epochs), f"the spike was not read, or epochs stay long: {lengths}"
    assert all(length <= 3 * CATCH_UP for length in lengths[1:]), lengths


def is_settled(epochs: list[EpochReport]) -> bool:
    """Whether the spike has been read, and the last epochs take about their target time, or less."""
    spike = USUAL * FACTOR * 4
    read = sum(epoch.events for epoch in epochs)
    last = epochs[-4:]
    calm = all(epoch.seconds <= 1.5 * TARGET and epoch.events <= 3 * USUAL for epoch in last)
    return read >= spike and len(last) == 4 and calm
