"""What the contract does not test of the PostgreSQL sink: types, keys, tables that do not fit, a server that goes
down."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import psycopg
import pytest

from penstock.catalogue.program import Program
from penstock.errors import ExternalError, UserError
from penstock.sinks import Postgres
from penstock.testing import postgres_server
from penstock.testing.inline import InlineEngine

SCHEMA: dict[str, pl.DataType] = {"page": pl.String(), "visits": pl.Int64()}
ROWS = pl.DataFrame({"page": ["/a", "/b"], "visits": [3, 1]})
Query = Callable[[str], list[Any]]


@pytest.fixture
def query(postgres_address: str) -> Query:
    def run_query(statement: str) -> list[Any]:
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return run_query


@pytest.fixture
def table(query: Query, tmp_path: Path) -> str:
    name = f"t_{abs(hash(str(tmp_path)))}"
    query(f"DROP TABLE IF EXISTS {name}")
    return name


def test_types_are_postgresqls_own(postgres_address: str, query: Query, table: str) -> None:
    rows = pl.DataFrame(
        {
            "i8": pl.Series([-128], dtype=pl.Int8),
            "u32": pl.Series([2**32 - 1], dtype=pl.UInt32),
            "u64": pl.Series([2**64 - 1], dtype=pl.UInt64),
            "f": [0.1],
            "b": [True],
            "s": ["ü 漢字 \t\\N"],
            "at": pl.Series([datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)], dtype=pl.Datetime("us", "UTC")),
            "local": [datetime(2026, 3, 1, 12)],
            "day": [date(2026, 3, 1)],
            "clock": [time(12, 30, 1)],
            "long": [timedelta(days=2, seconds=3, microseconds=4)],
            "exact": pl.Series([Decimal("12.50")], dtype=pl.Decimal(10, 2)),
            "raw": [b"\x00\xff"],
            "parts": [[1, None, 3]],
            "kind": pl.Series(["x"], dtype=pl.Categorical()),
        }
    )
    sink = Postgres(postgres_address, table, make_table=True)
    sink.open("job", dict(rows.schema))
    assert sink.write(0, rows)
    assert sink.write(1, rows.select(pl.lit(None, dtype).alias(name) for name, dtype in rows.schema.items()))
    first, second = query(f"SELECT * FROM {table} ORDER BY i8")
    stored = dict(zip(rows.columns, first, strict=True))
    assert stored == rows.to_dicts()[0] | {"u64": Decimal(2**64 - 1)}
    assert set(second) == {None}


def test_a_row_replaces_the_one_with_its_key(postgres_address: str, query: Query, table: str) -> None:
    sink = Postgres(postgres_address, table, key="page", make_table=True)
    sink.open("job", SCHEMA)
    assert sink.write(0, ROWS)
    assert sink.write(1, pl.DataFrame({"page": ["/b", None, "/b", None], "visits": [5, 7, 6, 8]}))
    assert not sink.write(1, ROWS)
    assert query(f"SELECT * FROM {table} ORDER BY page") == [("/a", 3), ("/b", 6), (None, 8)]


def test_a_key_of_all_columns(postgres_address: str, query: Query, table: str) -> None:
    sink = Postgres(postgres_address, table, key=["page", "visits"], make_table=True)
    sink.open("job", SCHEMA)
    for epoch in range(3):
        sink.write(epoch, ROWS)
    assert query(f"SELECT count(*) FROM {table}") == [(2,)]


def test_the_error_for_a_missing_table_shows_how_to_create_it(
    postgres_address: str, query: Query, table: str
) -> None:
    with pytest.raises(UserError, match="SINK_TABLE_MISSING") as caught:
        Postgres(postgres_address, table).open("job", SCHEMA)
    query(str(caught.value).partition("in SQL): ")[2])
    sink = Postgres(postgres_address, table)
    sink.open("job", SCHEMA)
    assert sink.write(0, ROWS)


def test_a_table_may_have_more_columns_and_stand_in_a_schema(
    postgres_address: str, query: Query, table: str
) -> None:
    query(f"CREATE SCHEMA IF NOT EXISTS s_{table}")
    query(f"CREATE TABLE s_{table}.sales (id serial, page text, visits bigint, at timestamptz DEFAULT now())")
    sink = Postgres(postgres_address, f"s_{table}.sales")
    sink.open("job", SCHEMA)
    assert sink.write(0, ROWS)
    assert query(f"SELECT id, page, visits FROM s_{table}.sales") == [(1, "/a", 3), (2, "/b", 1)]


def test_columns_that_do_not_fit_are_refused(postgres_address: str, table: str) -> None:
    Postgres(postgres_address, table, make_table=True).open("job", SCHEMA)
    with pytest.raises(UserError, match=r"SINK_SCHEMA_MISMATCH.*visits bigint.*visits double precision"):
        Postgres(postgres_address, table).open("job", {"page": pl.String(), "visits": pl.Float64()})
    with pytest.raises(UserError, match=r"SINK_SCHEMA_MISMATCH.*other missing"):
        Postgres(postgres_address, table).open("job", {"other": pl.String()})
    with pytest.raises(UserError, match=r"SINK_SCHEMA_MISMATCH.*user"):
        Postgres(postgres_address, table, key="user").open("job", SCHEMA)


def test_an_altered_job_may_emit_the_columns_that_the_table_has(
    postgres_address: str, query: Query, table: str
) -> None:
    sink = Postgres(postgres_address, table, make_table=True)
    sink.open("job", SCHEMA)
    with pytest.raises(UserError, match=r"SINK_SCHEMA_MISMATCH.*user missing"):
        sink.check({"page": pl.String(), "user": pl.String()})
    query(f'ALTER TABLE {table} ADD COLUMN "user" text')
    sink.check({"page": pl.String(), "user": pl.String()})
    assert sink.write(0, ROWS), "an epoch of the earlier version"
    assert sink.write(1, pl.DataFrame({"page": ["/c"], "user": ["u"]}))
    expected = [("/a", 3, None), ("/b", 1, None), ("/c", None, "u")]
    assert query(f'SELECT page, visits, "user" FROM {table}') == expected


def test_a_value_that_does_not_fit_rolls_the_epoch_back(
    postgres_address: str, query: Query, table: str
) -> None:
    sink = Postgres(postgres_address, table, make_table=True)
    sink.open("job", SCHEMA)
    with pytest.raises(UserError, match="SINK_VALUE_REFUSED"):
        sink.write(0, pl.DataFrame({"page": ["fine", "a\0b"], "visits": [1, 2]}))
    assert query(f"SELECT count(*) FROM {table}") == [(0,)]
    assert sink.write(0, ROWS)


@pytest.mark.parametrize("name", ["", "a.b.c", ".x", "penstock_epochs", "public.penstock_epochs"])
def test_invalid_table_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="BAD_TABLE_NAME"):
        Postgres("postgresql://127.0.0.1/db", name)


def test_odd_names_are_quoted(postgres_address: str, query: Query) -> None:
    query('DROP TABLE IF EXISTS "select ""x""; --"')
    sink = Postgres(postgres_address, 'select "x"; --', key='a "b"', make_table=True)
    sink.open("o'job %s", {'a "b"': pl.Int64(), "group %s": pl.Int64()})
    assert sink.write(0, pl.DataFrame({'a "b"': [1], "group %s": [2]}))
    assert query('SELECT * FROM "select ""x""; --"') == [(1, 2)]


def test_jobs_can_write_one_table_at_the_same_time(postgres_address: str, query: Query, table: str) -> None:
    def fill(job: str) -> None:
        sink = Postgres(postgres_address, table, make_table=True)
        sink.open(job, SCHEMA)
        for epoch in range(5):
            sink.write(epoch, ROWS)
        sink.close()

    writers = [Thread(target=fill, args=(f"job{number}",)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert query(f"SELECT count(*) FROM {table}") == [(4 * 5 * 2,)]


def test_a_password_is_not_in_errors_and_descriptions() -> None:
    sink = Postgres("postgresql://me:secret@127.0.0.1:1/db", "answers")
    with pytest.raises(ExternalError, match="SINK_UNWRITABLE") as caught:
        sink.open("job", SCHEMA)
    assert "secret" not in str(caught.value) + sink.describe()


@pytest.mark.process
def test_a_server_that_crashed_keeps_what_it_committed() -> None:
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    server = postgres_server.PostgresServer()
    try:
        server.start()
        sink = Postgres(server.address, "answers", make_table=True)
        sink.open("job", SCHEMA)
        assert sink.write(0, ROWS)
        server.stop()
        with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
            sink.write(1, ROWS)
        server.start()
        assert not sink.write(0, ROWS)
        assert sink.write(1, ROWS)
        with psycopg.connect(server.address) as connection:
            assert connection.execute("SELECT count(*) FROM answers").fetchone() == (4,)
    finally:
        server.remove()


def test_a_job_writes_with_an_address_that_no_file_of_its_state_has(
    postgres_address: str, query: Query, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text('{"ts": "2026-03-01T12:00:00Z", "page": "/a"}\n')
    begin = f"""
        CREATE STREAM clicks FROM files('{tmp_path}/in.jsonl', finished => TRUE)
            FORMAT json(ts TIMESTAMP, page STRING) EVENT TIME ts;
        CREATE JOB pages AS SELECT page FROM clicks
            INTO postgres(SECRET shop_db, '{table}', make_table => TRUE)
    """
    state = tmp_path / "state"
    monkeypatch.setenv("PENSTOCK_SECRET_SHOP_DB", postgres_address)
    program = Program("test", state, begin=begin)
    engine = InlineEngine(program, state)
    try:
        list(engine.steps())
        shown = program.execute("SHOW JOBS")[0].to_json()
    finally:
        engine.close()
    assert query(f"SELECT page FROM {table}") == [("/a",)]
    stored = b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())
    assert postgres_address.encode() not in stored
    assert postgres_address not in str(shown)
    assert "SECRET shop_db" in str(shown)
