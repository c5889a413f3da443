"""Subscriptions: every epoch once, also for subscribers that disconnect, join late or are slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.catalogue.program import Program
from penstock.client.subscription import EventReader
from penstock.delivery.result_log import ResultLog
from penstock.server.limits import Limits
from penstock.server.subscriptions import Ring
from tests.catalogue import kit as jobs_kit
from tests.server import kit


@contextlib.contextmanager
def open_subscription(
    site: kit.Site, path: str = "/jobs/seen/events", **options: Any
) -> Iterator[Iterator[dict[str, Any]]]:
    """Open a subscription and yield its events."""
    with site.http.stream("GET", path, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response)


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    reader = EventReader()
    for piece in response.iter_bytes():
        for event in reader.read(piece):
            epoch = None if event.id is None else int(event.id)
            yield {"kind": event.kind, "epoch": epoch, **json.loads(event.data)}


def take(found: Iterator[dict[str, Any]], count: int) -> list[int]:
    """Return the epochs of the next results."""
    epochs: list[int] = []
    while len(epochs) < count:
        event = next(found)
        assert event["kind"] in ("begun", "rows", "position"), event
        if event["kind"] == "rows":
            epochs.append(event["epoch"])
    return epochs


def test_a_subscriber_gets_what_is_emitted_from_now_on(state: Path) -> None:
    with kit.site(state, kit.ALL) as site:
        site.epochs(3)
        with open_subscription(site) as found:
            assert next(found) == {"kind": "begun", "epoch": 3, "job": "seen", "since": 4}
            site.epochs(2)
            rows = [next(found), next(found)]
        assert [event["epoch"] for event in rows] == [4, 5]
        assert rows[0]["rows"][0].keys() == {"ts", "page", "user", "status"}
        assert rows[1] | {"kind": "", "rows": []} == site.get("/jobs/seen/answer") | {"kind": "", "rows": []}


def test_a_subscriber_gets_all_windows_that_an_epoch_closes(state: Path) -> None:
    sql = "CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
    with kit.site(state, sql) as site:
        with open_subscription(site, "/jobs/counts/events") as found:
            assert next(found)["kind"] == "begun"
            for line in kit.LATER[:200]:
                site.log.add("p0", line)
            site.running.steps()
            result = next(event for event in found if event["kind"] == "rows")
        last = site.get("/jobs/counts/answer")
        assert (result["epoch"], result["rows"][-len(last["rows"]) :]) == (last["epoch"], last["rows"])
        assert len(result["rows"]) > 3 * len(last["rows"])


def test_a_subscriber_that_reconnects_continues_where_it_was(state: Path) -> None:
    with kit.site(state, kit.ALL) as site:
        with open_subscription(site) as found:
            site.epochs(4)
            assert take(found, 2) == [1, 2]
        site.epochs(30)
        with open_subscription(site, headers={"last-event-id": "2"}) as found:
            assert take(found, 32) == list(range(3, 35))
            site.epochs(2)
            assert take(found, 2) == [35, 36]
        with open_subscription(site, "/jobs/seen/events?since=10") as found:
            assert take(found, 27) == list(range(10, 37))


def test_an_id_that_is_no_epoch_is_refused(state: Path) -> None:
    with kit.site(state, kit.ALL) as site:
        for event_id in ("x", "-7", "1e3"):
            response = site.http.get("/jobs/seen/events", headers={"last-event-id": event_id})
            assert (response.status_code, response.json()["condition"]) == (422, "BAD_EVENT_ID")
        response = site.http.get("/jobs/seen/events", headers={"last-event-id": "400"})
        assert response.json()["condition"] == "EPOCH_AHEAD"


def test_a_silent_job_reports_its_position(state: Path) -> None:
    sql = f"{kit.ALL}; CREATE JOB never AS SELECT page FROM clicks WHERE status = 999"
    with (
        kit.site(state, sql, limits=Limits(heartbeat_seconds=0.05)) as site,
        open_subscription(site, "/jobs/never/events") as f,
    ):
        assert next(f)["kind"] == "begun"
        site.epochs(3)
        while (event := next(f))["epoch"] < 3:
            assert event["kind"] == "position"


def test_a_job_that_is_dropped_ends_its_subscriptions(state: Path) -> None:
    with kit.site(state, kit.ALL) as site, open_subscription(site) as found:
        assert next(found)["kind"] == "begun"
        site.epochs(1)
        assert take(found, 1) == [1]
        site.sql("DROP JOB seen; CREATE JOB seen AS SELECT page FROM clicks")
        last = next(found)
        assert (last["kind"], last["reason"]) == ("dropped", "job_dropped")
        assert next(found, None) is None
        with open_subscription(site) as reconnected:
            next(reconnected)
            site.epochs(1)
            assert next(reconnected)["rows"][0].keys() == {"page"}


def test_a_service_that_ends_reports_it(state: Path) -> None:
    with kit.site(state, kit.ALL) as site, open_subscription(site) as found:
        next(found)
        site.epochs(1)
        site.running.host.end()
        assert take(found, 1) == [1]
        assert next(found)["reason"] == "ending"


def test_results_that_are_no_longer_retained_are_reported_and_not_skipped(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ResultLog.__init__

    def few(self: ResultLog, directory: Path, kept: int = 10) -> None:
        made(self, directory, kept)

    monkeypatch.setattr(ResultLog, "__init__", few)
    with kit.site(state, kit.ALL) as site:
        site.epochs(30)
        site.running.remove_old_state(5)
        first_retained = site.running.host.program.questions.retained_from
        assert 0 < first_retained <= 21
        gone = site.http.get("/jobs/seen/events?since=2")
        assert (gone.status_code, gone.json()["condition"]) == (410, "RESULTS_GONE")
        assert site.get("/jobs/seen/results?since=2", 410)["condition"] == "RESULTS_GONE"
        with open_subscription(site, f"/jobs/seen/events?since={first_retained}") as found:
            assert take(found, 31 - first_retained) == list(range(first_retained, 31))
        site.sql("CREATE JOB late AS SELECT page FROM clicks WHERE status = 999")
        site.epochs(20)
        with open_subscription(site, "/jobs/late/events?since=2") as found:
            assert next(found)["kind"] == "begun", "it emitted nothing, so nothing is missed"


def test_a_ring_drops_results_that_are_too_old_or_too_large() -> None:
    async def exercise() -> None:
        ring = Ring("job", 1, 4, Limits(behind_epochs=3, behind_bytes=100))
        ring.add([(5, b"x"), (7, b"x")], 8)
        assert (ring.after_epoch, ring.last_epoch) == (4, 8)
        ring.add([(9, b"x"), (10, b"x")], 10)
        assert ring.after_epoch == 5
        ring.add([(11, b"x" * 99)], 11)
        assert ring.after_epoch == 9
        ring.add([(12, b"x" * 1_000)], 12)
        assert (ring.after_epoch, list(ring.events)) == (11, [(12, b"x" * 1_000)])

    asyncio.run(exercise())


@contextlib.contextmanager
def wide_site(state: Path, limits: Limits) -> Iterator[kit.Site]:
    """Serve a job whose results are too large for the network buffers to hold many of them."""
    log = kit.PushedLog()
    wide = "REPEAT('x', 100000)"  # no text may be longer
    sql = f"CREATE JOB seen AS SELECT page, {wide} AS wide, {wide} AS wider FROM clicks"
    jobs = Program("test", state, streams={"clicks": jobs_kit.of_log(log)}, begin=sql)
    with kit.serving(jobs, state, by_itself=False, limits=limits) as running:
        running.steps()
        with httpx.Client(base_url=running.url, timeout=20) as http:
            yield kit.Site(running, log, http)


def open_without_reading(site: kit.Site) -> socket.socket:
    """Open a subscription that is never read."""
    host, port = site.url.removeprefix("http://").split(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    line.connect((host, int(port)))
    line.sendall(b"GET /jobs/seen/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return line


@pytest.mark.slow
def test_a_slow_subscriber_is_dropped_with_a_reason_and_delays_nobody(state: Path) -> None:
    limits = Limits(behind_epochs=8, patience_seconds=30)
    with wide_site(state, limits) as site, open_subscription(site) as quick:
        line = open_without_reading(site)
        kit.until(lambda: site.get("/status")["subscribers"] == 2)
        next(quick)
        for number in range(1, 61):
            started_at = time.monotonic()
            site.epochs(1)
            assert time.monotonic() - started_at < limits.patience_seconds
            assert take(quick, 1) == [number]
        read = b""
        line.settimeout(10)
        while b"event: dropped" not in read[-1_000:]:  # it starts to read now
            piece = line.recv(1 << 20)
            assert piece
            read = read[-1_000:] + piece
        assert b'"reason": "slow"' in read
        line.close()
        kit.until(lambda: site.get("/status")["subscribers"] == 1)
        assert site.get("/status")["subscribers_dropped"] == {"slow": 1}


@pytest.mark.slow
def test_a_subscriber_that_never_reads_is_disconnected(state: Path) -> None:
    with wide_site(state, Limits(behind_epochs=8, patience_seconds=0.3)) as site:
        line = open_without_reading(site)
        kit.until(lambda: site.get("/status")["subscribers"] == 1)
        site.epochs(40)
        kit.until(lambda: site.get("/status")["subscribers"] == 0)
        assert site.get("/status")["subscribers_dropped"] == {"stuck": 1}
        line.close()


@pytest.mark.slow
def test_two_hundred_subscribers_get_every_epoch_once(state: Path) -> None:
    """Some of them disconnect in between and reconnect."""
    epochs, clients = 25, 200

    async def one(client: httpx.AsyncClient, number: int) -> list[int]:
        found: list[int] = []
        last, breaks = -1, [6, 13] if number % 5 == 0 else []
        while len(found) < epochs:
            async with client.stream(
                "GET", "/jobs/seen/events", headers={"last-event-id": str(last)}
            ) as response:
                assert response.status_code == 200
                reader = EventReader()
                async for piece in response.aiter_bytes():
                    for event in reader.read(piece):
                        if event.kind == "rows":
                            assert event.id is not None
                            last = int(event.id)
                            found.append(last)
                    if len(found) >= (breaks[0] if breaks else epochs):
                        breaks = breaks[1:]
                        break
        return found

    async def everyone(url: str) -> list[list[int]]:
        wide = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=wide, timeout=60) as client:
            return await asyncio.gather(*(one(client, number) for number in range(clients)))

    with kit.site(state, kit.ALL) as site:
        site.epochs(5)
        found: list[list[int]] = []
        thread = threading.Thread(target=lambda: found.extend(asyncio.run(everyone(site.url))))
        thread.start()
        kit.until(lambda: site.get("/status")["subscribers"] >= clients // 2, 60)
        site.epochs(20)
        thread.join(90)
        assert len(found) == clients
        assert all(received == list(range(1, epochs + 1)) for received in found)
        assert site.get("/status")["subscribers_dropped"] == {}
