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
