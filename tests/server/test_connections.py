"""Connections that send nothing, too little or too slowly keep nobody out, and end nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.catalogue.program import Program
from penstock.server.api import Service
from penstock.server.connections import limited_address
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.limits import Limits
from tests.server import kit
from tests.server.certificate import make_certificate

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 400


@contextlib.contextmanager
def attacked_service(state: Path, descriptors: int = DESCRIPTORS) -> Iterator[int]:
    """The port of a service in a process of few descriptors; its engine must end well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.attacked_service", str(state), str(descriptors)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
        out, err = process.communicate("", timeout=60)
        assert (process.returncode, out.strip()) == (0, "ended"), err[-3_000:]
    finally:
        process.kill()
        process.wait()


def connect(port: int, source: str = "127.0.0.2") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Whether the service has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextlib.contextmanager
def slow_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that send one byte of a request now and then, without end."""
    lines = [connect(port, "127.0.0.3") for _ in range(count)]
    is_over = threading.Event()

    def trickle() -> None:
        while not is_over.wait(0.02):
            for line in lines:
                with contextlib.suppress(OSError):
                    line.send(b"G")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield lines
    finally:
        is_over.set()
        thread.join()
        for line in lines:
            line.close()


@pytest.mark.process
@pytest.mark.slow
def test_an_engine_survives_a_thousand_silent_connections_and_answers_others(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with attacked_service(tmp_path / "state") as port, contextlib.ExitStack() as stack:
        for _ in range(1_000):
            stack.enter_context(connect(port))
        stack.enter_context(slow_connections(port, 40))
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(timeout=60) as http:
            first = http.get(f"{url}/status").json()["epoch"]
            for _ in range(100):
                assert http.get(f"{url}/jobs/seen/answer").status_code == 200
            kit.until(lambda: http.get(f"{url}/status").json()["epoch"] > first + 5, 60)
            for _ in range(20):  # each over a connection of its own
                assert httpx.get(f"{url}/jobs/seen/answer", timeout=60).status_code == 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def port_of(site: kit.Site) -> int:
    return int(site.url.rpartition(":")[2])


def ended(site: kit.Site) -> dict[str, int]:
    """How many connections the service ended, by reason."""
    connections = site.running.service.connections
    assert connections is not None
    return dict(connections.ended)


def test_a_connection_that_waits_makes_room_for_a_new_one_of_its_address(state: Path) -> None:
    limits = Limits(connections_per_address=3)
    with kit.site(state, limits=limits) as site, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(port_of(site))) for _ in range(3)]
        assert httpx.get(f"{site.url}/health").status_code == 200, "another address has its own room"
        assert not any(map(is_closed, silent))
        new = stack.enter_context(connect(port_of(site)))
        new.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert new.recv(12) == b"HTTP/1.1 200"
        kit.until(lambda: is_closed(silent[0]), 60)
        assert not any(map(is_closed, silent[1:]))
        assert ended(site) == {"no_room": 1}


def test_connections_with_a_request_under_way_are_never_closed_for_others(state: Path) -> None:
    limits = Limits(connections=2)
    with kit.site(state, limits=limits) as site, contextlib.ExitStack() as stack:
        site.http.close()
        kit.until(lambda: not site.running.service.connections, 60)
        busy = [stack.enter_context(connect(port_of(site))) for _ in range(2)]
        for one in busy:
            one.sendall(b"GET /jobs/pages/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"
        refused = stack.enter_context(connect(port_of(site), "127.0.0.9"))
        kit.until(lambda: is_closed(refused), 60)
        assert ended(site) == {"refused": 1}
        for one in busy:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                assert one.recv(1 << 16)


QUICK = Limits(first_request_seconds=0.3, idle_seconds=0.3, body_seconds=0.3, stalled_seconds=0.3)


def test_a_silent_and_a_slow_connection_end_at_the_deadline(state: Path) -> None:
    with (
        kit.site(state, limits=QUICK) as site,
        connect(port_of(site)) as silent,
        slow_connections(port_of(site), 2) as slow,
    ):
        kit.until(lambda: is_closed(silent), 60)
        kit.until(lambda: all(map(is_closed, slow)), 60)
        assert ended(site)["first_request"] == 3


def test_the_next_request_and_a_body_have_deadlines_too(state: Path) -> None:
    with kit.site(state, limits=QUICK) as site:
        site.http.close()
        seen: list[str] = []
        for start, reason in (
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea", "idle"),
            (b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nhal", "body"),
        ):
            with connect(port_of(site)) as line:
                line.sendall(start)
                deadline = time.monotonic() + 60
                while not trickle_until_closed(line):
                    assert time.monotonic() < deadline, reason
            assert ended(site) == {**dict.fromkeys(seen, 1), reason: 1}
            seen.append(reason)


def trickle_until_closed(line: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        line.send(b"h")
    time.sleep(0.01)
    return is_closed(line)


def test_a_client_that_reads_nothing_of_a_long_response_is_closed(state: Path) -> None:
    with kit.site(state, kit.ALL, events=20_000, limits=QUICK) as site, connect(port_of(site)) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(40):
            with contextlib.suppress(OSError):
                line.sendall(b"GET /jobs/seen/results HTTP/1.1\r\nHost: localhost\r\n\r\n")
        kit.until(lambda: ended(site).get("stalled") == 1, 60)


@pytest.mark.process
def test_a_handshake_counts_and_has_a_deadline(state: Path, tmp_path: Path) -> None:
    tls = make_certificate(tmp_path)
    limits = Limits(first_request_seconds=0.3, connections_per_address=2)
    service = Service(Host(Program("x", state), state), limits)
    with Server(service, "127.0.0.1", 0, tls) as server, contextlib.ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        silent = [stack.enter_context(connect(port)) for _ in range(3)]
        kit.until(lambda: all(map(is_closed, silent)), 60)
        assert service.connections is not None
        assert service.connections.ended == {"no_room": 1, "first_request": 2}
        trusted = ssl.create_default_context(cafile=str(tls.certificate))
        assert httpx.get(f"{server.url}/health", verify=trusted).status_code == 200


@pytest.mark.process
def test_a_server_takes_the_descriptors_that_it_may_have_and_leaves_the_low_ones() -> None:
    script = """
