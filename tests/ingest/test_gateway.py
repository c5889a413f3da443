"""A gateway acknowledges lines that are on disk, takes each line once, and refuses invalid input with a reason."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError, UserError
from penstock.ingest.frames import GAP, Frame
from penstock.ingest.gateway_command import main as gateway_main
from penstock.ingest.intake import Hello
from penstock.ingest.store import Store
from tests.ingest.processes import Connection, Processes, Running, token_file, until
from tests.metrics.text import parse

pytestmark = pytest.mark.process

WEB1 = Hello("clicks", "web1")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A gateway that all tests of this file use, each with producers of its own."""
    processes = Processes(tmp_path_factory.mktemp("gateway"))
    processes.gateway("--most-bytes", "100K", "--partitions", "2", http=True)
    yield processes
    processes.end()


def framed(producer: str, first: int, *lines: bytes) -> Frame:
    return Frame.of(producer, first, b"".join(line + b"\n" for line in lines))


def lines_of(processes: Processes, stream: str, producer: str) -> list[bytes]:
    return [line for line in processes.lines(stream) if line.startswith(producer.encode() + b" ")]


def request(
    processes: Processes, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, object]]:
    line = http.client.HTTPConnection("127.0.0.1", processes.http_port, timeout=10)
    try:
        line.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = line.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        line.close()


def test_acknowledged_lines_can_be_read(shared: Processes) -> None:
    with Connection(shared.port, WEB1) as line:
        assert line.hello_reply == {"next": 0, "most_bytes": 100 << 10}
        frame = framed("web1", 0, b"web1 a", b"web1 b")
        line.send(frame.encoded())
        assert line.reply() == {"durable": frame.end}
    assert lines_of(shared, "clicks", "web1") == [b"web1 a", b"web1 b"]
    with Connection(shared.port, WEB1) as line:
        assert line.hello_reply["next"] == frame.end


def test_replayed_batches_are_dropped_and_acknowledged(shared: Processes) -> None:
    first = framed("again", 0, b"again a", b"again b")
    second = framed("again", first.end, b"again c")
    with Connection(shared.port, Hello("clicks", "again")) as line:
        for frame in (first, second, first, second, first):
            line.send(frame.encoded())
        while line.reply_with("durable")["durable"] < second.end:
            pass
        both = framed("again", 0, b"again a", b"again b", b"again c", b"again d")
        line.send(both.encoded())
        while line.reply_with("durable")["durable"] < both.end:
            pass
    assert lines_of(shared, "clicks", "again") == [b"again a", b"again b", b"again c", b"again d"]


def test_reordered_batches_are_refused_with_the_next_position(shared: Processes) -> None:
    first = framed("order", 0, b"order a")
    second = framed("order", first.end, b"order b")
    with Connection(shared.port, Hello("clicks", "order")) as line:
        line.send(second.encoded() + first.encoded())
        reply = line.reply_with("error")
        assert (reply["error"], reply["next"]) == ("SEQUENCE_GAP", 0)
    with Connection(shared.port, Hello("clicks", "order")) as line:
        assert line.hello_reply["next"] == 0  # nothing after the refused one was taken either
        line.send(first.encoded() + second.encoded())
        while line.reply_with("durable")["durable"] < second.end:
            pass
    assert lines_of(shared, "clicks", "order") == [b"order a", b"order b"]


def test_half_a_frame_is_discarded(shared: Processes) -> None:
    frame = framed("half", 0, b"half a")
    with Connection(shared.port, Hello("clicks", "half")) as line:
        line.send(frame.encoded()[:-1])
    with Connection(shared.port, Hello("clicks", "half")) as line:
        assert line.hello_reply["next"] == 0
        line.send(frame.encoded())
        assert line.reply() == {"durable": frame.end}
    assert lines_of(shared, "clicks", "half") == [b"half a"]


def test_a_wrong_checksum_is_refused(shared: Processes) -> None:
    data = bytearray(framed("wrong", 0, b"wrong a").encoded())
    data[-2] ^= 1
    with Connection(shared.port, Hello("clicks", "wrong")) as line:
        line.send(bytes(data))
        assert line.reply_with("error")["error"] == "BAD_FRAME"
    assert lines_of(shared, "clicks", "wrong") == []


