"""The store on ZooKeeper under what the contract does not cover: a server that is unavailable for a time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.coordination.address import open_store
from penstock.coordination.lease import acquire
from penstock.coordination.zookeeper import ZooKeeperStore
from penstock.errors import ExternalError
from penstock.testing.ports import free_port
from penstock.testing.zookeeper_server import ZooKeeperServer, why_not

pytestmark = pytest.mark.process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def test_a_lease_outlasts_a_short_outage(server: ZooKeeperServer) -> None:
    store = open_store(f"zk://{server.hosts}/penstock")
    session = store.start_session(60.0)  # a busy machine takes long to start a server
    lease = acquire(store, "office", session, seconds=10)
    assert lease is not None
    server.stop()
    lease.check()
    server.start()
    waited = store.wait("office", -1, 30)
    assert waited is not None
    assert session.is_held()
    assert lease.is_held()
    session.close()
    store.close()


def test_a_session_outlasts_a_connection_that_a_starting_server_never_answers(
    server: ZooKeeperServer,
) -> None:
    with _silent_once(server.hosts) as (hosts, drop):
        store = open_store(f"zk://{hosts}/penstock")
        session = store.start_session(9.0)
        lease = acquire(store, "office", session, seconds=60)
        assert lease is not None
        drop()
        assert store.wait("office", -1, 30) is not None
        assert not session.ended.wait(9.0)
        lease.check()
        session.close()
        store.close()


def test_a_lease_ends_in_a_long_outage(server: ZooKeeperServer) -> None:
    store = open_store(f"zk://{server.hosts}/penstock")
    session = store.start_session(8.0)
    lease = acquire(store, "office", session, seconds=30)
    assert lease is not None
    os.kill(server.pid, signal.SIGSTOP)  # it does not respond
    try:
        lease.check()
        assert session.ended.wait(60)
        with pytest.raises(ExternalError) as lost:
            lease.check()
        assert lost.value.condition == "LEASE_LOST"
    finally:
        os.kill(server.pid, signal.SIGCONT)
    session.close()
    again = store.start_session(8.0)
    next_lease = acquire(store, "office", again, seconds=60)
    assert next_lease is not None
    assert next_lease.generation == lease.generation + 1
    again.close()
    store.close()


def test_a_missing_server_is_reported() -> None:
    with pytest.raises(ExternalError) as unavailable:
        ZooKeeperStore("127.0.0.1:1/penstock", answer_seconds=0.5)
    assert unavailable.value.condition == "STORE_UNAVAILABLE"
    assert unavailable.value.retry


def test_an_unavailable_server_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ExternalError, match="STORE_UNAVAILABLE"):
        ZooKeeperStore("127.0.0.1:1", answer_seconds=1.0)
    assert [record for record in caplog.records if record.name.startswith("kazoo")] == []


@contextlib.contextmanager
def _silent_once(hosts: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A relay to the server, and a function that drops its connections; the next two get no response."""
    address, _, port = hosts.partition(":")
    open_connections: list[socket.socket] = []
    silent = 0
    with socket.create_server(("127.0.0.1", free_port())) as listener:

        def accept() -> None:
            nonlocal silent
            with contextlib.suppress(OSError):
                while True:
                    incoming, _ = listener.accept()
                    open_connections.append(incoming)
                    if silent:
                        silent -= 1
                        continue
                    outgoing = socket.create_connection((address, int(port)))
                    open_connections.append(outgoing)
                    for source, target in ((incoming, outgoing), (outgoing, incoming)):
                        threading.Thread(target=copy, args=(source, target), daemon=True).start()

        def copy(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)

        def drop() -> None:
            nonlocal silent
            silent = 2  # the store's and the session's
            for connection in open_connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=accept, daemon=True).start()
        yield "{}:{}".format(*listener.getsockname()), drop
        for connection in open_connections:
            connection.close()
