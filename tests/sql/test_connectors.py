"""CREATE STREAM and INTO build the objects of the Python API, or fail with the position of the error."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.query import logical
from penstock.sinks import Console, JsonLines, Parquet, Sqlite
from penstock.sql.connectors import build_sinks, build_stream
from penstock.sql.parse import parse
from penstock.sql.statements import CreateJob, CreateStream
from tests.sql.harness import TIME, Names, run


def stream_of(text: str) -> ps.Stream:
    (statement,) = parse(text)
    assert isinstance(statement, CreateStream)
    return build_stream(statement)


def definition(text: str) -> logical.StreamDefinition:
    node = stream_of(text).node
    assert isinstance(node, logical.Source)
    return node.stream


def sinks_of(text: str) -> tuple[object, ...]:
    (statement,) = parse(f"CREATE JOB a AS SELECT b FROM c INTO {text}")
    assert isinstance(statement, CreateJob)
    return build_sinks(statement.sinks)


def test_a_json_stream_can_have_columns_of_all_types() -> None:
    stream = stream_of(
        """CREATE STREAM s FROM files('x/*') FORMAT json(
            a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(10, 2), h BOOLEAN, i STRING,
            j DATE, ts TIMESTAMP, k TIMESTAMP_NTZ, l ARRAY<BIGINT>, m STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>,
            `order` VARCHAR(5)) EVENT TIME ts"""
    )
    assert stream.node.schema == {
        "a": pl.Int8,
        "b": pl.Int16,
        "c": pl.Int32,
        "d": pl.Int64,
        "e": pl.Float32,
        "f": pl.Float64,
        "g": pl.Decimal(10, 2),
        "h": pl.Boolean,
        "i": pl.String,
        "j": pl.Date,
        "ts": TIME,
        "k": pl.Datetime("us"),
        "l": pl.List(pl.Int64),
        "m": pl.Struct({"x": pl.Int32, "y": pl.List(pl.Struct({"z": pl.String}))}),
        "order": pl.String,
    }


def test_a_stream_has_a_lateness_and_an_idle_time() -> None:
    head = "CREATE STREAM s FROM files('x') FORMAT combined_log EVENT TIME time"
    plain, full = definition(head), definition(f"{head} LATENESS 5 SECONDS IDLE AFTER 1 MINUTE")
    assert (plain.lateness, plain.idle_after) == (0, 5_000_000)
    assert (full.lateness, full.idle_after, full.time) == (5_000_000, 60_000_000, "time")


def test_csv_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at;n\n17.05.2015 10:00;1\n17.05.2015 10:01;2\n")
    stream = stream_of(
        f"CREATE STREAM s FROM files('{tmp_path}/*.csv', finished => TRUE) "
        "FORMAT csv(at TIMESTAMP FORMAT '%d.%m.%Y %H:%M', n INT, separator => ';', header => TRUE) EVENT TIME at"
    )
    scope = Names({"s": stream})
    assert run("SELECT SUM(n) AS n FROM s WINDOWING 1 HOUR", scope) == [{"n": 3}]


def test_what_happens_to_files_that_were_rewritten_is_an_option(tmp_path: Path) -> None:
    def declare(on_rewrite: str) -> ps.Stream:
        files = f"files('{tmp_path}/*.csv', on_rewrite => '{on_rewrite}')"
        return stream_of(f"CREATE STREAM s FROM {files} FORMAT csv(at TIMESTAMP, n INT) EVENT TIME at")

    declare("skip")
    with pytest.raises(UserError) as refused:
        declare("guess")
    assert "'error', 'read' or 'skip'" in str(refused.value)


def test_generated_logs_are_read() -> None:
    clicks = stream_of(
        "CREATE STREAM c FROM generated(total => 500, live => FALSE, rate => 100, start_time => '2026-01-01') "
        "FORMAT combined_log(cookie => 'session') EVENT TIME time"
    )
    calls = stream_of(
        "CREATE STREAM d FROM call_records(total => 300, live => FALSE) FORMAT call_lines EVENT TIME ts"
    )
    scope = Names({"clicks": clicks, "calls": calls})
    assert run("SELECT COUNT(*) AS n FROM clicks WINDOWING 1 DAY", scope)[0]["n"] == 500
    assert "session" in clicks.columns
    assert sum(row["n"] for row in run("SELECT COUNT(*) AS n FROM calls WINDOWING 1 DAY", scope)) <= 300


def test_into_builds_sinks(tmp_path: Path) -> None:
    built = sinks_of(
        f"jsonl('{tmp_path}/a'), parquet('b'), sqlite('c.db', 'd'), console(most_rows => 5), console"
    )
    assert [type(sink) for sink in built] == [JsonLines, Parquet, Sqlite, Console, Console]


def test_the_console_takes_options_only() -> None:
    with pytest.raises(UserError, match="options only"):
        sinks_of("console('x')")


@pytest.mark.parametrize(
    ("text", "condition", "column", "hint"),
    [
        ("FROM file('x') FORMAT combined_log", "UNKNOWN_LOG", 22, "'files'"),
        ("FROM files('x', finshed => TRUE) FORMAT combined_log", "UNKNOWN_OPTION", 22, "'finished'"),
        ("FROM files() FORMAT combined_log", "BAD_SQL", 22, "glob"),
        ("FROM generated(5) FORMAT combined_log", "BAD_SQL", 22, "options only"),
        ("FROM generated(rate => 'x') FORMAT combined_log", "BAD_ARGUMENT", 22, None),
        ("FROM generated(clock => 'x') FORMAT combined_log", "UNKNOWN_OPTION", 22, None),
        ("FROM files('x') FORMAT jsn(a INT)", "UNKNOWN_FORMAT", 40, "'json'"),
        ("FROM files('x') FORMAT json", "BAD_SQL", 40, "TIMESTAMP"),
        ("FROM files('x') FORMAT json(a)", "BAD_SQL", 40, "BIGINT"),
        ("FROM files('x') FORMAT json(a BIGNT)", "BAD_SQL", 40, "BIGINT"),
        ("FROM files('x') FORMAT json(a MAP<STRING, INT>)", "UNKNOWN_TYPE", 40, "ARRAY"),
        ("FROM files('x') FORMAT json(a INT, a INT)", "NAME_TAKEN", 40, None),
        ("FROM files('x') FORMAT json(select INT)", "BAD_SQL", 40, "`select`"),
        ("FROM files('x') FORMAT csv(a INT, seperator => ';')", "UNKNOWN_OPTION", 40, "'separator'"),
        ("FROM files('x') FORMAT combined_log(a INT)", "BAD_SQL", 40, "Leave them out"),
        ("FROM files('x') FORMAT json(a INT) EVENT TIME b", "UNKNOWN_COLUMN", 40, None),
        ("FROM files('x') FORMAT json(a INT) EVENT TIME a", "TYPE_MISMATCH", 40, None),
        ("FROM files('x') FORMAT json(a INT 'iso')", "BAD_TIME_FORMAT", 40, None),
    ],
)
def test_an_invalid_stream_is_refused_with_its_position(
    text: str, condition: str, column: int, hint: str | None
) -> None:
    with pytest.raises(UserError) as caught:
        stream_of(f"CREATE STREAM s {text}")
    error = caught.value
    assert (error.condition, error.where) == (condition, f"line 1, column {column}")
    if hint is not None:
        assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("text", "condition", "hint"),
    [
        ("jsnl('x')", "UNKNOWN_SINK", "'jsonl'"),
        ("jsonl()", "BAD_SQL", "directory"),
        ("jsonl('a', 'b')", "BAD_SQL", "directory"),
        ("sqlite('x')", "BAD_SQL", "path, table"),
        ("jsonl('x', y => 5)", "UNKNOWN_OPTION", "compact_bytes, compact_seconds"),
        ("jsonl(5)", "BAD_ARGUMENT", None),
        ("sqlite('x', 'sqlite_x')", "BAD_TABLE_NAME", None),
    ],
)
def test_an_invalid_sink_is_refused_with_its_position(text: str, condition: str, hint: str | None) -> None:
    with pytest.raises(UserError) as caught:
        sinks_of(text)
    assert (caught.value.condition, caught.value.where) == (condition, "line 1, column 38")
    if hint is not None:
        assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (f"FROM files('x') FORMAT json(a {'ARRAY<' * 500}INT{'>' * 500})", "QUERY_TOO_DEEP"),
        (f"FROM files('x') FORMAT json(a {'STRUCT<b: ' * 200}INT{'>' * 200})", "QUERY_TOO_DEEP"),
        ("FROM generated(start_time => 5) FORMAT combined_log EVENT TIME time", "BAD_ARGUMENT"),
        ("FROM generated(start_time => 'soon') FORMAT combined_log EVENT TIME time", "BAD_ARGUMENT"),
        ("FROM generated(start_time => '9999-12-31') FORMAT combined_log EVENT TIME time", "BAD_ARGUMENT"),
        ("FROM generated(start_time => '0001-01-01T00:00+14:00') FORMAT combined_log", "BAD_ARGUMENT"),
        ("FROM generated(live => 'no') FORMAT combined_log EVENT TIME time", "BAD_ARGUMENT"),
        ("FROM files('x', finished => 1) FORMAT combined_log EVENT TIME time", "BAD_ARGUMENT"),
    ],
)
def test_a_stream_that_could_not_be_read_is_refused(text: str, condition: str) -> None:
    with pytest.raises(UserError) as caught:
        stream_of(f"CREATE STREAM s {text}")
    assert caught.value.condition == condition


def test_types_may_be_in_one_another() -> None:
    dtype = f"{'ARRAY<' * 20}STRUCT<a: INT, b: ARRAY<INT>>{'>' * 20}"
    assert stream_of(f"CREATE STREAM s FROM files('x') FORMAT json(a {dtype})").columns[0] == "a"


def test_generated_events_start_when_it_is_declared() -> None:
    for time in ("2026-03-01T12:00:00", "2026-03-01T13:00:00+01:00"):
        log = f"generated(start_time => '{time}')"
        stream = stream_of(f"CREATE STREAM s FROM {log} FORMAT combined_log EVENT TIME time")
        assert stream.node.stream.log._origin_micros == 1_772_366_400_000_000