def test_a_frame_that_is_too_large_is_refused(shared: Processes) -> None:
    with Connection(shared.port, Hello("clicks", "large")) as line:
        line.send(framed("large", 0, b"large " + b"x" * (200 << 10)).encoded())
        reply = line.reply_with("error")
        assert reply["error"] == "BAD_FRAME"
        assert "larger than" in reply["reason"]


def test_a_frame_of_another_producer_is_refused(shared: Processes) -> None:
    with Connection(shared.port, Hello("clicks", "me")) as line:
        line.send(framed("you", 0, b"you a").encoded())
        assert line.reply_with("error")["error"] == "BAD_FRAME"


@pytest.mark.parametrize("stream", ["../clicks", "", "a/b", ".readers"])
def test_stream_names_that_are_paths_are_refused(shared: Processes, stream: str) -> None:
    with Connection(shared.port, Hello(stream, "p")) as line:
        assert line.hello_reply["error"] == "BAD_STREAM_NAME"
    assert request(shared, "POST", f"/streams/{stream}/events", b"x\n")[0] in (404, 422)


def test_a_second_connection_of_a_producer_replaces_the_first(shared: Processes) -> None:
    with (
        Connection(shared.port, Hello("clicks", "twice")) as old,
        Connection(shared.port, Hello("clicks", "twice")) as new,
    ):
        assert old.reply_with("error")["error"] == "TAKEN_OVER"
        frame = framed("twice", 0, b"twice a")
        new.send(frame.encoded())
        assert new.reply() == {"durable": frame.end}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    garbage=st.binary(min_size=1, max_size=300),
    where=st.sampled_from(["first", "after hello", "after frame", "http"]),
)
def test_garbage_never_stops_the_gateway(shared: Processes, garbage: bytes, where: str) -> None:
    if where == "http":
        with socket.create_connection(("127.0.0.1", shared.http_port)) as line:
            line.sendall(garbage)
    else:
        with Connection(shared.port, None if where == "first" else Hello("clicks", "garbage")) as connection:
            if where == "after frame":
                connection.send(framed("garbage", connection.hello_reply["next"], b"garbage a").encoded())
            connection.send(garbage)
    with Connection(shared.port, Hello("clicks", "good")) as good:
        frame = framed("good", good.hello_reply["next"], b"good a")
        good.send(frame.encoded())
        assert good.reply() == {"durable": frame.end}


def test_lines_and_json_can_be_sent_over_http(shared: Processes) -> None:
    assert request(shared, "POST", "/streams/web/events", b"a\nb") == (200, {"lines": 2})
    events = json.dumps([{"n": 1}, {"n": "two\n"}]).encode()
    assert request(shared, "POST", "/streams/web/events", events, Content_Type="application/json") == (
        200,
        {"lines": 2},
    )
    assert request(shared, "POST", "/streams/web/events", b"") == (200, {"lines": 0})
    assert shared.lines("web") == [b"a", b"b", b'{"n":1}', b'{"n":"two\\n"}']


def test_a_gateway_exports_metrics_for_prometheus(shared: Processes) -> None:
    line = http.client.HTTPConnection("127.0.0.1", shared.http_port, timeout=10)
    line.request("POST", "/streams/measured/events", body=b"a\nb\n")
    assert line.getresponse().read() == b'{"lines": 2}\n'
    line.request("GET", "/metrics")
    response = line.getresponse()
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    metrics = parse(response.read().decode())
    assert metrics["penstock_gateway_lines_total", ()] >= 2
    assert metrics["penstock_gateway_producers", (("stream", "measured"),)] == 1


def test_a_request_with_a_position_can_be_repeated(shared: Processes) -> None:
    for new in (2, 0, 0):
        reply = request(
            shared, "POST", "/streams/repeat/events", b"a\nb\n", Penstock_Producer="me", Penstock_Position="0"
        )
        assert reply == (200, {"lines": new, "durable": 4})
    status, reply = request(
        shared, "POST", "/streams/repeat/events", b"d\n", Penstock_Producer="me", Penstock_Position="6"
    )
    assert (status, reply["error"], reply["next"]) == (409, "SEQUENCE_GAP", 4)
    assert shared.lines("repeat") == [b"a", b"b"]


