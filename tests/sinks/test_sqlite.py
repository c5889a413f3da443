"""The SQLite sink: shared files, tables that do not fit, values that do not fit."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest

from penstock.errors import ExternalError, UserError
from penstock.sinks import Sqlite, sqlite

SCHEMA: dict[str, pl.DataType] = {"page": pl.String(), "visits": pl.Int64()}
ROWS = pl.DataFrame({"page": ["/a", "/b"], "visits": [3, 1]})


def opened(path: Path, table: str = "answers", job: str = "job") -> Sqlite:
    sink = sqlite(path, table)
    sink.open(job, SCHEMA)
    return sink


def ask(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(question).fetchall()


def test_two_jobs_share_a_file(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "db", "one", "a"), opened(tmp_path / "db", "two", "b")
    assert first.write(0, ROWS)
    assert second.write(0, ROWS)
    assert ask(tmp_path / "db", "SELECT * FROM one UNION ALL SELECT * FROM two") == ROWS.rows() * 2


def test_two_jobs_append_to_one_table_each_with_its_own_epochs(tmp_path: Path) -> None:
    for job in ("a", "b"):
        sink = opened(tmp_path / "db", job=job)
        assert sink.write(0, ROWS)
        assert not sink.write(0, ROWS)
    assert ask(tmp_path / "db", "SELECT count(*) FROM answers") == [(4,)]


def test_one_job_may_fill_two_tables_of_a_file(tmp_path: Path) -> None:
    for table in ("one", "two"):
        assert opened(tmp_path / "db", table).write(0, ROWS)
    assert ask(tmp_path / "db", "SELECT count(*) FROM two") == [(2,)]


def test_jobs_that_write_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    sinks = [opened(tmp_path / "db", job=f"job{number}") for number in range(4)]

    def fill(sink: Sqlite) -> None:
        for epoch in range(10):
            sink.write(epoch, ROWS)

    writers = [Thread(target=fill, args=(sink,)) for sink in sinks]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert ask(tmp_path / "db", "SELECT count(*) FROM answers") == [(4 * 10 * 2,)]


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "db")
    other = sqlite(tmp_path / "db", "answers")
    with pytest.raises(UserError) as caught:
        other.open("job", {"page": pl.String(), "visits": pl.Float64()})
    assert caught.value.condition == "SINK_SCHEMA_MISMATCH"
    assert "visits INTEGER" in str(caught.value)
    assert "visits REAL" in str(caught.value)


def test_column_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        sqlite(tmp_path / "db", "answers").open("job", {"page": pl.String(), "Page": pl.String()})
    assert caught.value.condition == "SINK_SCHEMA_MISMATCH"


def test_odd_names_are_only_names(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "db", 'select "x"; --')
    sink.open("o'job", {'a "b"': pl.Int64(), "group": pl.Int64()})
    assert sink.write(0, pl.DataFrame({'a "b"': [1], "group": [2]}))
    assert ask(tmp_path / "db", 'SELECT * FROM "select ""x""; --"') == [(1, 2)]


@pytest.mark.parametrize("table", ["", "penstock_epochs", "Penstock_Epochs", "sqlite_master"])
def test_reserved_table_names_are_refused_before_anything_happens(tmp_path: Path, table: str) -> None:
    with pytest.raises(UserError) as caught:
        sqlite(tmp_path / "db", table)
    assert caught.value.condition == "BAD_TABLE_NAME"


def test_a_number_beyond_64_bits_is_refused_and_the_epoch_stays_out(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "db", "answers")
    sink.open("job", {"key": pl.UInt64()})
    with pytest.raises(UserError) as caught:
        sink.write(0, pl.DataFrame({"key": [1, 2**64 - 1]}, schema={"key": pl.UInt64}))
    assert caught.value.condition == "SINK_VALUE_TOO_LARGE"
    assert ask(tmp_path / "db", "SELECT count(*) FROM answers") == [(0,)]
    assert sink.write(0, pl.DataFrame({"key": [1]}, schema={"key": pl.UInt64}))


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("these are not the pages of a database, but there are many of them " * 50)
    with pytest.raises(ExternalError) as caught:
        opened(tmp_path / "db")
    assert caught.value.condition == "SINK_UNWRITABLE"


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "db", "answers")
    sink.open("job", {"raw": pl.Binary()})
    sink.write(0, pl.DataFrame({"raw": [b"\x00\xff"]}))
    assert ask(tmp_path / "db", "SELECT raw FROM answers") == [(b"\x00\xff",)]


#: `sqlite` is the name of the class too
MODULE = sys.modules[Sqlite.__module__]


def ledger(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [epoch for (epoch,) in database.execute("SELECT epoch FROM penstock_epochs ORDER BY epoch")]


def test_the_ledger_does_not_grow_with_the_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_KEPT", 20)
    monkeypatch.setattr(MODULE, "_PRUNE_EVERY", 5)
    sink, rows = Sqlite(tmp_path / "out.db", "rows"), pl.DataFrame({"n": [1]})
    sink.open("job", dict(rows.schema))
    for epoch in range(0, 400, 2):
        assert sink.write(epoch, rows)
        assert len(ledger(tmp_path / "out.db")) <= 25
    assert not any(sink.write(epoch, rows) for epoch in range(0, 400, 2)), (
        "what was pruned counts as delivered"
    )
    assert sink.write(399, rows), "a gap between those that are kept is none"
    newest = sink.newest_epoch()
    assert newest is not None
    assert newest.epoch == 399


def test_the_ledger_of_a_former_version_is_pruned_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.DataFrame({"n": [1]})
    with closing(sqlite3.connect(tmp_path / "out.db")) as database, database:
        database.execute("CREATE TABLE rows (n INTEGER)")
        database.execute(
            "CREATE TABLE penstock_epochs (job TEXT NOT NULL, target TEXT NOT NULL, epoch INTEGER NOT NULL, "
            "PRIMARY KEY (job, target, epoch)) WITHOUT ROWID"
        )
        for job in ("job", "other"):
            database.executemany(
                "INSERT INTO penstock_epochs VALUES (?, 'rows', ?)", ((job, n) for n in range(5_000))
            )
    monkeypatch.setattr(MODULE, "_PRUNE_EVERY", 1)
    monkeypatch.setattr(MODULE, "_PRUNED_ROWS", 1_500)
    sink = Sqlite(tmp_path / "out.db", "rows")
    sink.open("job", dict(rows.schema))
    sizes = []
    assert not sink.write(4_999, rows)
    for epoch in range(5_000, 5_005):
        assert sink.write(epoch, rows)
        sizes.append(len(ledger(tmp_path / "out.db")) - 5_000)
    assert sizes == [3_501, 2_002, 1_000, 1_000, 1_000]
    assert not sink.write(0, rows)
