"""Spark's streaming sources as logs: Spark's own `rate`, and a data source in Python."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition, SimpleDataSourceStreamReader

import penstock as ps
from penstock.engine.engine import Engine
from penstock.errors import ExternalError, UserError
from penstock.logs import Log, Span
from penstock.settings import Settings
from penstock.spark.source_log import SparkSource
from penstock.testing.log_contract import LogContract, read_all, whole

pytestmark = pytest.mark.spark


class Countdown(DataSource):
    """Numbers in batches of a hundred, `count` in all."""

    @classmethod
    def name(cls) -> str:
        return "countdown"

    def schema(self) -> str:
        return "n BIGINT, at TIMESTAMP, text STRING"

    def simpleStreamReader(self, schema: Any) -> Any:
        return CountdownReader(int(self.options["count"]))


class CountdownReader(SimpleDataSourceStreamReader):
    def __init__(self, count: int) -> None:
        self.count = count

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> Any:
        end = {"n": min(start["n"] + 100, self.count)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        from datetime import UTC, datetime, timedelta

        first = datetime(2026, 3, 1, tzinfo=UTC)
        return iter(
            [(n, first + timedelta(milliseconds=n), f"a\nü {n}") for n in range(start["n"], end["n"])]
        )


assert InputPartition


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)


class TestContract(LogContract):
    @pytest.fixture(scope="class")
    def log(self, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
        folder = tmp_path_factory.mktemp("countdown")
        source = SparkSource(Countdown, {"count": "1000"}, directory=folder, interval_seconds=0.05)
        source.start(None, {})
        until(lambda: len(lines_of(source)) == 1000)
        yield source
        source.stopped()


def lines_of(log: SparkSource) -> list[dict[str, Any]]:
    (partition,) = log.partitions({})
    return [json.loads(line) for line in read_all(log, whole(partition)).splitlines()]


def test_a_stopped_side_query_continues_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Also when the last micro-batch was committed, and Spark did not record it."""
    options = {"count": "600"}
    first = SparkSource(Countdown, options, directory=tmp_path, interval_seconds=0.05, select=["n"])
    first.start(None, {})
    until(lambda: len(lines_of(first)) >= 300)
    first.stopped()
    commits = sorted(
        (path for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")), key=lambda p: int(p.name)
    )
    commits[-1].unlink()
    for hidden in (tmp_path / "checkpoint" / "commits").glob(f".{commits[-1].name}.*"):
        hidden.unlink()
    again = SparkSource(Countdown, options, directory=tmp_path, interval_seconds=0.05, select=["n"])
    again.start(None, {})
    until(lambda: len(lines_of(again)) >= 600)
    again.stopped()
    assert sorted(line["n"] for line in lines_of_files(again)) == list(range(600))


def lines_of_files(log: SparkSource) -> list[dict[str, Any]]:
    log.resumed({})  # reads, and runs nothing
    return lines_of(log)


def test_pruned_batches_are_gone_and_the_rest_stays(spark: SparkSession, tmp_path: Path) -> None:
    log = SparkSource(Countdown, {"count": "500"}, directory=tmp_path, interval_seconds=0.05, select=["n"])
    log.start(None, {})
    until(lambda: len(lines_of(log)) == 500)
    log.stopped()
    log.resumed({})
    (partition,) = log.partitions({})
    middle = log.cut("p0", 0, partition.latest // 2)
    rest = read_all(log, Span("p0", middle, partition.latest))
    log.prune({"p0": middle})
    (now,) = log.partitions({"p0": middle})
    assert 0 < now.earliest <= middle
    assert read_all(log, Span("p0", middle, partition.latest)) == rest
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(log, Span("p0", 0, middle))


def test_an_unknown_source_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    log = SparkSource("nowhere", directory=tmp_path)
    log.start(None, {})
    with pytest.raises(ExternalError, match=r"LOG_UNREADABLE.*nowhere"):
        log.partitions({})
    with pytest.raises(UserError, match="BAD_OPTION"):
        SparkSource("rate", directory=tmp_path, select="value")


def test_a_query_over_a_python_source(spark: SparkSession, tmp_path: Path) -> None:
    """The job reads everything that the source has now, once; timestamps and newlines are kept."""
    log = ps.spark_source(Countdown, {"count": "100"}, directory=tmp_path / "log", available_now=True)
    rows = ps.stream(
        "rows",
        log,
        ps.json_lines({"n": ps.Int64, "at": ps.Datetime("us", "UTC"), "text": ps.String}),
        time="at",
    )
    app = ps.app("test", ps.output("out", rows, ps.jsonl(tmp_path / "out")))
    Engine(app, Settings(state=tmp_path / "state", master="local[2]", drain=True, warm_up=False), spark).run()
    rows_written = [
        json.loads(line) for file in sorted((tmp_path / "out").glob("*.jsonl")) for line in file.open()
    ]
    assert sorted(row["n"] for row in rows_written) == list(range(100))
    assert {row["text"] for row in rows_written} == {f"a\nü {n}" for n in range(100)}
    assert {row["at"] for row in rows_written if row["n"] == 7} == {"2026-03-01T00:00:00.007000Z"}


def test_a_query_over_sparks_rate(spark: SparkSession, tmp_path: Path) -> None:
    """The source is unbounded: the job reads the numbers so far, each once, in one epoch or many."""
    log = ps.spark_source("rate", {"rowsPerSecond": "200"}, directory=tmp_path / "log", interval_seconds=0.2)
    rows = ps.stream(
        "rows",
        log,
        ps.json_lines({"value": ps.Int64, "timestamp": ps.Datetime("us", "UTC")}),
        time="timestamp",
        lateness="1m",  # rows of a micro-batch come in no order
    )
    app = ps.app("test", ps.output("out", rows.select("value"), ps.jsonl(tmp_path / "out")))
    settings = Settings(state=tmp_path / "state", master="local[2]", warm_up=False, epoch_seconds=0.3)
    for _ in range(2):
        Engine(app, settings, spark).run(for_seconds=6)
    rows_written = [
        json.loads(line)["value"] for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()
    ]
    assert len(rows_written) > 0
    assert sorted(rows_written) == list(range(len(rows_written)))


def test_a_line_may_be_an_expression(spark: SparkSession, tmp_path: Path) -> None:
    log = SparkSource(
        Countdown, {"count": "3"}, directory=tmp_path, line="concat(n, ' ', text)", available_now=True
    )
    log.start(None, {})
    until(lambda: log.partitions({})[0].finished)
    (partition,) = log.partitions({})
    assert sorted(read_all(log, whole(partition)).decode().splitlines()) == ["0 a ü 0", "1 a ü 1", "2 a ü 2"]