def test_a_body_without_its_last_newline_counts_with_it(shared: Processes) -> None:
    def sent(body: bytes, position: int) -> tuple[int, dict[str, object]]:
        headers = {"Penstock_Producer": "unended", "Penstock_Position": str(position)}
        return request(shared, "POST", "/streams/unended/events", body, **headers)

    assert sent(b"a", 7)[1]["next"] == 0
    assert sent(b"a\nb", 0) == (200, {"lines": 2, "durable": 4})
    status, reply = sent(b"c\n", 3)
    assert (status, reply["error"], reply["next"]) == (409, "SEQUENCE_GAP", 4)
    assert sent(b"b\nc\n", 2) == (200, {"lines": 1, "durable": 6})
    assert shared.lines("unended") == [b"a", b"b", b"c"]


def test_lines_refused_by_a_full_disk_are_reported_and_not_counted(
    processes: Processes, small_disk: Path
) -> None:
    processes.log.symlink_to(small_disk)
    gateway = processes.gateway(http=True)
    line = os.urandom(30_000).hex().encode() + b"\n"
    taken = []
    for _ in range(20):
        taken.append(request(processes, "POST", "/streams/web/events", line)[0])
    assert set(taken) == {200, 503}
    status = request(processes, "GET", "/status")[1]
    assert status["lines"] == status["frames"] == taken.count(200) == len(processes.lines("web"))
    refused = gateway.reports("refused")
    assert len(refused) == taken.count(503)
    assert refused[0]["condition"] == "LOG_UNWRITABLE"
    assert "No space left on device" in refused[0]["reason"]


