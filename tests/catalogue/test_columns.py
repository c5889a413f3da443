"""Jobs that are altered to emit other columns: how their sinks handle it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.errors import PenstockError
from penstock.sinks.files import JsonLines
from penstock.testing.list_log import ListLog
from tests.catalogue import kit
from tests.catalogue.kit import append_events


def columns(file: Path) -> set[str]:
    """The columns of an epoch's file, which all of its rows have."""
    if file.suffix == ".parquet":
        return set(pl.read_parquet(file).columns)
    column_sets = {frozenset(json.loads(line)) for line in file.read_text().splitlines()}
    assert len(column_sets) == 1
    return set(column_sets.pop())


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("before", "after"), [("page, status, bytes", "page, status"), ("page, status", "page, status, user")]
)
def test_files_have_the_columns_of_their_epochs(tmp_path: Path, form: str, before: str, after: str) -> None:
    log, events = ListLog({"p0": []}, finished=False), kit.events(60)
    out = tmp_path / "out"
    sql = f"CREATE JOB some AS SELECT {before} FROM clicks INTO {form}('{out}')"
    with kit.running(tmp_path / "state", kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:20])
        list(engine.steps())
        jobs.execute(f"ALTER JOB some AS SELECT {after} FROM clicks")
        append_events(log, events[20:])
        list(engine.steps())
    first, *_, last = sorted(out.glob(f"epoch-*.{form}"))
    assert columns(first) == set(before.split(", "))
    assert columns(last) == set(after.split(", "))


def test_a_repeated_epoch_keeps_the_columns_from_before_the_alter(tmp_path: Path) -> None:
    log, events = ListLog({"p0": []}, finished=False), kit.events(60)
    out, stream = tmp_path / "out", kit.of_log(log)
    sql = f"CREATE JOB some AS SELECT page, bytes FROM clicks INTO jsonl('{out}')"
    append_events(log, events[:20])
    with (
        kit.running(tmp_path / "state", stream, sql) as (_, engine),
        kit.killed_at("gathered", 0),
        pytest.raises(kit.Killed),
    ):
        list(engine.steps())
    assert not list(out.glob("epoch-*"))
    # altered before the engine recovers: the recorded epoch has the query from before
    sql = sql.replace("page, bytes", "page, user")
    with kit.running(tmp_path / "state", stream, sql) as (_, engine):
        append_events(log, events[20:])
        list(engine.steps())
    first, *_, last = sorted(out.glob("epoch-*"))
    assert columns(first) == {"page", "bytes"}
    assert columns(last) == {"page", "user"}
    assert set(JsonLines(out).read().columns) == {"_epoch", "page", "bytes", "user"}


def test_an_alter_is_refused_if_the_table_of_the_sink_lacks_the_columns(tmp_path: Path) -> None:
    log, events = ListLog({"p0": []}, finished=False), kit.events(60)
    sql = (
        f"CREATE JOB some AS SELECT page, status FROM clicks INTO sqlite('{tmp_path / 'db'}', 'some');"
        "CREATE JOB all_of AS SELECT * FROM some"
    )
    with kit.running(tmp_path / "state", kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:20])
        list(engine.steps())
        before = jobs.commands
        with pytest.raises(PenstockError, match="user") as caught:
            jobs.execute("ALTER JOB some AS SELECT page, user FROM clicks")
        assert caught.value.condition == "SINK_SCHEMA_MISMATCH"
        assert "another table" in str(caught.value.hint)
        assert jobs.commands == before
        jobs.execute("ALTER JOB some AS SELECT status, page FROM clicks WHERE status = 200")
        append_events(log, events[20:])
        list(engine.steps())
    expected = [e["status"] for e in events[:20]] + [e["status"] for e in events[20:] if e["status"] == 200]
    with sqlite3.connect(tmp_path / "db") as database:
        assert [row[0] for row in database.execute("SELECT status FROM some")] == expected


def test_an_alter_is_refused_if_the_sink_of_a_reader_lacks_the_columns(tmp_path: Path) -> None:
    sql = (
        "CREATE JOB some AS SELECT page, status FROM clicks;"
        f"CREATE JOB kept AS SELECT * FROM some INTO sqlite('{tmp_path / 'db'}', 'kept')"
    )
    log: Any = ListLog({"p0": []}, finished=False)
    with kit.running(tmp_path / "state", kit.of_log(log), sql) as (jobs, engine):
        append_events(log, kit.events(5))
        list(engine.steps())
        with pytest.raises(PenstockError, match="SINK_SCHEMA_MISMATCH"):
            jobs.execute("ALTER JOB some AS SELECT page FROM clicks")
