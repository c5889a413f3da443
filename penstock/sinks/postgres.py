"""A sink that writes to a table of PostgreSQL: every row, or by key the latest one.

The transaction that writes the rows of an epoch also updates the job's row in the ledger
`penstock_epochs(job, target, epoch, generation)`, and its row of `penstock_recent`, which has the digests of the newest
epochs (see `recent_epochs`). Both are in the first schema of the search path.

Guarantees: rows and ledger are committed together, so an epoch is in the table once, whole. A transaction first locks
the job's row of the ledger, so of two engines that both believe they may write, the lower generation is refused.
A writer that stops in mid-transaction, or whose host is gone, blocks nobody for long: whoever takes over ends the
sessions of lower generations, and locks, idle transactions and silent connections have time limits (`_LIMITS`).
Does not guarantee: more than the server does (`synchronous_commit = off` may lose what it has acknowledged).
On failure: `ExternalError` SINK_UNWRITABLE, and the epoch is there whole or not at all, which the ledger shows when it
is delivered again; `UserError` when the table, or a value, does not fit.

Times keep their microseconds (PostgreSQL has no finer ones); lists and structs are `jsonb`, with times in them as text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.errors import ExternalError, UserError
from penstock.extras import extra
from penstock.secret_store import redact, reveal
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.portable import to_portable
from penstock.sinks.recent_epochs import add_epoch, check_same, digest_in
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    import psycopg

_LEDGER = "penstock_epochs"
_RECENT = "penstock_recent"
#: connection parameters of libpq, where the address has none: notice a server that is gone within half a minute
_CONNECTION: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
#: settings of the session, where neither the address nor the role has them: the server drops the locks of a writer that
#: is stopped or gone, and waits for no lock for ever
_LIMITS: Mapping[str, str] = {
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
    "client_connection_check_interval": "10s",
}
#: rows are copied in statements of so many bytes, each with a time limit: a COPY is not idle to the server while it
#: waits for a writer that has stopped. The limit holds for nothing else, least of all for COMMIT.
_COPY_BYTES = 4_000_000
_COPY_TIMEOUT = "60s"
#: what the server says when it will refuse the next connection too
_LASTING = (
    *("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist"),
    *("certificate", "does not support SSL", "invalid ", "connection is bad"),
)
#: the advisory lock for creating ledger and tables: CREATE ... IF NOT EXISTS alone may collide with itself
_CREATE_LOCK = 0x70656E73


class Postgres(Sink):
    """Rows in a table of the database at `address` (as libpq takes it: `postgresql://host/db`; what is left out comes
    from PGUSER, PGPASSFILE and the like). `table` may name its schema, as in `shop.sales`.

    With `key`, columns with commas between them, a row replaces the one with the same key.
    `make_table` creates the table if it is missing.
    """

    def __init__(
        self, address: str, table: str, *, key: str | Sequence[str] = (), make_table: bool = False
    ) -> None:
        parts = table.split(".")
        if not all(parts) or len(parts) > 2 or parts[-1] in (_LEDGER, _RECENT):
            raise UserError(
                "BAD_TABLE_NAME",
                f"{table!r} cannot be a sink's table",
                hint="Name a table, or a schema and a table with a dot between them.",
            )
        self._address = address
        self.table = table
        self.key = tuple(k.strip() for k in (key.split(",") if isinstance(key, str) else key) if k.strip())
        self.make_table = make_table
        self._job = ""
        self._generation = 0
        self._columns: dict[str, str] = {}
        self._connection: psycopg.Connection[Any] | None = None

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Connect, create the ledger (and the table if `make_table`), and check the columns of the table."""
        self.close()
        self._job, self._generation = job, 0
        self._columns = {name: column_type(dtype) for name, dtype in schema.items()}
        self._check_key(schema)
        with self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_LEDGER} (job text NOT NULL, target text NOT NULL, "
                "epoch bigint NOT NULL, generation bigint NOT NULL, PRIMARY KEY (job, target))"
            )
            connection.execute(
                f"INSERT INTO {_LEDGER} VALUES (%s, %s, -1, 0) ON CONFLICT DO NOTHING", (job, self.table)
            )
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_RECENT} (job text NOT NULL, target text NOT NULL, "
                "epochs text NOT NULL, PRIMARY KEY (job, target))"
            )
            self._check_table(connection)

    def newest_epoch(self) -> SinkEpoch | None:
        """The epoch in the ledger."""
        with self._transaction() as connection:
            found = connection.execute(
                f"SELECT epoch, generation FROM {_LEDGER} WHERE job = %s AND target = %s",
                (self._job, self.table),
            ).fetchone()
            if found is None or found[0] < 0:
                return None
            epoch = int(found[0])
            return SinkEpoch(epoch, digest_in(self._read_recent(connection), epoch), int(found[1]))

    def check(self, schema: dict[str, pl.DataType]) -> None:
        """Check that the table has the columns, over another connection, since a write may be in progress."""
        wanted = {name: column_type(dtype) for name, dtype in schema.items()}
        self._check_key(schema)
        if wanted.items() <= self._columns.items():
            return
        checker = Postgres(self._address, self.table, key=self.key)
        checker._columns = wanted
        try:
            with checker._transaction() as connection:
                checker._check_table(connection)
        finally:
            checker.close()

    def take_over(self, generation: int) -> None:
        """Write the generation, which every later transaction checks, and end what lower generations have begun."""
        if generation == self._generation:
            return
        with self._transaction() as connection:
            self._end_lower_sessions(connection, generation)
            self._lock_ledger(connection, generation)
            connection.execute(
                f"UPDATE {_LEDGER} SET generation = %s WHERE job = %s AND target = %s",
                (generation, self._job, self.table),
            )
        self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Write the rows and the number of the epoch in one transaction. An epoch without rows leaves nothing."""
        if rows.is_empty():
            return True
        with self._transaction() as connection:
            last = self._lock_ledger(connection, self._generation)
            recent = self._read_recent(connection) if self._digest else ""
            check_same(self.describe(), recent, epoch, self._digest)
            if last >= epoch:
                return False
            if self.key:
                self._upsert(connection, rows)
            else:
                self._copy(connection, rows, _name(self.table))
            connection.execute(
                f"UPDATE {_LEDGER} SET epoch = %s WHERE job = %s AND target = %s",
                (epoch, self._job, self.table),
            )
            if self._digest:
                connection.execute(
                    f"INSERT INTO {_RECENT} VALUES (%s, %s, %s) "
                    "ON CONFLICT (job, target) DO UPDATE SET epochs = excluded.epochs",
                    (self._job, self.table, add_epoch(recent, epoch, self._digest)),
                )
        return True

    def _read_recent(self, connection: psycopg.Connection[Any]) -> str:
        found = connection.execute(
            f"SELECT epochs FROM {_RECENT} WHERE job = %s AND target = %s", (self._job, self.table)
        ).fetchone()
        return "" if found is None else str(found[0])

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def describe(self) -> str:
        return f"table {self.table} in PostgreSQL"

    def _end_lower_sessions(self, connection: psycopg.Connection[Any], generation: int) -> None:
        """End transactions of lower generations of this job with their sessions: that of a stopped writer holds locks.

        The server lets a role end its own sessions. Those of another role end by the time limits.
        """
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND usename = current_user AND pid <> pg_backend_pid() AND state <> 'idle' "
            "AND split_part(application_name, ' ', 2) = %s "
            "AND lpad(split_part(application_name, ' ', 3), 20, '0') < lpad(%s, 20, '0')",
            (self._session_key(), str(generation)),
        )
        connection.execute(
            "SELECT set_config('application_name', %s, false)", (self._session_name(generation),)
        )

    def _session_key(self) -> str:
        """What names the sessions that write this job to this table, in `application_name`."""
        return hashlib.sha256(f"{self._job}\0{self.table}".encode()).hexdigest()[:16]

    def _session_name(self, generation: int) -> str:
        return f"penstock {self._session_key()} {generation}"

    def _lock_ledger(self, connection: psycopg.Connection[Any], mine: int) -> int:
        """Lock the job's row until the transaction ends; returns its last epoch. Raises if others have taken over."""
        found = connection.execute(
            f"SELECT epoch, generation FROM {_LEDGER} WHERE job = %s AND target = %s FOR UPDATE",
            (self._job, self.table),
        ).fetchone()
        epoch, generation = found or (-1, 0)
        if mine and generation > mine:
            raise fenced_error(self.describe(), mine, generation)
        return int(epoch)

    def _copy(self, connection: psycopg.Connection[Any], rows: pl.DataFrame, into: str) -> None:
        columns = ", ".join(map(_quoted, rows.columns))
        statement = f"COPY {into} ({columns}) FROM STDIN".encode()
        height = max(1, rows.height * _COPY_BYTES // max(int(rows.estimated_size()), 1))
        limit = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
        before = connection.execute(limit, (_COPY_TIMEOUT,)).fetchone()
        for part in rows.iter_slices(height):
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for line in to_copy_rows(part):
                    copy.write_row(line)
        if before is not None:
            connection.execute(limit, (before[0],))

    def _upsert(self, connection: psycopg.Connection[Any], rows: pl.DataFrame) -> None:
        """Replace rows by key. Of rows with the same key the last one counts; null is a key too."""
        latest = rows.unique(list(self.key), keep="last", maintain_order=True)
        columns = ", ".join(map(_quoted, rows.columns))
        connection.execute(
            f"CREATE TEMP TABLE penstock_rows ON COMMIT DROP AS SELECT {columns} FROM {_name(self.table)} LIMIT 0"
        )
        self._copy(connection, latest, "penstock_rows")
        others = [name for name in rows.columns if name not in self.key]
        change = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in others)
        connection.execute(
            f"INSERT INTO {_name(self.table)} ({columns}) SELECT {columns} FROM penstock_rows "
            f"ON CONFLICT ({', '.join(map(_quoted, self.key))}) DO {f'UPDATE SET {change}' if others else 'NOTHING'}"
        )

    def _check_key(self, schema: Collection[str]) -> None:
        if missing := [name for name in self.key if name not in schema]:
            raise self._mismatch(f"The key has {', '.join(missing)}, which the job does not have")

    def _check_table(self, connection: psycopg.Connection[Any]) -> None:
        found = dict(
            connection.execute(
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (_name(self.table),),
            ).fetchall()
        )
        if not found:
            if not self.make_table:
                raise UserError(
                    "SINK_TABLE_MISSING",
                    f"there is no {self.describe()}",
                    hint="Create it, or set make_table=True (make_table => TRUE in SQL): "
                    + self._definition().replace("\n", " "),
                )
            connection.execute(self._definition())
            return
        wrong = {name: kind for name, kind in self._columns.items() if found.get(name) != kind}
        if wrong:
            have = ", ".join(f"{name} {found.get(name, 'missing')}" for name in wrong)
            want = ", ".join(f"{name} {kind}" for name, kind in wrong.items())
            raise self._mismatch(f"The table has {have}; the job gives {want}")

    def _definition(self) -> str:
        columns = [f"{_quoted(name)} {kind}" for name, kind in self._columns.items()]
        if self.key:
            columns.append(f"UNIQUE NULLS NOT DISTINCT ({', '.join(map(_quoted, self.key))})")
        return f"CREATE TABLE {_name(self.table)} ({', '.join(columns)})"

    def _mismatch(self, detail: str) -> UserError:
        return UserError(
            "SINK_SCHEMA_MISMATCH",
            f"{self.describe()} cannot take the job's columns",
            detail=f"{detail}.",
            hint="Name another table, add to this one what is missing, or rename or cast the job's columns.",
        )

    def _connect(self, library: Any) -> psycopg.Connection[Any]:
        """Open the connection, with time limits, except those that the address or the role sets itself."""
        address = reveal(self._address)
        given = library.conninfo.conninfo_to_dict(address)
        name = self._session_name(self._generation)
        defaults = {key: value for key, value in _CONNECTION.items() if key not in given}
        connection: psycopg.Connection[Any] = library.connect(
            address, autocommit=True, application_name=name, **defaults
        )
        self._connection = connection
        connection.execute(
            "SELECT set_config(name, %s::jsonb ->> name, false) FROM pg_settings "
            "WHERE name = ANY(%s) AND source IN ('default', 'configuration file')",
            (json.dumps(_LIMITS), list(_LIMITS)),
        )
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction, on a new connection if the former one is closed."""
        psycopg = extra("psycopg", "postgres", "the PostgreSQL sink")
        try:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connect(psycopg)
            with connection.transaction():
                yield connection
        except (psycopg.DataError, psycopg.IntegrityError) as problem:
            raise UserError(
                "SINK_VALUE_REFUSED",
                f"{self.describe()} does not take a value of the job",
                detail=f"{str(problem).splitlines()[0]}.",
                hint="Cast the column in the query, or change the table.",
            ) from problem
        except psycopg.Error as problem:
            self.close()
            raise ExternalError(
                "SINK_UNWRITABLE",
                f"could not write to {self.describe()}",
                detail=f"{redact((str(problem).splitlines() or [type(problem).__name__])[0], self._address)}.",
                hint="Check that the server runs and lets this user write. The rows wait for that; RESUME the job "
                "if it has failed.",
                is_transient=isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
                and not any(reason in str(problem) for reason in _LASTING),
            ) from problem


def _name(table: str) -> str:
    return ".".join(map(_quoted, table.split(".")))


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


_SIMPLE: tuple[tuple[type[pl.DataType], str], ...] = (
    (pl.Int8, "smallint"),
    (pl.Int16, "smallint"),
    (pl.Int32, "integer"),
    (pl.Int64, "bigint"),
    (pl.UInt8, "smallint"),
    (pl.UInt16, "integer"),
    (pl.UInt32, "bigint"),
    (pl.UInt64, "numeric"),
    (pl.Int128, "numeric"),
    (pl.Decimal, "numeric"),
    (pl.Float32, "real"),
    (pl.Float64, "double precision"),
    (pl.Boolean, "boolean"),
    (pl.Date, "date"),
    (pl.Time, "time without time zone"),
    (pl.Duration, "interval"),
    (pl.Binary, "bytea"),
)


def column_type(dtype: pl.DataType) -> str:
    """The type of PostgreSQL, as `format_type` returns it."""
    if isinstance(dtype, pl.Datetime):
        return f"timestamp {'with' if dtype.time_zone else 'without'} time zone"
    if dtype.is_nested():
        return "jsonb"
    return next((name for kind, name in _SIMPLE if isinstance(dtype, kind)), "text")


def to_copy_rows(rows: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Convert rows to tuples of the values that the types of the columns accept."""
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    plain = rows.with_columns(to_portable(rows.select(nested)).get_columns())
    plain = plain.with_columns(
        pl.col(name).dt.total_microseconds() for name, dtype in rows.schema.items() if dtype == pl.Duration
    )
    plain = plain.with_columns(
        pl.col(name).cast(pl.String)
        for name, dtype in rows.schema.items()
        if isinstance(dtype, pl.Categorical | pl.Enum)
    )
    json_at = {rows.columns.index(name) for name in nested}
    spans_at = {at for at, dtype in enumerate(rows.dtypes) if dtype == pl.Duration}
    if not json_at and not spans_at:
        return plain.iter_rows()
    return (
        tuple(
            value
            if value is None
            else json.dumps(value, ensure_ascii=False)
            if at in json_at
            else timedelta(microseconds=value)
            if at in spans_at
            else value
            for at, value in enumerate(row)
        )
        for row in plain.iter_rows()
    )
