"""`penstock serve --ha` with engines on Spark: the leader is killed while statements, requests and a subscription
continue."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import connect
from penstock.client.own_token import OwnToken
from penstock.errors import PenstockError
from tests.cli.served_unit import Feeder, Listener, Site

#: two Spark sessions start, one after the other, on a machine that may be busy
LONG = 300.0
STREAM = """CREATE STREAM clicks FROM segments('{folder}/clicks') FORMAT json(at TIMESTAMP, n BIGINT)
    EVENT TIME at LATENESS 1 SECOND"""

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.timeout(900)]


def event(n: int) -> dict[str, Any]:
    """One event a second."""
    return {"at": (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=n)).isoformat(), "n": n}


class Poller:
    """Requests a job's latest result repeatedly on a thread."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self.epochs: list[int] = []
        self.longest = 0.0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._stop.wait(0.1):
                started = time.monotonic()
                result = (
                    httpx.get(self._url, timeout=LONG, auth=OwnToken(self._url)).raise_for_status().json()
                )
                self.longest = max(self.longest, time.monotonic() - started)
                self.epochs.append(result["epoch"])
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LONG)
        assert self.error is None, self.error


def rows(listener: Listener) -> list[dict[str, Any]]:
    return [row for one in list(listener.results) for row in one.dicts()]


def test_a_killed_leader_on_spark_costs_the_clients_of_a_served_unit_nothing(tmp_path: Path) -> None:
    scheme = ("--scheme", "active-standby")
    unit = Site(
        tmp_path, "--empty", "--files", str(tmp_path), *scheme, master="local[1]", lease="6s", wait=LONG
    )
    service = unit.start()
    try:
        with connect(unit.url, timeout_seconds=LONG) as client:

            def accepts_statements() -> bool:
                assert service.poll() is None
                with suppress(PenstockError):
                    return client.status().phase in ("starting engines", "running")
                return False

            unit.wait_for(accepts_statements)
            client.sql(STREAM.format(folder=tmp_path))
            client.create("seen", "SELECT n FROM clicks")
            client.create("sums", "SELECT COUNT(*) AS c, SUM(n) AS s FROM clicks WINDOWING 10 SECONDS")
            listener, sums = Listener(unit.url, "seen"), Listener(unit.url, "sums")
            feeder = Feeder(lambda n: client.push("clicks", [event(n)]) and None)
            unit.wait_for(lambda: len(listener.results) >= 3)
            poller = Poller(f"{unit.url}/jobs/seen/answer")
            unit.wait_for(lambda: unit.find_ready_engines("following"))
            first = unit.record().leader or ""
            unit.kill(first)
            client.alter("seen", where="n % 2 = 0")  # accepted also while no engine leads
            unit.wait_for(lambda: unit.record().leader not in (None, first))
            client.create("more", "SELECT n FROM clicks")
            more = Listener(unit.url, "more")
            pushed = feeder.count
            unit.wait_for(lambda: more.numbers() and max(more.numbers()) > pushed)
            count = feeder.stop()
            unit.wait_for(lambda: max(listener.numbers()) >= count - 2 and max(more.numbers()) >= count - 1)
            poller.stop()
            numbers, more_numbers = listener.numbers(), more.numbers()
            odd = [n for n in numbers if n % 2]
            assert numbers == sorted(set(numbers)), "each once, in order"
            assert [n for n in numbers if n % 2 == 0] == list(range(0, count, 2)), "none is lost"
            assert odd == list(range(1, 2 * len(odd), 2)), "the alteration holds from an epoch on"
            assert len(odd) < count // 2
            assert more_numbers == list(range(more_numbers[0], count)), (
                "and the new job has all from an epoch on"
            )
            unit.wait_for(lambda: len(rows(sums)) >= (count - 2) // 10)
            starts = range(0, (count - 2) // 10 * 10, 10)
            expected = [{"c": 10, "s": sum(range(start, start + 10))} for start in starts]
            assert rows(sums) == expected, "the follower had the state"
            assert [(one.epoch, one.dicts()) for one in client.results("seen")] == [
                (one.epoch, one.dicts()) for one in listener.results
            ]
            assert poller.epochs == sorted(poller.epochs)
            assert poller.epochs, "requests were answered"
            assert poller.longest < 5.0
            recovery = unit.record().recoveries[-1]
            assert recovery.lost == first
            assert recovery.outcome == {}
    finally:  # a third engine is starting, and the test does not wait for it
        service.kill()
        with suppress(PenstockError):
            unit.kill(*unit.engines())
        unit.close()
