"""A leader that stops, or whose host is gone, in mid-transaction blocks its successor for seconds: a real PostgreSQL, a
process that is stopped with its locks, and a relay that swallows what it is sent without closing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import ExternalError
from penstock.sinks import Postgres
from tests.outside.stopped_writer import ROWS, SCHEMA

pytestmark = [pytest.mark.process, pytest.mark.slow]
_ROOT = Path(__file__).parents[2]
#: how long a test waits for what should take seconds
_DEADLINE = 60.0


@pytest.fixture
def table(postgres_address: str, tmp_path: Path) -> str:
    name = f"t_{abs(hash(str(tmp_path)))}"
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        if connection.execute("SELECT to_regclass('penstock_epochs')").fetchone() != (None,):
            connection.execute("DELETE FROM penstock_epochs WHERE target = %s", (name,))
    return name


@contextlib.contextmanager
def stopped_writer(address: str, table: str, where: str) -> Iterator[subprocess.Popen[str]]:
    """A writer of generation 1 that has stopped in mid-transaction."""
    command = [sys.executable, "-m", "tests.outside.stopped_writer", address, table, where]
    with subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            deadline = time.monotonic() + _DEADLINE
            status = Path(f"/proc/{child.pid}/stat")
            while status.read_text().rpartition(")")[2].split()[0] != "T":
                assert child.poll() is None, child.communicate()
                assert time.monotonic() < deadline, "the writer did not stop"
                time.sleep(0.02)
            yield child
        finally:
            child.kill()


class SwallowingRelay:
    """Forwards to a port until `swallow`; from then on both sides hear nothing more, and no connection is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target, self._swallows = (host, port), False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._swallows = True

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._target)
                self._sockets += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not self._swallows:
                    other.sendall(data)
            if not self._swallows:
                other.shutdown(socket.SHUT_WR)


def deliver_as_successor(address: str, table: str) -> None:
    """Deliver epoch 1 as generation 2, again after errors that a retry can help. Hangs where nothing limits a lock."""
    script = (
        "import sys, time\n"
        "from penstock.errors import ExternalError\n"
        "from penstock.sinks import Postgres\n"
        "from tests.outside.stopped_writer import ROWS, SCHEMA\n"
        "while True:\n"
        "    sink = Postgres(sys.argv[1], sys.argv[2])\n"
        "    try:\n"
        "        sink.open('job', SCHEMA)\n"
        "        sink.take_over(2)\n"
        "        assert not sink.write(0, ROWS.head(2))\n"
        "        assert sink.write(1, ROWS)\n"
        "        break\n"
        "    except ExternalError as error:\n"
        "        print(error)\n"
        "        time.sleep(0.1)\n"
    )
    subprocess.run([sys.executable, "-c", script, address, table], cwd=_ROOT, check=True, timeout=_DEADLINE)


def rows_in(address: str, table: str) -> tuple[int, int]:
    """How many rows, and how many different ones, a table has."""
    with psycopg.connect(address) as connection:
        counts = connection.execute(
            f"SELECT count(*), count(DISTINCT (page, visits)) FROM {table}"
        ).fetchone()
    assert counts is not None
    return counts


@pytest.mark.parametrize("where", ["idle", "copy"])
def test_a_stopped_leader_does_not_block_its_successor(postgres_address: str, table: str, where: str) -> None:
    with stopped_writer(postgres_address, table, where) as leader:
        deliver_as_successor(postgres_address, table)
        assert rows_in(postgres_address, table) == (20_002, 20_000)
        os.kill(leader.pid, signal.SIGCONT)
        output, error = leader.communicate(timeout=_DEADLINE)
        assert "written" not in output
        assert "SINK_UNWRITABLE" in error or "FENCED" in error
    assert rows_in(postgres_address, table) == (20_002, 20_000)


def test_a_leader_whose_host_is_gone_does_not_block_its_successor(postgres_address: str, table: str) -> None:
    parts = conninfo_to_dict(postgres_address)
    relay = SwallowingRelay(str(parts["host"]), int(str(parts["port"])))
    try:
        through_relay = make_conninfo(postgres_address, port=relay.port)
        with stopped_writer(through_relay, table, "copy"):
            relay.swallow()
        deliver_as_successor(postgres_address, table)  # the server has not heard that the leader is gone
        assert rows_in(postgres_address, table) == (20_002, 20_000)
    finally:
        relay.close()


def test_a_leader_of_another_role_blocks_its_successor_until_its_limits(
    postgres_address: str, table: str
) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS successor")
        connection.execute("CREATE ROLE successor LOGIN SUPERUSER")
    brief = make_conninfo(postgres_address, options="-c idle_in_transaction_session_timeout=2s")
    with stopped_writer(brief, table, "idle"):
        deliver_as_successor(make_conninfo(postgres_address, user="successor"), table)
    assert rows_in(postgres_address, table) == (20_002, 20_000)


def test_a_lock_that_nobody_releases_is_an_error_that_a_retry_can_help(
    postgres_address: str, table: str
) -> None:
    sink = Postgres(make_conninfo(postgres_address, options="-c lock_timeout=200ms"), table, make_table=True)
    sink.open("job", SCHEMA)
    with psycopg.connect(postgres_address) as connection:
        connection.execute(f"LOCK TABLE {table}")
        with pytest.raises(ExternalError, match=r"SINK_UNWRITABLE.*lock timeout"):
            sink.write(0, ROWS)
    assert sink.write(0, ROWS)
    assert rows_in(postgres_address, table) == (20_000, 20_000)


def test_both_sides_notice_a_silent_connection(postgres_address: str, table: str) -> None:
    sink = Postgres(postgres_address, table, make_table=True)
    sink.open("job", SCHEMA)
    assert sink._connection is not None
    with socket.socket(fileno=os.dup(sink._connection.fileno())) as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        assert connection.getsockopt(socket.IPPROTO_TCP, 18) == 30_000  # TCP_USER_TIMEOUT
    for name, value in {
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "30s",
        "tcp_keepalives_idle": "10",
        "tcp_user_timeout": "30000",
        "client_connection_check_interval": "10s",
        "statement_timeout": "0",
    }.items():
        assert sink._connection.execute(f"SHOW {name}").fetchone() == (value,)
    sink.close()