import asyncio, resource, socket
from penstock.server.connections import Listener
from penstock.server.limits import Limits
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 3_000))
async def main():
    listener = Listener(socket.AF_INET, Limits())
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (3_000, 3_000)
    listener.bind(("127.0.0.1", 0)); listener.listen()
    client = socket.create_connection(listener.getsockname())
    accepted, peer = listener.accept()
    assert accepted.fileno() >= 1_024 and peer == client.getsockname()
    client.sendall(b"x")
    assert accepted.recv(1) == b"x"
    accepted.close()
    assert len(listener.connections) == 0
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)


@pytest.mark.process
def test_without_descriptors_a_connection_is_refused_and_later_ones_are_accepted() -> None:
    script = """
import asyncio, contextlib, os, resource, socket
from penstock.server.connections import Listener
from penstock.server.limits import Limits
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
async def main():
    listener = Listener(socket.AF_INET, Limits())
    listener.bind(("127.0.0.1", 0)); listener.listen()
    client, taken = socket.create_connection(listener.getsockname()), []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(2):
        try:
            listener.accept()
            raise SystemExit("accepted without a descriptor")
        except (ConnectionAbortedError, BlockingIOError):
            listener.setblocking(False)
    assert client.recv(1) == b""
    for one in taken:
        os.close(one)
    other = socket.create_connection(listener.getsockname())
    listener.setblocking(True)
    listener.accept()[0].close()
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)


def test_a_network_of_ipv6_is_one_address() -> None:
    assert limited_address("2001:db8::1") == limited_address("2001:db8::ffff:2") == "2001:db8::/64"
    assert limited_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert limited_address("fe80::1%eth0") == "fe80::/64"


def test_responses_that_nobody_reads_hold_little_memory(state: Path) -> None:
    limits = Limits(response_bytes=4 << 20)
    with kit.site(state, kit.ALL, events=20_000, limits=limits) as site, contextlib.ExitStack() as stack:
        path = "/jobs/seen/results?limit=1000"
        whole = httpx.get(f"{site.url}{path}", timeout=60).content
        assert len(whole) > 1 << 20
        bodies = site.running.service.gate.bodies
        for _ in range(12):
            line = stack.enter_context(connect(port_of(site)))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            # the kernel takes megabytes of the first ones
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20)
        kit.until(lambda: ended(site).get("unread", 0) >= 8, 120)
        kit.until(lambda: bodies._bytes <= limits.response_bytes, 120)
        assert httpx.get(f"{site.url}{path}", timeout=60).content == whole


def test_a_latest_result_is_held_once_however_many_read_it(state: Path) -> None:
    with kit.site(state, kit.ALL, events=20_000) as site, contextlib.ExitStack() as stack:
        whole = httpx.get(f"{site.url}/jobs/seen/answer", timeout=60).content
        assert len(whole) > 1 << 20
        bodies = site.running.service.gate.bodies
        for _ in range(20):
            line = stack.enter_context(connect(port_of(site)))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.sendall(b"GET /jobs/seen/answer HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        kit.until(lambda: bodies._senders.total() == 20, 60)
        assert bodies._bytes == len(whole)
        assert httpx.get(f"{site.url}/jobs/seen/answer", timeout=60).content == whole
