"""What is away outside stops no engine: it waits, shows that, continues later, and can be stopped meanwhile."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.engine.status import set_engine
from penstock.engine.status_server import status
from penstock.errors import PenstockError
from penstock.metrics import Registry, expose
from penstock.query.logical import App
from penstock.settings import INLINE, Settings
from penstock.testing import postgres_server
from penstock.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.process, pytest.mark.slow]
_DEADLINE = 90.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def app(folder: Path, address: str) -> App:
    rows = ps.stream(
        "rows",
        ps.files(str(folder / "in.jsonl")),
        ps.json_lines({"at": ps.Datetime("us", "UTC"), "row": ps.Int64}),
        time="at",
    )
    return ps.app("away", ps.output("out", rows.select("row"), ps.postgres(address, "rows", make_table=True)))


def append(folder: Path, first: int, last: int) -> None:
    with (folder / "in.jsonl").open("a") as log:
        for n in range(first, last):
            log.write(f'{{"at": "2026-03-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "row": {n}}}\n')


def wait_until(is_reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not is_reached():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def rows_in(server: PostgresServer) -> list[int]:
    with contextlib.suppress(psycopg.Error), psycopg.connect(server.address) as connection:
        return [n for (n,) in connection.execute("SELECT row FROM rows ORDER BY row").fetchall()]
    return []


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[list[BaseException]]:
    """Run an engine in a thread; whatever it raises is in the list that is returned."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        engine.stop()
        thread.join(_DEADLINE)
        assert not thread.is_alive(), "the engine does not stop"


def settings_of(folder: Path, master: str = INLINE) -> Settings:
    return replace(Settings(state=folder / "state", master=master, drain=False), epoch_interval_seconds=0.05)


def restart_under(engine: Engine, server: PostgresServer, folder: Path) -> None:
    """Stop the server under a running engine, let it notice, start the server: each row is there once."""
    with running(engine) as failures:
        wait_until(lambda: len(rows_in(server)) == 50 or bool(failures), "the rows before the outage")
        server.stop()
        append(folder, 50, 90)
        wait_until(lambda: engine.outage is not None or bool(failures), "the outage in the status")
        assert not failures, failures
        wait_until(lambda: engine.retry_count >= 3, "some attempts")
        shown = status(engine, None)
        (lag,) = shown.deliveries
        assert "SINK_UNWRITABLE" in lag.error
        assert lag.seconds > 0
        assert lag.failures > 0
        registry = Registry()
        set_engine(registry, shown)
        assert f"penstock_external_retries_total {shown.retries}" in expose(registry)
        server.start()
        wait_until(lambda: len(rows_in(server)) >= 90 or bool(failures), "the rows after the outage")
        wait_until(lambda: engine.outage is None, "the end of the outage in the status")
        append(folder, 90, 100)
        wait_until(lambda: len(rows_in(server)) >= 100, "later rows")
    assert not failures
    assert rows_in(server) == list(range(100))


def test_a_database_that_restarts_stops_no_engine(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path, 0, 50)
    with caplog.at_level(logging.WARNING, "penstock"):
        restart_under(Engine(app(tmp_path, server.address), settings_of(tmp_path)), server, tmp_path)
    lines = [record.message for record in caplog.records if "deliver out" in record.message]
    assert len(lines) == 2, "the start and the end of the outage, not each attempt"


@pytest.mark.spark
def test_a_database_that_restarts_stops_no_engine_on_spark(
    server: PostgresServer, tmp_path: Path, spark: SparkSession
) -> None:
    append(tmp_path, 0, 50)
    engine = Engine(app(tmp_path, server.address), settings_of(tmp_path, "local[2]"), spark)
    restart_under(engine, server, tmp_path)


def test_an_engine_starts_while_its_sink_is_away(server: PostgresServer, tmp_path: Path) -> None:
    append(tmp_path, 0, 50)
    server.stop()
    engine = Engine(app(tmp_path, server.address), settings_of(tmp_path))
    with running(engine) as failures:
        wait_until(lambda: engine.retry_count >= 2 or bool(failures), "some attempts")
        assert not failures, failures
        server.start()
        wait_until(lambda: len(rows_in(server)) >= 50 or bool(failures), "the rows")
    assert not failures
    assert rows_in(server) == list(range(50))


