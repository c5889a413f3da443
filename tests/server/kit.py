"""A service on the inline engine whose epochs the test runs, and an HTTP client for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.catalogue.program import Program
from penstock.testing.serving import PushedLog, Serving, serving
from tests.catalogue import kit

PAGES = "CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
ALL = "CREATE JOB seen AS SELECT ts, page, user, status FROM clicks"
LINES = {"content-type": "application/x-ndjson"}


def lines(count: int, seed: int = 7) -> list[str]:
    return [json.dumps(event) for event in kit.events(count, seed)]


#: events for epochs to come, in order of time
LATER = lines(1_000)


class Site:
    """A service, its log, and a plain HTTP client."""

    def __init__(self, running: Serving, log: PushedLog, http: httpx.Client) -> None:
        self.running, self.log, self.http, self.url = running, log, http, running.url
        self._used = 0

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return self._read(self.http.get(path, **options), status)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self._read(self.http.post(path, json=body), status)

    def sql(self, text: str, status: int = 200) -> Any:
        return self.post("/sql", {"sql": text}, status)

    def _read(self, response: httpx.Response, status: int) -> Any:
        assert response.status_code == status, response.text
        return response.json()

    def epochs(self, count: int) -> None:
        """Run so many epochs of one event each."""
        for line in LATER[self._used : self._used + count]:
            self.log.add("p0", line)
            assert self.running.step()
        self._used += count


@contextmanager
def site(
    state: Path, sql: str = PAGES, *, events: int = 0, token: str | None = None, **options: Any
) -> Iterator[Site]:
    """A service of one stream `clicks`, whose epochs the test runs (unless `by_itself`)."""
    log = PushedLog(lines(events))
    jobs = Program("test", state, streams={"clicks": kit.of_log(log)}, begin=sql)
    options = {"by_itself": False, **options}
    with serving(jobs, state, token=token, **options) as running:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=20) as http:
            running_site = Site(running, log, http)
            if not options["by_itself"]:
                running.steps()
            yield running_site


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until the condition holds and return its value; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError("the condition did not hold in time")
