"""Statements that wait for each other keep nobody else waiting, and one caller not all places."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx

from penstock.server.limits import Limits
from tests.server import kit

DEADLINE_SECONDS = 60


def test_results_are_read_while_many_statements_wait_for_a_check(tmp_path: Path) -> None:
    limits = Limits(statements_per_caller=20)
    with kit.site(tmp_path / "state", f"{kit.PAGES};\n{kit.ALL}", events=100, limits=limits) as site:
        replies: list[int] = []

        def ask(explained: str) -> None:
            response = httpx.post(f"{site.url}/sql", json={"sql": explained}, timeout=DEADLINE_SECONDS)
            replies.append(response.status_code)

        explain = "EXPLAIN SELECT page FROM clicks"
        callers = [threading.Thread(target=ask, args=(explain,)) for _ in range(20)]

        with site.running.host.program._intake._check_lock:
            for caller in callers:
                caller.start()
            kit.until(lambda: site.running.service.statements._under_way.total() == 20, DEADLINE_SECONDS)
            refused = httpx.post(f"{site.url}/sql", json={"sql": explain}, timeout=DEADLINE_SECONDS)
            assert (refused.status_code, refused.json()["condition"]) == (429, "TOO_MANY_REQUESTS")
            arrow = {"accept": "application/vnd.apache.arrow.stream"}
            for path, headers in (
                ("/jobs/pages/answer", {}),
                ("/jobs/seen/answer", arrow),
                ("/jobs/seen/results", {}),
                ("/jobs", {}),
                ("/status", {}),
                ("/metrics", {}),
            ):
                assert httpx.get(f"{site.url}{path}", headers=headers, timeout=10).status_code == 200
            with httpx.stream("GET", f"{site.url}/jobs/seen/events?since=0", timeout=10) as events:
                assert next(events.iter_lines()).startswith(("id", "event", ":", "retry"))
        for caller in callers:
            caller.join(DEADLINE_SECONDS)
        assert replies == [200] * 20
        assert len(site.sql(explain)["answers"]) == 1
