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
from penstock.ingest.gateway import MOST_BYTES, Connection, Gateway, GatewaySettings
from penstock.ingest.intake import MOST_HELLO_BYTES, Intake, parse_hello
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


def test_a_connection_with_an_unfinished_message_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def exercise() -> bytes:
        gateway = Gateway(GatewaySettings(tmp_path, patience_seconds=0.2))
        task = asyncio.ensure_future(gateway.run())
        server = await asyncio.get_running_loop().create_server(lambda: Connection(gateway), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b'{"penstock"')
        try:
            return await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()
            server.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert b"the rest of a message did not come" in asyncio.run(exercise())
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
