"""The parts of pages: escaping, formats, charts, and the number of reads of the service."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from markupsafe import Markup

from penstock.cli.unit import watch_unit
from penstock.dashboard import charts, markup, recovery
from penstock.dashboard.backend import Backend
from penstock.dashboard.diagram import render_mermaid
from penstock.server.response_bodies import (
    EngineFacts,
    Graph,
    GraphEdge,
    GraphNode,
    RecoveryFacts,
    StageFacts,
)
from tests.server import kit

SCRIPT = "<script>alert('x')</script>"


def test_shown_text_is_escaped() -> None:
    column = markup.Column(SCRIPT)
    shown = [
        markup.table(
            [column], [(SCRIPT,), (None,), (True,), (1234567,), (0.25,), (Markup("<b>ours</b>"),)], ""
        ),
        markup.table([column], [], SCRIPT),
        markup.chip(SCRIPT),
        markup.link(f'/ui/"{SCRIPT}', SCRIPT),
        markup.code(SCRIPT),
    ]
    for text in shown:
        assert "<script>" not in text
        assert 'href="/ui/"' not in text
    assert "<b>ours</b>" in shown[0]
    assert "1,234,567" in shown[0]


def test_numbers_are_short() -> None:
    assert [markup.rate(value) for value in (None, 0.0, 0.123, 3.21, 12345.6)] == [
        "-",
        "0",
        "0.12",
        "3.2",
        "12,346",
    ]
    assert (markup.clock(None), markup.clock(0)) == ("-", "1970-01-01 00:00:00Z")
    assert "x" * 300 not in markup.cell("x" * 300)


def test_a_graph_is_rendered_as_escaped_mermaid() -> None:
    bad = 'a"] --> evil[("<img src=x>")] %% `x` #quot;'
    nodes = [
        GraphNode(id="scan:s", kind="stream", title=bad, about=[bad], rows_per_second=1234.0),
        GraphNode(id="q", kind="state", title="q", about=["x"], jobs=3, state_bytes=2e6, utilisation=0.5),
        GraphNode(id="out:j", kind="output", title="j", about=[]),
    ]
    edges = [
        GraphEdge(source="scan:s", target="q", label=bad, rows_per_second=10.0),
        GraphEdge(source="q", target="out:j", label="", rows_per_second=None),
        GraphEdge(source="elsewhere", target="q", label="", rows_per_second=None),
    ]
    drawn = render_mermaid(Graph(job="j", nodes=nodes, edges=edges), narrow=False)
    assert drawn.startswith("flowchart LR")
    assert "1,200 events/s" in drawn
    assert "state 2.0 MB, 50% busy, shared by 3 jobs" in drawn
    assert "elsewhere" not in drawn
    for line in drawn.splitlines()[1:]:
        assert line.count('"') in (0, 2), line
        inside = line.split('"')[1] if '"' in line else ""
        for mark in ("<b>", "</b>", "<i>", "</i>", "<br/>"):
            inside = inside.replace(mark, "")
        assert not set(inside) & set('<>"[]{}`|'), line
    assert render_mermaid(Graph(job="j", nodes=nodes, edges=edges), narrow=True).startswith("flowchart TB")


def test_a_result_with_a_number_and_labels_has_a_chart() -> None:
    rows = pl.DataFrame({"rank": [1, 2], "path": ["/a", "/b"], "n": [3, 5]})
    options = charts.result_chart(rows)
    assert options is not None
    assert options["series"][0]["data"] == [3, 5]
    assert options["yAxis"]["data"] == ["/a", "/b"]
    keyed = pl.DataFrame({"path": ["/a", "/a"], "status": [200, 404], "n": [3, 5]})
    options = charts.result_chart(keyed)
    assert options is not None
    assert (options["series"][0]["name"], options["yAxis"]["data"]) == ("n", ["/a 200", "/a 404"])
    assert charts.result_chart(rows.select("n")) is None
    assert charts.result_chart(rows.clear()) is None


def test_the_heat_map_shows_work_state_or_slices() -> None:
    stage: dict[str, Any] = dict.fromkeys(StageFacts.model_fields, 0.0)
    stage |= {"bucket_seconds": [0.1, 0.3], "bucket_bytes": [5.0, 6.0], "bucket_map": [0, 1]}
    engine = EngineFacts(
        name="e", master="inline", pid=1, epoch=2, maps_version=1, measured=True, sub_queries={"q": stage}
    )
    for by, values in (("work", [0.1, 0.3]), ("state", [5.0, 6.0]), ("slice", [0, 1])):
        options = charts.heat_map(engine, by)
        assert options is not None
        assert [cell[2] for cell in options["series"][0]["data"]] == values
    assert charts.heat_map(engine.model_copy(update={"sub_queries": {}}), "work") is None


def test_many_pages_share_one_read_of_the_service(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.site(state, events=10) as site:
        backend, reads = Backend(site.running.service), list[float]()
        jobs = site.running.host.jobs

        def counting_jobs() -> Any:
            reads.append(time.monotonic())
            return jobs()

        monkeypatch.setattr(site.running.host, "jobs", counting_jobs)
        pages = [threading.Thread(target=backend.jobs) for _ in range(20)]
        for page in pages:
            page.start()
        for page in pages:
            page.join()
        assert len(reads) == 1
        backend.change("pause", "pages")
        assert backend.jobs()[0]["life"] == "paused", "a change is seen at once"
        assert backend.job("pages").facts.life == "paused"
        assert backend.takes_commands


def test_a_unit_is_shown_as_ha_status_prints_it(tmp_path: Path) -> None:
    assert watch_unit(tmp_path)() is None, "no unit was started there"
    engine = {
        "role": "primary",
        "phase": "primary",
        "epoch": 7,
        "lag": 0,
        "cached_bytes": 10,
        "pid": 1,
        "host": "h",
    }
    unit = {
        "unit": "u",
        "phase": "running",
        "scheme": "active-standby",
        "generation": 2,
        "last_epoch": 7,
        "engines": {"e1": engine, "e2": {**engine, "role": "secondary", "epoch": -1, "lag": None}},
        "recoveries": [
            {
                "lost": "e0",
                "leader": "e1",
                "scheme": "s",
                "detected_after": 1.5,
                "first_result_after": None,
                "estimated_seconds": 2.5,
                "semantics": "precise",
            }
        ],
        "measured": {"start_seconds": [3.0, 2.0]},
    }
    assert "primary" in recovery._engines(unit)
    assert "at most 1.5 s" in recovery._recoveries(unit), "the instant of the failure is unknown"
    assert "2.5 s" in recovery._recoveries(unit)
    assert "start_seconds" in recovery._measurements(unit)
    worst = recovery._measurements({"measured": {"load": [4e6, 8e6], "start": [9.0, 2.0], "wire": []}})
    assert re.search("load.*8.0 MB/s.*4.0 MB/s.*into memory.*start.*2.0 s.*9.0 s.*warmed up", worst)
    assert "wire" not in worst
    facts = RecoveryFacts(scheme="one", started_at=0.0, starts=2, restarts=[], unit=None)
    assert recovery._lost(facts) == ""
    last = {"semantics": "precise", "jobs": {"live": {"semantics": "gap", "lost_epochs": 3}}}
    assert "live" in recovery._lost(facts.model_copy(update={"last": last}))
