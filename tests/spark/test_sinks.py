"""An engine on Spark delivers to every kind of sink."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.engine import Engine
from penstock.settings import Settings
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from tests import golden_query as golden


@pytest.mark.spark
def test_one_output_is_delivered_to_every_kind_of_sink(spark: SparkSession, tmp_path: Path) -> None:
    events = ps.stream("events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=5)
    counts = events.key_by("user").window("1m").count()
    rows, files, table = (
        ListSink(),
        ps.parquet(tmp_path / "parquet"),
        ps.sqlite(tmp_path / "rows.db", "counts"),
    )
    lines = ps.jsonl(tmp_path / "jsonl")
    app = ps.app("everywhere", ps.output("counts", counts, rows, files, lines, table, ps.console()))
    Engine(app, Settings(state=tmp_path / "state", master="local[2]", drain=True, warm_up=False), spark).run()
    expected = sorted((row["user"], row["count"]) for row in rows.rows())
    assert expected
    assert sorted(files.read().select("user", "count").rows()) == expected
    assert sorted(lines.read().select("user", "count").rows()) == expected
    with sqlite3.connect(tmp_path / "rows.db") as database:
        assert sorted(database.execute("SELECT user, count FROM counts")) == expected
    assert isinstance(files.read(), pl.DataFrame)


@pytest.mark.spark
def test_rows_too_large_for_a_message_reach_the_sinks(spark: SparkSession, tmp_path: Path) -> None:
    """On one host they are files, whose names travel."""
    events = ps.stream("events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=5)
    wide = events.map(text=ps.col("user") + "x" * 3_000)
    rows = ListSink()
    app = ps.app("wide", ps.output("wide", wide.select("user", "text"), rows))
    settings = Settings(state=tmp_path / "state", drain=True, warm_up=False, small_epoch_bytes=0)
    Engine(app, settings, spark).run()
    alone = ListSink()
    run_inline(ps.app("wide", ps.output("wide", wide.select("user", "text"), alone)), tmp_path / "alone")
    assert len(alone.rows()) * 3_000 > 1 << 18
    assert sorted(rows.rows(), key=str) == sorted(alone.rows(), key=str)
