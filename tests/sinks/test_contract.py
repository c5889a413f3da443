"""Every sink keeps the contract."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl

from penstock.sinks import JsonLines, Parquet, Sink, Sqlite
from penstock.testing.list_sink import ListSink
from penstock.testing.sink_contract import SinkContract


class TestJsonLines(SinkContract):
    remembers = True

    @staticmethod
    def make(folder: Path) -> Sink:
        return JsonLines(folder / "out")

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        assert isinstance(sink, JsonLines)
        return sink.read().drop("_epoch")


class TestParquet(SinkContract):
    remembers = True

    @staticmethod
    def make(folder: Path) -> Sink:
        return Parquet(folder / "out")

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        assert isinstance(sink, Parquet)
        return sink.read().drop("_epoch")


class TestSqlite(SinkContract):
    remembers = True

    @staticmethod
    def make(folder: Path) -> Sink:
        return Sqlite(folder / "out.db", "answers")

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        assert isinstance(sink, Sqlite)
        if not sink.path.exists():
            return pl.DataFrame(schema={"epoch": pl.Int64})
        with closing(sqlite3.connect(sink.path, timeout=30)) as database:
            try:
                found = database.execute("SELECT * FROM answers ORDER BY rowid")
            except sqlite3.OperationalError:  # no table yet
                return pl.DataFrame(schema={"epoch": pl.Int64})
            names = [column[0] for column in found.description]
            rows = pl.DataFrame(found.fetchall(), schema=names, orient="row", infer_schema_length=None)
        if "new" in names:  # booleans are 0 and 1 there
            rows = rows.with_columns(pl.col("new").cast(pl.Boolean))
        return rows


class TestListSink(SinkContract):
    persists = False
    fences = False

    @staticmethod
    def make(folder: Path) -> Sink:
        return ListSink()

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        assert isinstance(sink, ListSink)
        if not sink.epochs:
            return pl.DataFrame(schema={"epoch": pl.Int64})
        return pl.concat([rows for _, rows in sink.epochs])