def test_a_gap_is_counted_only_once_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, partitions=1)
    store.append([Frame.of("a", 0, b"a 1\n")])
    later = Frame.of("a", 10, b"a 3\n", flags=GAP)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(ExternalError, match="LOG_UNWRITABLE"):
            store.append([later])
    assert store.given_up == 0
    store.append([later])
    assert store.given_up == 6
    store.close()


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "headers"),
    [
        (413, "POST", "/streams/web/events", b"x" * (101 << 10), {}),
        (404, "POST", "/streams/web", b"x", {}),
        (404, "POST", "/streams/../../etc/events", b"x", {}),
        (422, "POST", "/streams/..%2F..%2Fetc/events", b"x", {}),
        (405, "GET", "/streams/web/events", b"", {}),
        (422, "POST", "/streams/web/events", b"{", {"Content-Type": "application/json"}),
        (422, "POST", "/streams/web/events", b"[1]", {"Content-Type": "application/json"}),
        (422, "POST", "/streams/web/events", b"[" * 90_000, {"Content-Type": "application/json"}),
        (411, "POST", "/streams/web/events", b"", {"Transfer-Encoding": "chunked"}),
        (400, "POST", "/streams/web/events", b"x", {"Penstock-Producer": "me", "Penstock-Position": "-1"}),
        (422, "POST", "/streams/web/events", b"x", {"Penstock-Producer": "http", "Penstock-Position": "0"}),
    ],
)
def test_an_invalid_request_is_refused_with_its_status(
    shared: Processes, status: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    line = http.client.HTTPConnection("127.0.0.1", shared.http_port, timeout=10)
    line.putrequest(method, path)
    for name, value in headers.items():
        line.putheader(name, value)
    if "Transfer-Encoding" not in headers:
        line.putheader("Content-Length", str(len(body)))
    line.endheaders(body if status != 413 else None)
    reply = line.getresponse()
    assert reply.status == status
    assert set(json.loads(reply.read())) == {"error", "reason", "hint"}
    line.close()


def test_a_gateway_with_a_token_refuses_clients_without_it(processes: Processes, tmp_path: Path) -> None:
    token_file(tmp_path / "token", "open-sesame-open-sesame")
    gateway = processes.gateway("--token-file", tmp_path / "token", http=True)
    with Connection(processes.port, Hello("clicks", "p", "wrong")) as line:
        assert line.hello_reply["error"] == "BAD_TOKEN"
    with Connection(processes.port, Hello("clicks", "p", "open-sesame-open-sesame")) as line:
        assert line.hello_reply["next"] == 0
    assert request(processes, "POST", "/streams/clicks/events", b"x\n")[0] == 401
    assert request(processes, "GET", "/status")[0] == 401
    assert request(processes, "GET", "/health")[0] == 200
    reply = request(
        processes, "POST", "/streams/clicks/events", b"x\n", Authorization="Bearer open-sesame-open-sesame"
    )
    assert reply == (200, {"lines": 1})
    by_agent, by_http, *_ = gateway.reports("refused")
    assert by_agent["condition"] == by_http["condition"] == "BAD_TOKEN"
    assert (by_http["status"], by_http["request"]) == (401, "POST /streams/clicks/events")
    assert "Bearer" in str(request(processes, "GET", "/status")[1]["hint"])
    assert "open-sesame-open-sesame" not in gateway.text()
    agent = processes.agent("--drain", "500ms")
    assert agent.wait() == 0  # it had nothing to ship
    assert gateway.stop() == 0


def test_listening_for_other_machines_needs_a_token(tmp_path: Path) -> None:
    for option in ("--listen", "--http"):
        with pytest.raises(UserError, match="TOKEN_NEEDED"):
            gateway_main(["--dir", str(tmp_path), option, "0.0.0.0:0"])


@pytest.mark.parametrize("command", ["gateway", "agent"])
def test_a_token_file_has_the_rules_of_the_server(tmp_path: Path, command: str) -> None:
    file = token_file(tmp_path / "token", "x")
    rest = ["--dir", tmp_path] if command == "gateway" else ["--to", "127.0.0.1:1", "--drain", "0s"]
    listen = ["--listen", "127.0.0.1:0"] if command == "gateway" else []
    for condition, code in (("TOKEN_TOO_SHORT", 2), ("TOKEN_FILE_OPEN", 2), ("TOKEN_FILE_UNREADABLE", 3)):
        running = Running(command, *rest, *listen, "--token-file", file)
        try:
            assert running.wait() == code
        finally:
            running.kill()
        assert f"[{condition}]" in running.text()
        token_file(file, "long enough to be one".replace(" ", "-"))
        file.chmod(0o644)
        if condition == "TOKEN_FILE_OPEN":
            file.unlink()


def test_connections_are_limited(processes: Processes) -> None:
    processes.gateway("--most-connections", 2)
    a, b = Hello("s", "a"), Hello("s", "b")
    with Connection(processes.port, a), Connection(processes.port, b), Connection(processes.port) as third:
        assert third.reply()["error"] == "TOO_MANY_CONNECTIONS"
    until(lambda: Connection(processes.port, Hello("s", "c")).hello_reply.get("next") == 0)


def test_senders_wait_while_the_disk_is_slower_than_they_are(processes: Processes) -> None:
    """With room for one frame in memory all lines still arrive."""
    processes.gateway("--most-waiting", "1")
    with Connection(processes.port, WEB1) as line:
        position = 0
        for n in range(60):
            frame = framed("web1", position, *(b"web1 %d %d" % (n, m) for m in range(50)))
            line.send(frame.encoded())
            position = frame.end
        while line.reply_with("durable")["durable"] < position:
            pass
    assert len(processes.lines("clicks")) == 3000


def test_a_second_gateway_on_the_same_logs_is_refused(processes: Processes) -> None:
    processes.gateway()
    with Connection(processes.port, WEB1) as line:
        assert line.hello_reply["next"] == 0
    other = Running("gateway", "--dir", processes.log, "--listen", "127.0.0.1:0")
    assert other.wait() == 3
    assert "[LOG_TAKEN]" in other.text()
    assert not other.reports("listening")


def test_a_restart_within_a_batch_takes_it_whole_or_not_at_all(processes: Processes) -> None:
    gateway = processes.gateway()
    frame = framed("web1", 0, *(b"web1 %d" % n for n in range(3000)))
    line = Connection(processes.port, WEB1)
    line.send(frame.encoded()[: len(frame.encoded()) // 2])
    gateway.kill()
    processes.gateway()
    with Connection(processes.port, WEB1) as line:
        assert line.hello_reply["next"] == 0
        line.send(frame.encoded())
        assert line.reply() == {"durable": frame.end}
    assert processes.lines("clicks") == [b"web1 %d" % n for n in range(3000)]
