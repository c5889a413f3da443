"""However many connections are silent, slow, or never finish TLS: agents ship, and nothing is lost or waits long."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.descriptors import raise_descriptor_limit
from penstock.ingest.intake import Hello, SessionTaken
from tests.ingest.processes import Processes, until
from tests.ingest.test_identity import Piped, arrived
from tests.ingest.test_tls import certificate

pytestmark = [pytest.mark.process, pytest.mark.slow]

SILENT, SLOW = 1_000, 40
#: far less than the connections: the gateway's files need some too
DESCRIPTORS = (256, 256)
#: what a line may take meanwhile; on an idle machine it takes a fraction of a second
DEADLINE = 60.0


class SilentConnections:
    """Connections that are held open, and come again when they are closed."""

    def __init__(self, port: int, count: int, first: bytes = b"") -> None:
        self._port, self._count, self._first = port, count, first
        self.opened = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SilentConnections:
        raise_descriptor_limit()
        self._thread.start()
        until(lambda: self.opened >= self._count, 60, "the connections")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        """Open connections in turn, for ever; the oldest makes room for the newest."""
        held: list[socket.socket] = []
        try:
            while not self._stop.is_set():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", self._port), timeout=10))
                    self.opened += 1
                    held[-1].sendall(self._first)
                if len(held) >= self._count:
                    held.pop(0).close()
                    self._stop.wait(0.05)  # from here on twenty a second
        finally:
            for one in held:
                one.close()


@contextlib.contextmanager
def slow_hellos(port: int, count: int, hello: bytes) -> Iterator[None]:
    """Connections that send a byte of their hello now and then, and start again when they are closed."""
    stop = threading.Event()

    def run() -> None:
        held: list[tuple[socket.socket, int]] = []
        while not stop.wait(0.2):
            following = []
            for one, at in held:
                try:
                    one.send(hello[at % len(hello) :][:1])
                    following.append((one, at + 1))
                except OSError:
                    one.close()
            held = following
            while len(held) < count:
                held.append((socket.create_connection(("127.0.0.1", port), timeout=10), 0))
        for one, _ in held:
            one.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def ship(processes: Processes, agent: Piped, name: bytes, count: int) -> float:
    """Ship lines one after the other; return how long the slowest took."""
    slowest = 0.0
    for number in range(count):
        line = b"%s %d" % (name, number)
        started_at = time.monotonic()
        agent.write(line)
        until(lambda line=line: arrived(processes, line), DEADLINE, "the line")
        slowest = max(slowest, time.monotonic() - started_at)
    return slowest


def test_agents_ship_beside_a_thousand_silent_and_forty_slow_connections(
    processes: Processes, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    gateway = processes.gateway("--partitions", 2, descriptors=DESCRIPTORS)
    known = Piped(processes, tmp_path / "known")
    ship(processes, known, b"before", 1)
    with SilentConnections(processes.port, SILENT), slow_hellos(processes.port, SLOW, b'{"penstock": 1, '):
        slowest = ship(processes, known, b"known", 20)
        newcomer = Piped(processes, tmp_path / "newcomer")
        started_at = time.monotonic()
        ship(processes, newcomer, b"first", 1)
        connected = time.monotonic() - started_at
        slowest = max(slowest, ship(processes, newcomer, b"newcomer", 20))
        assert len(os.listdir(f"/proc/{gateway.process.pid}/fd")) < DESCRIPTORS[1]
        assert (newcomer.end(), known.end()) == (0, 0)
    record_property("slowest_seconds", round(slowest, 3))
    record_property("newcomer_seconds", round(connected, 3))
    print(f"slowest line {slowest:.2f} s, newcomer's first line {connected:.2f} s")
    wanted = [b"before 0", b"first 0"] + [
        b"%s %d" % (name, n) for name in (b"known", b"newcomer") for n in range(20)
    ]
    assert sorted(processes.lines()) == sorted(wanted)
    assert gateway.reports("silent connections closed")
    assert not gateway.reports("cannot accept")


def test_a_thousand_agents_that_connect_a_hundred_at_a_time_all_get_through(processes: Processes) -> None:
    gateway = processes.gateway()
    raise_descriptor_limit()

    async def connect(number: int, at_once: asyncio.Semaphore) -> bytes:
        async with at_once:
            return await take_session(number)

    async def take_session(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", processes.port)
        writer.write(Hello("logs", f"agent{number}", "", "a-secret-of-an-agent", (), "here").encoded())
        offered = json.loads(await reader.readline())
        writer.write(SessionTaken(offered["session"]).encoded())
        reply = await reader.readline()
        writer.close()
        return reply

    async def connect_all() -> list[bytes]:
        at_once = asyncio.Semaphore(100)
        return await asyncio.gather(*(connect(number, at_once) for number in range(SILENT)))

    assert asyncio.run(connect_all()) == [b'{"ready": true}\n'] * SILENT
    assert not gateway.reports("refused")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a handshake"])
def test_agents_ship_beside_tls_handshakes_that_never_end(
    processes: Processes, tmp_path: Path, first: bytes
) -> None:
    ours, key = certificate(tmp_path, "ours")
    tls = ("--tls-cert", ours, "--tls-key", key)
    gateway = processes.gateway("--partitions", 2, *tls, descriptors=DESCRIPTORS)
    with SilentConnections(processes.port, 400, first):
        agent = Piped(processes, tmp_path / "spool", "--ca", ours)
        ship(processes, agent, b"tls", 10)
        assert len(os.listdir(f"/proc/{gateway.process.pid}/fd")) < DESCRIPTORS[1]
        assert agent.end() == 0
    assert processes.lines() == [b"tls %d" % n for n in range(10)]


def test_requests_are_answered_beside_silent_and_slow_ones(processes: Processes) -> None:
    gateway = processes.gateway("--partitions", 2, http=True, descriptors=DESCRIPTORS)
    with (
        SilentConnections(processes.http_port, SILENT),
        slow_hellos(processes.http_port, SLOW, b"POST /streams/logs/events HTTP/1.1\r\nX: "),
    ):
        for number in range(20):
            client = http.client.HTTPConnection("127.0.0.1", processes.http_port, timeout=DEADLINE)
            client.request("POST", "/streams/logs/events", b"%d\n" % number)
            reply = client.getresponse()
            assert reply.status == 200, gateway.text()
            client.close()
        assert len(os.listdir(f"/proc/{gateway.process.pid}/fd")) < DESCRIPTORS[1]
    assert processes.lines() == [b"%d" % number for number in range(20)]
    assert not gateway.reports("cannot accept")
