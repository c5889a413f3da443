"""A sink that appends to a table of a SQLite file, which any number of jobs and readers may share.

The transaction that inserts the rows of an epoch also inserts a row into the ledger
`penstock_epochs(job, target, epoch)`, which has the newest `_KEPT` epochs of a job at least: earlier ones count as
delivered. `penstock_recent` has the digests of the newest (see `recent_epochs`), `penstock_generations` the generation
whose rows are accepted.

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
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.portable import to_portable
from penstock.sinks.recent_epochs import add_epoch, check_same, digest_in
from penstock.state.generation import fenced_error

_LEDGER = "penstock_epochs"
_GENERATIONS = "penstock_generations"
_RECENT = "penstock_recent"
#: so many epochs of a job stay in the ledger. It is pruned each time that so many epochs were written, and of so many
#: rows at a time: former versions have kept all
_KEPT = 1_000
_PRUNE_EVERY = 100
_PRUNED_ROWS = 10_000
#: result codes that pass: the disk or the file system, no room, and locks of others
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_WAIT_SECONDS = 30.0  # for another job's transaction


class Sqlite(Sink):
    """Rows in a table: lists and structs as JSON text, times as ISO text in UTC, booleans as 0 and 1."""

    def __init__(self, path: str | os.PathLike[str], table: str) -> None:
        if (
            not table
            or table.lower() in (_LEDGER, _GENERATIONS, _RECENT)
            or table.lower().startswith("sqlite_")
        ):
            raise UserError(
                "BAD_TABLE_NAME", f"{table!r} cannot be a sink's table", hint="Choose another table name."
            )
        self.path = Path(path)
        self.table = table
        self._job = ""
        self._generation = 0
        self._columns: dict[str, str] = {}
        self._written = 0
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
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_RECENT} (job TEXT NOT NULL, target TEXT NOT NULL, "
                    "epochs TEXT NOT NULL, PRIMARY KEY (job, target)) WITHOUT ROWID"
                )
                self._make_table(database)

    def newest_epoch(self) -> SinkEpoch | None:
        """The newest epoch in the ledger."""
        database = self._get_database()
        with self._translate_errors():
            (newest,) = database.execute(
                f"SELECT max(epoch) FROM {_LEDGER} WHERE job = ? AND target = ?", self._key
            ).fetchone()
            if newest is None:
                return None
            digest = digest_in(self._read_recent(database), newest)
            return SinkEpoch(newest, digest, self._newest_generation(database))

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
                (*self._key, generation),
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
            recent = self._read_recent(database)
            check_same(self.describe(), recent, epoch, self._digest)
            if epoch <= self._pruned_through(database):
                return False
            taken = database.execute(f"INSERT OR IGNORE INTO {_LEDGER} VALUES (?, ?, ?)", (*self._key, epoch))
            if taken.rowcount == 0:
                return False
            if self._digest:
                database.execute(
                    f"INSERT OR REPLACE INTO {_RECENT} VALUES (?, ?, ?)",
                    (*self._key, add_epoch(recent, epoch, self._digest)),
                )
            database.executemany(insert, lines)
            if self._written % _PRUNE_EVERY == 0:
                self._prune(database)
        self._written += 1
        return True

    @property
    def _key(self) -> tuple[str, str]:
        """What names the rows of the job in the ledger."""
        return self._job, self.table.lower()

    def _read_recent(self, database: sqlite3.Connection) -> str:
        found = database.execute(
            f"SELECT epochs FROM {_RECENT} WHERE job = ? AND target = ?", self._key
        ).fetchone()
        return "" if found is None else str(found[0])

    def _pruned_through(self, database: sqlite3.Connection) -> int:
        """The epoch up to which the ledger may be pruned: those before its newest `_KEPT`; -1 if it has fewer."""
        found = database.execute(
            f"SELECT epoch FROM {_LEDGER} WHERE job = ? AND target = ? ORDER BY epoch DESC LIMIT 1 OFFSET ?",
            (*self._key, _KEPT - 1),
        ).fetchone()
        return -1 if found is None else int(found[0]) - 1

    def _prune(self, database: sqlite3.Connection) -> None:
        """Remove rows that count as delivered without it."""
        database.execute(
            f"DELETE FROM {_LEDGER} WHERE job = ? AND target = ? AND epoch IN (SELECT epoch FROM {_LEDGER} "
            "WHERE job = ? AND target = ? AND epoch <= ? ORDER BY epoch LIMIT ?)",
            (*self._key, *self._key, self._pruned_through(database), _PRUNED_ROWS),
        )

    def _get_database(self) -> sqlite3.Connection:
        if self._database is None:
            raise InternalError("SINK_NOT_OPEN", f"{self.describe()} was written to before it was opened")
        return self._database

    def _newest_generation(self, database: sqlite3.Connection) -> int:
        found = database.execute(
            f"SELECT generation FROM {_GENERATIONS} WHERE job = ? AND target = ?", self._key
        ).fetchone()
        return 0 if found is None else int(found[0])

    def _check_generation(self, database: sqlite3.Connection, mine: int) -> None:
        newest = self._newest_generation(database)
        if mine and newest > mine:
            raise fenced_error(self.path, mine, newest)

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
                hint="Check space, permissions and that the file is a SQLite database. The rows wait for that; RESUME "
                "the job if it has failed.",
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