def test_an_engine_that_waits_stops_at_once_and_continues_later(
    server: PostgresServer, tmp_path: Path
) -> None:
    append(tmp_path, 0, 50)
    engine = Engine(app(tmp_path, server.address), settings_of(tmp_path))
    with running(engine) as failures:
        wait_until(lambda: len(rows_in(server)) == 50, "the rows before the outage")
        server.stop()
        append(tmp_path, 50, 90)
        wait_until(lambda: engine.retry_count >= 7, "a pause of seconds")
        started = time.monotonic()
        engine.stop()
    assert time.monotonic() - started < 30
    assert not failures
    server.start()
    engine = Engine(app(tmp_path, server.address), settings_of(tmp_path))
    with running(engine):
        wait_until(lambda: len(rows_in(server)) >= 90, "the rows after the outage")
    assert rows_in(server) == list(range(90))


def test_an_error_that_does_not_pass_ends_the_engine(server: PostgresServer, tmp_path: Path) -> None:
    append(tmp_path, 0, 50)
    engine = Engine(app(tmp_path, server.address), settings_of(tmp_path))
    with running(engine) as failures:
        wait_until(lambda: len(rows_in(server)) == 50, "the rows before")
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("DROP TABLE rows")
        append(tmp_path, 50, 90)
        wait_until(lambda: bool(failures), "the error")
    assert isinstance(failures[0], PenstockError)
    assert failures[0].condition == "SINK_UNWRITABLE"
    assert engine.retry_count == 0


SQL = """
CREATE STREAM rows FROM files('{folder}/in.jsonl') FORMAT json(at TIMESTAMP, row BIGINT) EVENT TIME at;
CREATE JOB dead AS SELECT row FROM rows INTO postgres('{address}', 'rows', make_table => TRUE);
CREATE JOB alive AS SELECT row FROM rows INTO jsonl('{folder}/alive')
"""


def rows_alive(folder: Path) -> list[int]:
    lines = [
        line for path in sorted((folder / "alive").glob("epoch-*")) for line in path.read_text().splitlines()
    ]
    return [json.loads(line)["row"] for line in lines]


def test_dropping_the_job_whose_sink_is_away_lets_the_others_continue(
    server: PostgresServer, tmp_path: Path
) -> None:
    append(tmp_path, 0, 50)
    program = Program("jobs", tmp_path / "state", begin=SQL.format(folder=tmp_path, address=server.address))
    engine = Engine(program, settings_of(tmp_path))
    with running(engine) as failures:
        wait_until(lambda: len(rows_alive(tmp_path)) == 50 or bool(failures), "the rows before the outage")
        server.stop()
        append(tmp_path, 50, 90)
        wait_until(lambda: engine.retry_count >= 2 or bool(failures), "the outage")
        program.execute("DROP JOB dead")
        wait_until(lambda: len(rows_alive(tmp_path)) == 90 or bool(failures), "the rows of the other job")
        append(tmp_path, 90, 100)
        wait_until(lambda: len(rows_alive(tmp_path)) == 100 or bool(failures), "further epochs")
        assert engine.outage is None
    assert not failures
    assert rows_alive(tmp_path) == list(range(100))


def test_dropped_jobs_leave_no_connection(server: PostgresServer, tmp_path: Path) -> None:
    append(tmp_path, 0, 5)
    program = Program("jobs", tmp_path / "state", begin=SQL.format(folder=tmp_path, address=server.address))
    engine = Engine(program, settings_of(tmp_path))

    def count_connections() -> int:
        with psycopg.connect(server.address) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'penstock %'"
            ).fetchone()
        assert found is not None
        return int(found[0])

    with running(engine) as failures:
        wait_until(lambda: engine.last_epoch >= 0 or bool(failures), "the first epoch")
        for number in range(100):
            into = f"postgres('{server.address}', 't{number % 7}', make_table => TRUE)"
            program.execute(f"CREATE JOB j{number} AS SELECT row FROM rows WHERE row > {number} INTO {into}")
            program.execute(f"DROP JOB j{number}")
        append(tmp_path, 5, 9)
        wait_until(
            lambda: count_connections() <= 1 or bool(failures), "the connections of dropped jobs to close"
        )
    assert not failures
