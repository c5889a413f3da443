"""Jobs whose rows make Polars panic fail alone: the engine, other jobs and other readers go on."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.server import kit

#: an expression that Polars panics at: the date has no year
PANIC = "trunc(date_add(ts, 2000000000), 'year')"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT {PANIC} AS v FROM clicks",
        f"SELECT page FROM clicks WHERE {PANIC} > ts",
        f"SELECT page FROM clicks WHERE {PANIC} > ts AND status > 0",
        f"SELECT {PANIC} AS k, COUNT(*) AS n FROM clicks GROUP BY 1 WINDOWING 5 SECONDS",
        f"SELECT MAX({PANIC}) AS v FROM clicks GROUP BY page WINDOWING 5 SECONDS",
        "SELECT page FROM clicks GROUP BY page HAVING trunc(date_add(MAX(ts), 2000000000), 'year') > MAX(ts) "
        "WINDOWING 1 SECONDS",
        f"SELECT a.page FROM clicks a JOIN clicks b ON a.page = b.page AND a.ts < {PANIC.replace('ts', 'b.ts')} "
        "WITHIN 5 SECONDS",
    ],
)
def test_a_job_at_whose_rows_polars_panics_fails_alone(query: str, tmp_path: Path) -> None:
    with kit.site(tmp_path / "state", kit.ALL, events=5) as site:
        created = site.sql(f"CREATE JOB x AS {query}; CREATE JOB twin AS {query.replace('2000000000', '1')}")
        assert len(created["answers"]) == 2
        site.epochs(20)
        failed = site.get("/jobs/x")
        assert failed["life"] == "failed"
        assert "out-of-range" in failed["error"]
        assert site.get("/jobs/twin")["life"] == "running"
        assert site.get("/jobs/seen/answer")["epoch"] == site.get("/status")["epoch"]


def test_rows_that_json_has_no_form_for_are_an_error_of_their_readers_alone(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state", kit.ALL, events=5) as site:
        site.sql("CREATE JOB x AS SELECT date_add(ts, 2000000000) AS v FROM clicks")
        site.epochs(2)
        for path in ("/jobs/x/answer", "/jobs/x/results"):
            assert site.get(path, 422)["condition"] == "NO_JSON"
        with httpx.stream("GET", f"{site.url}/jobs/x/events?since=0", timeout=60) as events:
            assert any("NO_JSON" in line or "dropped" in line for line in events.iter_lines())
        arrow = {"accept": "application/vnd.apache.arrow.stream"}
        assert site.http.get("/jobs/x/answer", headers=arrow).status_code == 200
        assert site.get("/jobs/seen/answer")["rows"]


def test_rows_that_a_sink_has_no_form_for_fail_their_job_alone(tmp_path: Path) -> None:
    hostile = "CREATE JOB x AS SELECT date_add(ts, 2000000000) AS v FROM clicks"
    with kit.site(
        tmp_path / "state", f"{kit.ALL};\n{hostile} INTO jsonl('{tmp_path}/out')", events=5
    ) as site:
        site.epochs(2)
        kit.until(lambda: site.epochs(1) or site.get("/jobs/x")["life"] == "failed", 60)
        assert "SINK_FAILED" in site.get("/jobs/x")["error"]
        site.epochs(2)
        assert site.get("/jobs/seen/answer")["epoch"] == site.get("/status")["epoch"]
