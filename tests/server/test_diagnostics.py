"""What the API shows of the inside: graphs, versions, checks, the engine, epochs, restarts, the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.server.epoch_history import EpochHistory
from penstock.server.restarts import Restarts
from penstock.testing.list_log import ListLog
from penstock.testing.serving import serving
from tests.catalogue import kit as jobs_kit
from tests.server import kit


@pytest.fixture
def site(state: Path) -> Iterator[kit.Site]:
    with kit.site(state, events=100) as found:
        yield found


# -- checking ------------------------------------------------------------------------------------


def test_a_check_returns_the_reply_and_changes_nothing(site: kit.Site) -> None:
    body = {"name": "few", "query": "SELECT page FROM clicks WHERE status = 404"}
    made = site.post("/jobs?check=true", body, 201)
    assert (made["says"], made["command"]) == ("created job few; it runs from the next epoch on", None)
    assert site.get("/jobs/few", 404)["condition"] == "UNKNOWN_JOB"
    altered = site.http.patch("/jobs/pages?check=true", json={"where": "status = 200"}).json()
    assert (altered["state"], altered["command"]) == ("kept", None)
    assert "200" not in site.get("/jobs/pages")["query"]
    assert (
        site.post("/sql?check=true", {"sql": "PAUSE JOB pages; DROP JOB pages"})["answers"][1]["name"]
        == "pages"
    )
    assert site.get("/jobs/pages")["life"] == "running"


def test_a_check_reports_mistakes_with_their_place(site: kit.Site) -> None:
    query = "SELECT page\n FROM clicks WHERE nope = 1"
    reply = site.post("/jobs?check=true", {"name": "x", "query": query}, 422)
    assert (reply["condition"], reply["line"], reply["column"]) == ("UNKNOWN_COLUMN", 2, 20)
    reply = site.http.patch("/jobs/pages?check=true", json={"query": query}).json()
    assert (reply["condition"], reply["line"]) == ("UNKNOWN_COLUMN", 2)
    assert site.post(
        "/sql?check=true", {"sql": "CREATE STREAM s FROM files('/etc/*') FORMAT json(a TEXT)"}, 403
    )


# -- a job ---------------------------------------------------------------------------------------


def test_a_job_has_its_versions(site: kit.Site) -> None:
    first = site.get("/jobs/pages")["query"]
    site.sql("PAUSE JOB pages")
    site.sql("RESUME JOB pages; ALTER JOB pages SET WHERE status = 200")
    found = site.get("/jobs/pages/versions")
    assert [one["did"] for one in found] == ["created", "paused", "resumed", "altered"]
    assert [one["version"] for one in found] == [1, 2, 3, 4]
    assert [one["command"] for one in found] == [1, 2, 3, 3], "statements of one request have one number"
    assert (found[0]["query"], found[3]["state"]) == (first, "kept")
    assert "status = 200" in found[3]["query"]
    assert all(one["at"] > 1.7e9 for one in found)
    site.sql("DROP JOB pages")
    site.post("/jobs", {"name": "pages", "query": "SELECT page FROM clicks"}, 201)
    assert [one["did"] for one in site.get("/jobs/pages/versions")] == ["created"], "of this one of its name"
    assert site.get("/jobs/nobody/versions", 404)


def test_versions_that_were_folded_are_one(state: Path) -> None:
    with kit.site(state, events=10) as site:
        site.sql("PAUSE JOB pages")
        site.sql("RESUME JOB pages")
        program = site.running.host.program
        program._intake._fold_after = 0  # type: ignore[union-attr]
        program.epochs.forget_before(program.commands, 0)
        site.sql("PAUSE JOB pages")
        found = site.get("/jobs/pages/versions")
        assert [(one["did"], one["version"], one["at"] is None) for one in found] == [
            ("earlier", 3, True),
            ("paused", 4, False),
        ]


def test_a_job_of_standard_form_has_a_graph(site: kit.Site) -> None:
    site.post("/jobs", {"name": "more", "query": kit.PAGES.split(" AS ", 1)[1]}, 201)
    site.running.steps()
    graph = site.get("/jobs/pages/graph")
    assert [node["kind"] for node in graph["nodes"]] == ["stream", "state", "output"]
    assert graph["nodes"][1]["jobs"] == 2, "the two of them share it"
    ends = [(edge["source"], edge["target"]) for edge in graph["edges"]]
    assert ends == [("scan:clicks", graph["nodes"][1]["id"]), (graph["nodes"][1]["id"], "out:pages")]
    assert graph["edges"][1]["rows_per_second"] > 0


def test_a_job_that_reads_another_has_a_graph(site: kit.Site) -> None:
    query = "SELECT page, SUM(n) AS all_of_them FROM pages GROUP BY page WINDOWING 10 SECONDS"
    site.post("/jobs", {"name": "sums", "query": query}, 201)
    graph = site.get("/jobs/sums/graph")
    kinds = {node["id"]: node["kind"] for node in graph["nodes"]}
    assert kinds["job:pages"] == "job"
    assert {edge["target"] for edge in graph["edges"]} >= {"out:sums"}
    assert all(edge["source"] in kinds and edge["target"] in kinds for edge in graph["edges"])


def test_an_output_of_an_app_has_a_graph_and_a_history(state: Path) -> None:
    stream = jobs_kit.of_log(ListLog(kit.lines(50)))
    counts = stream.key_by("page").window("5s").count()
    app = ps.app(
        "app", ps.output("counts", counts.top(3)), ps.output("other", stream.select(u=ps.col("user")))
    )
    with serving(app, state, by_itself=False) as running:
        running.steps()
        graph = running.host.graph("counts")
        assert [node.kind for node in graph.nodes] == ["stream", "state", "output"]
        assert [one["did"] for one in running.host.versions("counts")] == ["started with its app"]


# -- the engine ----------------------------------------------------------------------------------


def test_epochs_and_the_log_are_shown(state: Path) -> None:
    with kit.site(state, kit.ALL) as site:
        site.epochs(3)
        points = site.get("/epochs?limit=2")
        assert [(point["epoch"], point["events"]) for point in points] == [(2, 1), (3, 1)]
        assert site.get("/jobs")[0]["rows_per_second"] > 0
        site.sql("PAUSE JOB seen")
        executed = [one for one in site.get("/logs?limit=50") if one["event"] == "executed"]
        assert executed[0]["facts"]["sql"] == "PAUSE JOB seen"
        assert len(site.get("/logs?limit=1")) == 1


def test_an_engine_that_nobody_measures_has_no_figures(site: kit.Site) -> None:
    found = site.get("/engine")
    assert (found["name"], found["measured"], found["sub_queries"]) == ("test", False, {})


@pytest.mark.slow
def test_a_start_after_a_crash_is_a_restart(state: Path) -> None:
    with kit.site(state, events=10) as site:
        assert (site.get("/recovery")["starts"], site.get("/recovery")["restarts"]) == (1, [])
        site.epochs(2)
    with kit.site(state) as site:
        assert site.get("/recovery")["restarts"] == [], "it ended by itself"
    content = json.loads((state / "service.json").read_bytes())
    (state / "service.json").write_text(json.dumps({**content, "ended": False}))
    with kit.site(state) as site:
        found = site.get("/recovery")
        (restart,) = found["restarts"]
        assert (found["starts"], restart["last_epoch"], restart["first_epoch"]) == (3, 2, None)
        assert restart["last_result_at"] > 1.7e9
        site.log.add("p0", *kit.lines(20))  # the log is back too, with what it had and some more
        site.running.steps()
        (restart,) = site.get("/recovery")["restarts"]
        assert restart["first_epoch"] == 3
        assert restart["gap_seconds"] >= 0


def test_a_damaged_file_of_restarts_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text("{")
    restarts = Restarts(tmp_path)
    restarts.open(7)
    assert (restarts.starts, restarts.restarts) == (1, [])
    nowhere = Restarts(tmp_path / "file" / "below")
    (tmp_path / "file").write_text("")
    nowhere.open(1)
    nowhere.end()


def test_rates_without_epochs_are_zero() -> None:
    now = 1_000.0
    history = EpochHistory(lambda: now)
    assert (history.rows_per_second("a"), history.units_per_second(), history.points(5)) == (0.0, {}, [])
