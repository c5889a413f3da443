"""A sink that appends to a table of a SQLite file, which any number of jobs and readers may share.

The transaction that inserts the rows of an epoch also inserts a row into the ledger
`penstock_epochs(job, target, epoch)`. `penstock_generations` has the generation whose rows are accepted.

Guarantees: rows and ledger are committed together and synced, so an epoch is in the table once, whole; and only if no
higher generation has taken over, which the same transaction checks.
Does not guarantee: an order when several jobs write one table; that others can write while an engine is paused during
its commit, which holds SQLite's lock.
On failure: `ExternalError` SINK_UNWRITABLE and the transaction is rolled back; `UserError` when the table,
or a value, does not fit.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from penstock.errors import ExternalError, InternalError, UserError, is_transient
from penstock.sinks.contract import Sink
from penstock.sinks.portable import to_portable
from penstock.state.generation import fenced_error

_LEDGER = "penstock_epochs"
_GENERATIONS = "penstock_generations"
#: result codes that pass: the disk or the file system, no room, and locks of others
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_WAIT_SECONDS = 30.0  # for another job's transaction


class Sqlite(Sink):
    """Rows in a table: lists and structs as JSON text, times as ISO text in UTC, booleans as 0 and 1."""

    def __init__(self, path: str | os.PathLike[str], table: str) -> None:
        if not table or table.lower() in (_LEDGER, _GENERATIONS) or table.lower().startswith("sqlite_"):
            raise UserError(
                "BAD_TABLE_NAME", f"{table!r} cannot be a sink's table", hint="Choose another table name."
            )
        self.path = Path(path)
        self.table = table
        self._job = ""
        self._generation = 0
        self._columns: dict[str, str] = {}
        self._database: sqlite3.Connection | None = None

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Connect, create ledger and table, and check that an existing table has the job's columns."""
        self.close()
        self._job, self._generation = job, 0
        self._columns = {name: _sql_type(dtype) for name, dtype in schema.items()}
        with self._translate_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # `write` comes from another thread than `open`, never at the same time
            database = sqlite3.connect(
                self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._database = database
            # readers do not wait for the writer; a commit is on disk before it is reported
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            with self._transaction():
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_LEDGER} (job TEXT NOT NULL, target TEXT NOT NULL, "
                    "epoch INTEGER NOT NULL, PRIMARY KEY (job, target, epoch)) WITHOUT ROWID"
                )
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_GENERATIONS} (job TEXT NOT NULL, target TEXT NOT NULL, "
                    "generation INTEGER NOT NULL, PRIMARY KEY (job, target)) WITHOUT ROWID"
                )
                self._make_table(database)

    def check(self, schema: dict[str, pl.DataType]) -> None:
        """Check that the columns are the same: those of a table cannot change."""
        given = {name: _sql_type(dtype) for name, dtype in schema.items()}
        if given != self._columns:
            raise self._mismatch(
                f"The table has {_list_columns(self._columns)}; the altered job gives {_list_columns(given)}",
                "Create another job that writes into another table; this one must keep its columns and types.",
            )

    def take_over(self, generation: int) -> None:
        """Write the generation, which every later transaction checks."""
        if generation == self._generation:
            return
        database = self._get_database()
        with self._translate_errors(), self._transaction():
            self._check_generation(database, generation)
            database.execute(
                f"INSERT OR REPLACE INTO {_GENERATIONS} VALUES (?, ?, ?)",
                (self._job, self.table.lower(), generation),
            )
        self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Append the rows and the row of the ledger in one transaction. An epoch without rows leaves neither."""
        database = self._get_database()
        if rows.is_empty():
            return True
        places = ", ".join("?" for _ in self._columns)
        insert = f"INSERT INTO {_name(self.table)} ({', '.join(map(_name, self._columns))}) VALUES ({places})"
        lines = _lines(rows.select(list(self._columns)))
        with self._translate_errors(), self._transaction():
            self._check_generation(database, self._generation)
            taken = database.execute(
                f"INSERT OR IGNORE INTO {_LEDGER} VALUES (?, ?, ?)", (self._job, self.table.lower(), epoch)
            )
            if taken.rowcount == 0:
                return False
            database.executemany(insert, lines)
        return True

    def _get_database(self) -> sqlite3.Connection:
        if self._database is None:
            raise InternalError("SINK_NOT_OPEN", f"{self.describe()} was written to before it was opened")
        return self._database

    def _check_generation(self, database: sqlite3.Connection, mine: int) -> None:
        found = database.execute(
            f"SELECT generation FROM {_GENERATIONS} WHERE job = ? AND target = ?",
            (self._job, self.table.lower()),
        ).fetchone()
        if mine and found is not None and found[0] > mine:
            raise fenced_error(self.path, mine, found[0])

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def describe(self) -> str:
        return f"table {self.table} in {self.path}"

    def _make_table(self, database: sqlite3.Connection) -> None:
        found = {
            name: kind for _, name, kind, *_ in database.execute(f"PRAGMA table_info({_name(self.table)})")
        }
        if not found:
            columns = ", ".join(f"{_name(name)} {kind}" for name, kind in self._columns.items())
            try:
                database.execute(f"CREATE TABLE {_name(self.table)} ({columns})")
            except sqlite3.OperationalError as problem:
                if "duplicate column" not in str(problem):
                    raise
                raise self._mismatch(
                    "SQLite does not distinguish upper and lower case in column names"
                ) from problem
        elif found != self._columns:
            raise self._mismatch(
                f"The table has {_list_columns(found)}; the job gives {_list_columns(self._columns)}"
            )

    def _mismatch(self, detail: str, hint: str | None = None) -> UserError:
        return UserError(
            "SINK_SCHEMA_MISMATCH",
            f"{self.describe()} cannot take the job's columns",
            detail=f"{detail}.",
            hint=hint or "Name another table, drop this one, or rename the job's columns.",
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction that takes the write lock at the start, so that waiting happens before any work."""
        assert self._database is not None
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise Penstock's errors for those of SQLite and the file system."""
        try:
            yield
        except OverflowError as problem:
            raise UserError(
                "SINK_VALUE_TOO_LARGE",
                f"a whole number does not fit into {self.describe()}",
                detail="SQLite holds signed 64-bit integers.",
                hint="Cast the column to text in the query.",
            ) from problem
        except (sqlite3.Error, OSError) as problem:
            raise ExternalError(
                "SINK_UNWRITABLE",
                f"could not write to {self.describe()}",
                detail=f"{problem}.",
                hint="Check space, permissions and that the file is a SQLite database, then start again: "
                "nothing of the epoch is visible.",
                is_transient=is_transient(problem) or _primary_code(problem) in _PASSING,
            ) from problem


def _primary_code(problem: Exception) -> int:
    """The primary result code of SQLite."""
    return int(getattr(problem, "sqlite_errorcode", 0)) & 0xFF


def _sql_type(dtype: pl.DataType) -> str:
    if dtype.is_integer() or dtype == pl.Boolean:
        return "INTEGER"
    if dtype.is_float() or dtype == pl.Duration:
        return "REAL"
    return "BLOB" if dtype == pl.Binary else "TEXT"


def _lines(rows: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    plain = to_portable(rows, keep_bytes=True)
    nested = {at for at, dtype in enumerate(plain.dtypes) if dtype.is_nested()}
    if not nested:
        return plain.iter_rows()
    return (
        tuple(
            json.dumps(value, ensure_ascii=False) if at in nested and value is not None else value
            for at, value in enumerate(row)
        )
        for row in plain.iter_rows()
    )


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _list_columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
