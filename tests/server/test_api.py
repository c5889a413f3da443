"""Every page responds as documented, and every mistake is a problem with a condition."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.agent_reduction import compile_reduction
from penstock.catalogue.program_of import program_of
from penstock.server.wire import ARROW, PROBLEM
from penstock.testing.list_log import ListLog
from penstock.testing.serving import serving
from tests.metrics.text import parse
from tests.server import kit


@pytest.fixture
def site(state: Path) -> Iterator[kit.Site]:
    with kit.site(state, events=100) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    with kit.site(tmp_path_factory.mktemp("shared") / "state", events=100) as found:
        yield found


def problem(site: kit.Site, method: str, path: str, body: Any = None) -> dict[str, Any]:
    response = site.http.request(method, path, json=body)
    assert response.headers["content-type"] == PROBLEM, response.text
    reply: dict[str, Any] = response.json()
    assert reply["status"] == response.status_code
    assert {
        "type",
        "title",
        "condition",
        "primary",
        "detail",
        "hint",
        "line",
        "column",
        "retry",
    } <= reply.keys()
    return reply


# -- reads ---------------------------------------------------------------------------------------


def test_health_and_status(shared: kit.Site) -> None:
    assert shared.get("/health") == {"status": "ok", "phase": "running"}
    status = shared.get("/status")
    assert (status["events"], status["streams"]) == (100, 1)
    assert status["epochs"] == status["epoch"] + 1  # on a slow machine one more: the partition was idle
    assert status["jobs"] == {"running": 1}
    assert status["watermark"].startswith("2026-03-01T12:0")
    assert status["watermarks"] == {"clicks": status["watermark"]}
    assert status["state_bytes"] > 0


def test_metrics_are_prometheus_text(shared: kit.Site) -> None:
    response = shared.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = parse(response.text)
    assert found["penstock_events_total", ()] == 100
    assert found["penstock_jobs", (("life", "running"),)] == 1
    assert found["penstock_job_rows_total", (("job", "pages"),)] > 0
    epochs = found["penstock_epochs_total", ()]
    assert found["penstock_epoch_duration_seconds_count", ()] == epochs
    former = {name for name, _ in found if name in ("penstock_leaped_total", "penstock_http_answers_total")}
    assert len(former) == 2, "what was renamed is there under its former name too"


def test_metrics_of_a_job_that_is_gone_are_gone(site: kit.Site) -> None:
    job = ("penstock_job_epochs_total", (("job", "pages"),))
    assert parse(site.http.get("/metrics").text)[job] > 0
    site.sql("DROP JOB pages")
    site.epochs(1)
    assert 'job="pages"' not in site.http.get("/metrics").text


def test_streams_and_jobs(shared: kit.Site) -> None:
    (stream,) = shared.get("/streams")
    assert stream == shared.get("/streams/clicks")
    assert (stream["name"], stream["time"], stream["takes_events"]) == ("clicks", "ts", True)
    assert stream["columns"][1] == {"name": "page", "type": "String"}
    (job,) = shared.get("/jobs")
    assert (job["name"], job["life"], job["epoch"]) == ("pages", "running", 0)
    page = shared.get("/jobs/pages")
    assert page["columns"] == [{"name": "page", "type": "String"}, {"name": "n", "type": "Int64"}]
    assert page["streams"] == ["clicks"]
    assert "count" in page["plan"]


def test_a_result_as_json_and_as_arrow(shared: kit.Site) -> None:
    reply = shared.get("/jobs/pages/answer")
    assert (reply["job"], reply["epoch"]) == ("pages", 0)
    assert set(reply["rows"][0]) == {"page", "n"}
    assert shared.get("/jobs/pages/answer") == reply, "also from the cache"
    response = shared.http.get("/jobs/pages/answer", headers={"accept": ARROW})
    assert response.headers["penstock-epoch"] == "0"
    assert pl.read_ipc_stream(io.BytesIO(response.content)).to_dicts() == reply["rows"]


def test_openapi_has_every_page(shared: kit.Site) -> None:
    paths = shared.get("/openapi.json")["paths"]
    assert paths.keys() == {
        "/audit",
        "/sessions",
        "/coordinators",
        "/health",
        "/status",
        "/metrics",
        "/engine",
        "/epochs",
        "/recovery",
        "/logs",
        "/sql",
        "/streams",
        "/streams/{name}",
        "/streams/{name}/dead",
        "/streams/{name}/late",
        "/streams/{name}/leaped",
        "/streams/{name}/events",
        "/jobs",
        "/jobs/{name}",
        "/jobs/{name}/graph",
        "/jobs/{name}/versions",
        "/jobs/{name}/code",
        "/jobs/{name}/messages",
        "/jobs/{name}/pause",
        "/jobs/{name}/resume",
        "/jobs/{name}/flush",
        "/jobs/{name}/empty",
        "/jobs/{name}/answer",
        "/jobs/{name}/results",
        "/jobs/{name}/events",
    }


# -- changes -------------------------------------------------------------------------------------


def test_a_job_is_created_altered_and_dropped(site: kit.Site) -> None:
    body = {"name": "few", "query": "SELECT page FROM clicks WHERE status = $s", "parameters": {"s": 404}}
    created = site.post("/jobs", body, 201)
    assert created["says"].startswith("created job few")
    assert created["command"] == 2
    site.log.add("p0", *kit.lines(130)[100:])
    site.running.steps()
    assert {"page"} == set(site.get("/jobs/few/answer")["rows"][0])
    changes: list[dict[str, Any]] = [
        {"parameters": {"s": 200}},
        {"where": "status > 300"},
        {"query": "SELECT user FROM clicks"},
        {"limit": 3, "rebuild": True},
    ]
    job = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page ORDER BY n DESC LIMIT 9 WINDOWING 1 SECONDS"
    site.post("/jobs", {"name": "top", "query": job}, 201)
    for change in changes:
        name = "top" if "limit" in change else "few"
        response = site.http.patch(f"/jobs/{name}", json=change)
        assert (response.status_code, response.json()["state"]) == (200, "kept"), response.text
    assert site.get("/jobs/few")["query"] == "SELECT user FROM clicks"
    assert "LIMIT 3" in site.get("/jobs/top")["query"]
    assert site.http.delete("/jobs/few").json()["says"] == "dropped job few"
    assert problem(site, "GET", "/jobs/few")["condition"] == "UNKNOWN_JOB"


def test_a_job_has_its_recovery_semantics(site: kit.Site) -> None:
    assert site.get("/jobs/pages")["recovery"] is None
    site.post("/jobs", {"name": "few", "query": "SELECT page FROM clicks", "recovery": "gap"}, 201)
    site.post("/jobs", {"name": "some", "query": "SELECT page FROM clicks\nRECOVERY amnesia"}, 201)
    assert [site.get(f"/jobs/{name}")["recovery"] for name in ("few", "some")] == ["gap", "amnesia"]
    for sent, expected in (("rollback", "rollback"), ("default", None)):
        response = site.http.patch("/jobs/few", json={"recovery": sent})
        assert (response.status_code, response.json()["state"]) == (200, "kept"), response.text
        assert site.get("/jobs/few")["recovery"] == expected
    assert site.get("/jobs/few")["last_recovery"] is None
    assert site.get("/recovery")["last"] is None


def test_commands_change_a_job(site: kit.Site) -> None:
    for verb, life in (
        ("pause", "paused"),
        ("resume", "running"),
        ("flush", "running"),
        ("empty", "running"),
    ):
        assert site.post(f"/jobs/pages/{verb}")["name"] == "pages"
        assert site.get("/jobs/pages")["life"] == life
    assert problem(site, "POST", "/jobs/pages/resume")["status"] == 422


def test_streams_are_created_and_dropped(site: kit.Site) -> None:
    body = {
        "name": "calls",
        "log": {"kind": "generated", "options": {"rate": 100, "partitions": 1, "total": 10, "live": False}},
        "format": {"kind": "combined_log", "options": {"cookie": "session"}},
        "time": "time",
        "lateness": "5s",
    }
    assert site.post("/streams", body, 201)["says"].startswith("created stream calls")
    assert site.get("/streams/calls")["lateness_seconds"] == 5
    site.post("/jobs", {"name": "reads", "query": "SELECT path FROM calls"}, 201)
    assert problem(site, "DELETE", "/streams/calls")["condition"] == "STILL_READ"
    site.http.delete("/jobs/reads")
    assert site.http.delete("/streams/calls").status_code == 200
    assert problem(site, "DELETE", "/streams/calls")["condition"] == "UNKNOWN_STREAM"


def test_sql_is_executed_as_a_whole_or_not_at_all(site: kit.Site) -> None:
    answers = site.sql("PAUSE JOB pages; SHOW JOBS")["answers"]
    assert answers[1]["rows"][0]["life"] == "paused"
    reply = problem(site, "POST", "/sql", {"sql": "RESUME JOB pages; DROP JOB nobody"})
    assert reply["condition"] == "UNKNOWN_JOB"
    assert site.get("/jobs/pages")["life"] == "paused"
    response = site.http.post("/sql", content="RESUME JOB pages", headers={"content-type": "application/sql"})
    assert response.json()["answers"][0]["says"].startswith("resumed job pages")


def test_an_error_names_its_line_and_column(site: kit.Site) -> None:
    reply = problem(site, "POST", "/sql", {"sql": "SHOW JOBS;\n SELEC x"})
    assert (reply["condition"], reply["line"], reply["column"], reply["status"]) == ("BAD_SQL", 2, 2, 422)
    reply = problem(site, "POST", "/jobs", {"name": "x", "query": "SELECT page\n FROM clicks WHERE nope = 1"})
    assert (reply["condition"], reply["line"], reply["column"]) == ("UNKNOWN_COLUMN", 2, 20)
    reply = problem(site, "POST", "/jobs", {"name": "x", "query": "SELECT page\n FRM clicks"})
    assert (reply["condition"], reply["line"]) == ("BAD_SQL", 2)
    reply = problem(site, "POST", "/sql", {"sql": "CREATE JOB x AS SELECT nope FROM clicks"})
    assert (reply["line"], reply["column"]) == (1, 24)


def test_events_are_pushed_and_bad_ones_are_shown(site: kit.Site) -> None:
    body = "\n".join(["no event", *kit.lines(101)[100:], kit.lines(1)[0]])
    where = "/streams/clicks/events?producer=me&sequence=1"
    first = site.http.post(where, content=body, headers=kit.LINES)
    assert first.json() == {"events": 3, "taken": 3}
    again = site.http.post(where, content=body, headers=kit.LINES)
    assert again.json() == {"events": 3, "taken": 0}
    site.running.steps()
    (dead,) = site.get("/streams/clicks/dead?limit=5")["rows"]
    assert dead["epoch"] == 1
    assert "no event" in json.dumps(dead)
    assert site.get("/status")["late"] == 1
    assert site.get("/streams/clicks/late")["stream"] == "clicks"


def test_a_message_to_a_job_has_a_reply(site: kit.Site) -> None:
    rows = site.post("/jobs/pages/messages", {"message": {"page": "/a"}})["answer"]
    assert rows
    assert {row["page"] for row in rows} == {"/a"}


def test_results_come_page_by_page(state: Path) -> None:
    with kit.site(state, kit.ALL) as site:
        site.epochs(7)
        found, since, more = [], 0, True
        while more:
            page = site.get(f"/jobs/seen/results?since={since}&limit=3")
            found += [reply["epoch"] for reply in page["results"]]
            since, more = page["next"], page["more"]
        assert found == [1, 2, 3, 4, 5, 6, 7], "epoch 0 had no events"
        assert problem(site, "GET", "/jobs/seen/results?since=99")["condition"] == "EPOCH_AHEAD"


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "condition"),
    [
        ("GET", "/nowhere", None, 404, "NO_SUCH_PAGE"),
        ("PUT", "/jobs", None, 405, "BAD_REQUEST"),
        ("GET", "/jobs/nobody", None, 404, "UNKNOWN_JOB"),
        ("GET", "/jobs/nobody/answer", None, 404, "UNKNOWN_JOB"),
        ("GET", "/jobs/nobody/results", None, 404, "UNKNOWN_JOB"),
        ("GET", "/jobs/nobody/events", None, 404, "UNKNOWN_JOB"),
        ("GET", "/streams/nobody", None, 404, "UNKNOWN_STREAM"),
        ("GET", "/streams/nobody/dead", None, 404, "UNKNOWN_STREAM"),
        ("POST", "/jobs/nobody/pause", None, 404, "UNKNOWN_JOB"),
        ("POST", "/jobs", {"name": "pages", "query": "SELECT page FROM clicks"}, 409, "NAME_TAKEN"),
        ("POST", "/jobs", {"name": "x"}, 422, "BAD_REQUEST"),
        ("POST", "/jobs", {"name": "x", "query": "SELECT 1", "more": 1}, 422, "BAD_REQUEST"),
        ("POST", "/jobs", {"name": "x", "query": "SHOW JOBS"}, 422, "BAD_SQL"),
        ("POST", "/sql", {"sql": "SELECT page FROM clicks"}, 422, "NOT_A_COMMAND"),
        ("POST", "/sql", {"text": ""}, 422, "BAD_REQUEST"),
        ("PATCH", "/jobs/pages", {}, 422, "BAD_CHANGE"),
        ("PATCH", "/jobs/pages", {"limit": 2, "where": "n > 1"}, 422, "BAD_CHANGE"),
        ("PATCH", "/jobs/pages", {"limit": 2, "recovery": "gap"}, 422, "BAD_CHANGE"),
        ("PATCH", "/jobs/pages", {"recovery": "gap", "rebuild": True}, 422, "BAD_CHANGE"),
        ("PATCH", "/jobs/pages", {"recovery": "never"}, 422, "BAD_REQUEST"),
        ("POST", "/jobs", {"name": "x", "query": "SELECT 1", "recovery": "default"}, 422, "BAD_REQUEST"),
        ("GET", "/jobs/pages/results?since=-1", None, 422, "BAD_REQUEST"),
        ("GET", "/streams/clicks/dead?limit=0", None, 422, "BAD_REQUEST"),
    ],
)
def test_a_mistake_is_a_problem(
    shared: kit.Site, method: str, path: str, body: Any, status: int, condition: str
) -> None:
    reply = problem(shared, method, path, body)
    assert (reply["status"], reply["condition"]) == (status, condition)


def test_a_body_must_have_its_content_type(shared: kit.Site) -> None:
    for path in ("/sql", "/streams/clicks/events"):
        response = shared.http.post(path, content="SHOW JOBS", headers={"content-type": "text/plain"})
        assert (response.status_code, response.json()["condition"]) == (415, "WRONG_CONTENT_TYPE")
    response = shared.http.post("/sql", content=b"\xff\xfe", headers={"content-type": "application/sql"})
    assert response.json()["condition"] == "BAD_REQUEST"


def test_events_for_a_log_that_accepts_none_are_refused(site: kit.Site) -> None:
    site.sql("CREATE STREAM made FROM generated(rate => 1) FORMAT combined_log EVENT TIME time")
    response = site.http.post("/streams/made/events", content="x", headers=kit.LINES)
    assert (response.status_code, response.json()["condition"]) == (409, "STREAM_TAKES_NO_EVENTS")


def test_outputs_of_an_app_are_queried_and_changed_like_jobs(state: Path) -> None:
    log = ListLog([str(n) for n in range(10)])
    numbers = ps.stream("numbers", log, ps.Delimited({"n": ps.Int64()}), time=None)
    app = ps.app("counted", ps.output("big", numbers.filter(ps.col("n") > 6)))
    with serving(app, state, by_itself=False) as running:
        running.steps()
        with kit.httpx.Client(base_url=running.url) as http:
            site = kit.Site(running, kit.PushedLog(), http)
            assert [row["n"] for row in site.get("/jobs/big/answer")["rows"]] == [7, 8, 9]
            assert site.get("/jobs")[0]["name"] == site.get("/jobs/big")["name"] == "big"
            assert site.get("/streams")[0]["name"] == "numbers"
            assert len(site.get("/jobs/big/results")["results"]) == 1
            assert problem(site, "GET", "/jobs/small")["condition"] == "UNKNOWN_JOB"
            assert site.get("/status")["jobs"] == {"running": 1}
            assert http.post("/jobs/big/pause").status_code == 200
            assert site.get("/jobs/big")["life"] == "paused"
            site.sql("CREATE JOB even AS SELECT n FROM numbers WHERE n % 2 = 0; RESUME JOB big")
            assert site.get("/status")["jobs"] == {"running": 2}


def test_jobs_that_agents_reduce_for_report_why_they_do_not_change(state: Path) -> None:
    text = f"""CREATE STREAM clicks FROM segments('{state}/log') FORMAT combined_log EVENT TIME time;
    CREATE JOB hits AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 5 SECONDS"""
    program = program_of(compile_reduction(text, "clicks").engine_app(), state)
    query = {"query": "SELECT path FROM clicks"}
    with (
        serving(program, state, by_itself=False) as running,
        kit.httpx.Client(base_url=running.url) as http,
    ):
        site = kit.Site(running, kit.PushedLog(), http)
        for reply in (
            problem(site, "PATCH", "/jobs/hits", query),
            problem(site, "POST", "/sql", {"sql": "PAUSE JOB hits"}),
            problem(site, "POST", "/jobs", {"name": "new", **query}),
        ):
            assert (reply["condition"], reply["status"]) == ("NO_COMMANDS", 409)
            assert "agents reduce clicks for these jobs" in reply["title"]
            assert "restart both" in reply["hint"]
        assert "SQL file" in site.get("/jobs/hits")["query"]
        assert "SQL file" in site.get("/streams")[0]["said"]
