"""Every limit holds, and a request beyond it is refused with a reason."""

from __future__ import annotations

import gc
import io
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.limits import Limits, RateLimiter
from penstock.server.structured_log import log_as_json
from tests.server import kit

SMALL = Limits(body_bytes=2_000, sql_characters=500)


@pytest.fixture
def site(state: Path) -> Iterator[kit.Site]:
    with kit.site(state, limits=SMALL) as found:
        yield found


def test_a_body_that_is_too_large_is_refused(site: kit.Site) -> None:
    reply = site.sql(f"SHOW JOBS --{'x' * 3_000}", 413)
    assert reply["condition"] == "BODY_TOO_LARGE"


def test_a_body_without_its_length_is_counted(site: kit.Site) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1_000):
            sent += 100
            yield b"x" * 100

    response = site.http.post("/streams/clicks/events", content=pieces(), headers=kit.LINES)
    assert (response.status_code, response.json()["condition"]) == (413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"99999999999999999999", b"x"])
def test_an_invalid_content_length_is_refused(site: kit.Site, length: bytes) -> None:
    host, port = site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n")
        assert line.recv(100).split()[1] in (b"400", b"413")
    assert site.get("/health")["status"] == "ok"


def test_a_query_that_is_too_long_is_refused(site: kit.Site) -> None:
    reply = site.sql(f"SHOW JOBS --{'x' * 600}", 413)
    assert reply["condition"] == "QUERY_TOO_LONG"
    deep = "(" * 60 + "1" + ")" * 60
    assert site.sql(f"CREATE JOB x AS SELECT {deep} AS n FROM clicks", 422)["condition"] == "QUERY_TOO_DEEP"


def test_a_nested_body_is_refused(site: kit.Site) -> None:
    body = '{"message": ' + "[" * 900 + "]" * 900 + "}"
    response = site.http.post(
        "/jobs/pages/messages", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code < 500


def test_a_client_that_sends_too_often_gets_the_time_to_retry(state: Path) -> None:
    with kit.site(state, limits=Limits(requests_per_second=0.5, request_burst=5)) as site:
        responses = [site.http.get("/status") for _ in range(8)]
        assert [one.status_code for one in responses[:5]] == [200] * 5
        assert {one.status_code for one in responses[5:]} == {429}
        assert responses[-1].json()["condition"] == "TOO_MANY_REQUESTS"
        assert int(responses[-1].headers["retry-after"]) >= 1


def test_a_token_bucket_fills_with_time_and_is_each_clients_own() -> None:
    now = [0.0]
    limiter = RateLimiter(10.0, 2, clock=lambda: now[0])
    assert [limiter.take("a"), limiter.take("a")] == [0, 0]
    assert limiter.take("a") == pytest.approx(0.1)
    assert limiter.take("b") == 0
    now[0] += 0.1
    assert limiter.take("a") == 0
    assert limiter.take("a") > 0
    now[0] += 1_000
    assert [limiter.take("a") == 0 for _ in range(3)] == [True, True, False], "at most the burst"


def test_clients_remembered_are_bounded() -> None:
    limiter = RateLimiter(1.0, 1)
    for number in range(20_000):
        limiter.take(str(number))
    assert len(limiter._clients) <= 10_000


@pytest.mark.slow
def test_subscribers_are_bounded(state: Path) -> None:
    with kit.site(state, limits=Limits(subscribers=2)) as site:
        with (
            site.http.stream("GET", "/jobs/pages/events") as one,
            site.http.stream("GET", "/jobs/pages/events") as two,
        ):
            assert (one.status_code, two.status_code) == (200, 200)
            third = site.http.get("/jobs/pages/events")
            assert (third.status_code, third.json()["condition"]) == (429, "TOO_MANY_SUBSCRIBERS")
        kit.until(lambda: site.get("/status")["subscribers"] == 0)
        with site.http.stream("GET", "/jobs/pages/events") as again:
            assert again.status_code == 200


def test_requests_are_logged_as_json_lines(state: Path) -> None:
    into = io.StringIO()
    handler = log_as_json(into)
    try:
        with kit.site(state) as site:
            site.sql("SHOW NOTHING", 422)
    finally:
        logging.getLogger("penstock").removeHandler(handler)
        logging.getLogger("uvicorn").removeHandler(handler)
        logging.getLogger("penstock").propagate = logging.getLogger("uvicorn").propagate = True
    found = [json.loads(line) for line in into.getvalue().splitlines()]
    (request,) = [line for line in found if line["event"] == "request"]
    assert (request["method"], request["path"], request["status"]) == ("POST", "/sql", 422)
    assert request["client"] == "127.0.0.1"


def test_the_body_of_a_response_does_not_wait_until_its_head_is_acknowledged(site: kit.Site) -> None:
    """With Nagle's algorithm it does: for the 40 ms that a client may take for that."""
    site.get("/health")
    port = int(site.url.rpartition(":")[2])
    found = [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]
    connections = [
        one for one in found if one.type == socket.SOCK_STREAM and _port(one) == port and _is_line(one)
    ]
    assert connections
    assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in connections)


def _port(one: socket.socket) -> int | None:
    return one.getsockname()[1] if one.family == socket.AF_INET else None


def _is_line(one: socket.socket) -> bool:
    """Whether it is a connection, not what listens for them."""
    try:
        one.getpeername()
    except OSError:
        return False
    return True
