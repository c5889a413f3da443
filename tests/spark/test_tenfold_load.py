"""Under a load that changes tenfold epochs come back to their target, on Spark."""

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
#: what an event costs in each of two tasks: 50,000 events a second at most, less than the spike brings
EACH_SECONDS = 40e-6


@pytest.mark.spark
def test_epochs_return_to_their_target_after_a_spike_of_ten_times_the_load(
    spark: SparkSession, tmp_path: Path
) -> None:
    def slowly(rows: pl.DataFrame) -> pl.DataFrame:
        time.sleep(rows.height * EACH_SECONDS)
        return rows

    log = ps.generated(
        rate=USUAL, profile="spike", spike_factor=FACTOR, at_seconds=4, for_seconds=4, partitions=2
    )
    clicks = ps.stream(
        "clicks", log, ps.combined_log(extra=[ps.Cookie("session")]), time="time", lateness="1s"
    )
    counts = clicks.map_batches(slowly).key_by("path").window("5s").count()
    settings = Settings(
        state=tmp_path / "state", master="local[2]", epoch_seconds=TARGET, catch_up_seconds=CATCH_UP
    )
    engine = Engine(ps.app("spike", ps.output("counts", counts.top(3), ListSink())), settings, spark)
    began, epochs = time.monotonic(), list[EpochReport]()

    def watch(report: EpochReport) -> None:
        epochs.append(report)
        if settled(epochs) or time.monotonic() - began > DEADLINE:
            engine.stop()

    engine.run(watch)
    lengths = [round(epoch.seconds, 2) for epoch in epochs]
    assert settled(epochs), f"the spike was not read, or epochs stay long: {lengths}"
    assert all(length <= 3 * CATCH_UP for length in lengths[1:]), lengths


def settled(epochs: list[EpochReport]) -> bool:
    """Whether the spike came, has been read, and the last epochs are about as long as asked, or shorter."""
    spike = USUAL * FACTOR * 4
    read = sum(epoch.events for epoch in epochs)
    last = epochs[-4:]
    calm = all(epoch.seconds <= 1.5 * TARGET and epoch.events <= 3 * USUAL for epoch in last)
    return read >= spike and len(last) == 4 and calm
