"""What a gateway and an agent refuse, over real connections."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import socket
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.ingest.agent_command import _load_reduce
from penstock.ingest.committer import Committer
from penstock.ingest.frames import Frame
from penstock.ingest.gateway import MOST_BYTES, Connection, Gateway, GatewaySettings
from penstock.ingest.intake import MOST_HELLO_BYTES, Hello, Intake, parse_hello
from penstock.ingest.listener import Listener
from tests.ingest.processes import Processes


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"[]", b"{}", b'{"penstock": 99}'])
def test_a_hello_of_another_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(ExternalError, match="BAD_HELLO"):
        parse_hello(line)


def test_a_hello_without_an_end_is_refused() -> None:
    with pytest.raises(ExternalError, match=r"BAD_HELLO.*does not end"):
        Intake().feed(b"x" * MOST_HELLO_BYTES)


def test_an_agent_without_reducers_cannot_reduce(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="CANNOT_REDUCE"):
        _load_reduce(argparse.Namespace(reduce=str(tmp_path / "jobs.sql")), None)


def test_streams_are_bounded(tmp_path: Path) -> None:
    async def exercise() -> None:
        committer = Committer(
            tmp_path, partitions=1, segment_bytes=1 << 20, gather_seconds=0.01, most_streams=1
        )
        committer._store("first")
        committer._store("first")
        with pytest.raises(ExternalError, match="TOO_MANY_STREAMS"):
            committer._store("second")
        for store in committer._stores.values():
            store.close()

    asyncio.run(exercise())


def test_a_gateway_refuses_to_start_on_a_taken_address(processes: Processes) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", processes.port))
        taken.listen()
        gateway = processes.gateway(ready=False)
        assert gateway.wait() != 0
    assert "CANNOT_LISTEN" in gateway.text()


@pytest.mark.parametrize(
    ("started", "rest", "settings", "reason"),
    [
        (b"", b" " * 4000, {"hello_seconds": 1.0}, b"did not say who it is in time"),
        (
            Hello("s", "p").encoded(),
            Frame.of("p", 0, b"".join(b"%d\n" % (n * n) for n in range(5000))).encoded(),
            {"patience_seconds": 1.0},
            b"the rest of a message did not come",
        ),
    ],
    ids=["hello", "frame"],
)
def test_a_message_has_an_absolute_deadline_however_it_trickles(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    started: bytes,
    rest: bytes,
    settings: dict[str, float],
    reason: bytes,
) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        for byte in rest:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.1)

    async def exercise() -> bytes:
        gateway = Gateway(GatewaySettings(tmp_path, **settings))  # type: ignore[arg-type]
        listener = Listener(
            ("127.0.0.1", 0),
            gateway.admission,
            lambda guest: Connection(gateway, guest),
            hello_seconds=gateway.settings.hello_seconds,
        )
        tasks = [asyncio.ensure_future(one) for one in (gateway.run(), listener.run())]
        reader, writer = await asyncio.open_connection(*listener.address)
        try:
            writer.write(started)
            if started:
                assert b"next" in await reader.readline()
            tasks.append(asyncio.ensure_future(trickle(writer)))
            return await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await gateway.committer.close()

    assert reason in asyncio.run(exercise())
    assert "TOO_SLOW" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "path", "header", "status", "condition"),
    [
        ("POST", "/nowhere", ("Content-Length", "0"), 404, "NOT_FOUND"),
        ("GET", "/streams/logs/events", ("Content-Length", "0"), 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/streams/logs/events", ("Transfer-Encoding", "chunked"), 411, "LENGTH_REQUIRED"),
        ("POST", "/streams/logs/events", ("Content-Length", str(MOST_BYTES + 1)), 413, "TOO_LARGE"),
    ],
)
def test_an_invalid_request_is_refused(
    processes: Processes, method: str, path: str, header: tuple[str, str], status: int, condition: str
) -> None:
    processes.gateway(http=True)
    client = http.client.HTTPConnection("127.0.0.1", processes.http_port, timeout=60)
    client.putrequest(method, path)
    client.putheader(*header)
    client.endheaders()
    response = client.getresponse()
    assert (response.status, condition in response.read().decode()) == (status, True)
    client.close()
