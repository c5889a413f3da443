"""Pages of other sites cannot use a gateway, no request hides in the body of another, and streams are declared."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ingest.intake import Hello
from tests.ingest.processes import Connection, Processes, token_file, until
from tests.ingest.test_gateway import request

pytestmark = pytest.mark.process

HIDDEN = b"POST /streams/hidden/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nx\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("gateway"))
    processes.gateway("--stream", "web", "--stream", "hidden", http=True)
    yield processes
    processes.end()


def converse(processes: Processes, sent: bytes) -> bytes:
    """Send bytes, and return all that comes back until the gateway closes the connection."""
    with socket.create_connection(("127.0.0.1", processes.http_port), timeout=60) as line:
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        found = b""
        while data := line.recv(65536):
            found += data
        return found


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:7071", "Origin": "http://evil.example:7071"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/streams/web/events"), ("GET", "/status"), ("GET", "/health")]
)
def test_pages_of_other_sites_are_refused(
    shared: Processes, method: str, path: str, headers: dict[str, str]
) -> None:
    status, reply = request(shared, method, path, b"x\n", **headers, Content_Type="application/x-ndjson")
    assert (status, reply["error"]) == (403, "FOREIGN_HOST")


@pytest.mark.parametrize(
    ("kind", "origin"),
    [
        ("text/plain", None),
        ("application/x-www-form-urlencoded", None),
        ("multipart/form-data; boundary=x", None),
        ("", "http://127.0.0.1"),
    ],
)
def test_types_that_a_form_can_send_are_refused(shared: Processes, kind: str, origin: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    if origin:
        headers |= {"Origin": f"{origin}:{shared.http_port}"}
    status, reply = request(shared, "POST", "/streams/web/events", b"x\n", **headers)
    assert (status, reply["error"]) == (415, "WRONG_CONTENT_TYPE")
    assert "application/x-ndjson" in str(reply["hint"])


@pytest.mark.parametrize("kind", ["application/x-ndjson; charset=utf-8", "application/octet-stream", None])
def test_lines_are_accepted_as_lines_as_bytes_and_from_programs_that_name_no_type(
    shared: Processes, kind: str | None
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    assert request(shared, "POST", "/streams/web/events", b"x\n", **headers) == (200, {"lines": 1})


@pytest.mark.parametrize("path", ["/status", "/health", "/metrics"])
@pytest.mark.parametrize("length", [f"Content-Length: {len(HIDDEN)}", "Transfer-Encoding: chunked"])
def test_a_body_that_nobody_reads_is_never_taken_for_a_request(
    shared: Processes, path: str, length: str
) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n\r\n".encode()
    replies = converse(shared, head + HIDDEN)
    assert replies.count(b"HTTP/1.1 ") == 1
    assert not (shared.log / "hidden").exists()


def test_a_connection_goes_on_after_a_short_body_that_nobody_read(shared: Processes) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nabcde"
    assert converse(shared, head + head).count(b'{"ok": true}') == 2
    long = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n"
    assert converse(shared, long + head).count(b'{"ok": true}') == 1


def test_a_refusal_arrives_although_its_body_was_not_read(shared: Processes) -> None:
    client = http.client.HTTPConnection("127.0.0.1", shared.http_port, timeout=60)
    client.request("POST", "/streams/web/events", b"x" * (3 << 20))
    reply = client.getresponse()
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert json.loads(reply.read())["error"] == "TOO_LARGE"
    client.close()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /streams/web/events HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\nContent-Length: 9\r\n\r\n",
        b"POST /streams/web/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length : 2\r\n\r\nx\n",
        b"POST /streams/web/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\nx\n",
        b"POST /streams/web/events HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_heads_that_a_proxy_could_read_otherwise_are_refused(shared: Processes, head: bytes) -> None:
    replies = converse(shared, head + HIDDEN)
    assert replies.startswith(b"HTTP/1.1 400 ")
    assert replies.count(b"HTTP/1.1 ") == 1


def test_a_stream_that_was_not_declared_is_refused(shared: Processes) -> None:
    status, reply = request(shared, "POST", "/streams/other/events", b"x\n")
    assert (status, reply["error"]) == (404, "STREAM_NOT_DECLARED")
    assert "--stream other" in str(reply["hint"])
    with Connection(shared.port, Hello("other", "web1")) as line:
        assert line.hello_reply["error"] == "STREAM_NOT_DECLARED"
    with Connection(shared.port, Hello("web", "web1")) as line:
        assert line.hello_reply["next"] == 0
    assert not (shared.log / "other").exists()


def test_on_a_network_only_streams_with_a_log_and_declared_ones_are_accepted(
    processes: Processes, tmp_path: Path
) -> None:
    token = "open-sesame-open-sesame"
    headers = {"Authorization": f"Bearer {token}"}

    def post(stream: str) -> int:
        return request(processes, "POST", f"/streams/{stream}/events", b"x\n", **headers)[0]

    with_token = ("--token-file", token_file(tmp_path / "token", token))
    gateway = processes.gateway(*with_token, http=True)
    assert post("former") == 200  # no other host can connect
    gateway.stop()
    everywhere = ("--listen", f"0.0.0.0:{processes.port}", *with_token)
    for more, statuses in (
        ((), (200, 404)),
        (("--stream", "new"), (200, 200)),
        (("--any-stream",), (200, 200)),
    ):
        gateway = processes.gateway(*everywhere, *more, http=True)
        assert (post("former"), post("new" if "--any-stream" not in more else "any")) == statuses
        gateway.stop()


def test_an_agent_keeps_its_lines_until_its_stream_is_declared(processes: Processes, tmp_path: Path) -> None:
    gateway = processes.gateway("--stream", "other")
    (tmp_path / "input").write_bytes(b"a\n")
    agent = processes.agent("--tail", tmp_path / "input", "--spool", tmp_path / "spool", "--drain", "60s")
    report = until(lambda: agent.reports("not connected"), 60, "a refusal")[0]
    assert "STREAM_NOT_DECLARED" in report["reason"]
    gateway.stop()
    processes.gateway("--stream", "logs")
    until(lambda: (processes.log / "logs").exists() and processes.lines() == [b"a"], 60, "the line")
    assert agent.stop() == 0


@pytest.mark.parametrize("position", ["9" * 5_000, "-1", "+1", "1_0", "²", "1e3", "", "99999999999999999999"])
def test_a_position_is_a_count_of_bytes(shared: Processes, position: str) -> None:
    head = "POST /streams/web/events HTTP/1.1\r\nHost: 127.0.0.1\r\nPenstock-Producer: p"
    sent = f"{head}\r\nPenstock-Position: {position}\r\nContent-Length: 2\r\n\r\nx\n".encode("latin-1")
    assert converse(shared, sent).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("depth", [300, 480, 490, 900, 990, 100_000])
def test_json_in_one_another_is_lines_or_refused(shared: Processes, depth: int) -> None:
    body = b'{"a":' * depth + b"1" + b"}" * depth
    status, reply = request(shared, "POST", "/streams/web/events", body, Content_Type="application/json")
    assert status == 200 or (status, reply["error"]) == (422, "NOT_JSON")
