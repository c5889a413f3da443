"""A run warns at its end if it could use none of the records that it read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import penstock as ps
from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import AddJob, FailJob
from penstock.cli.run_view import LineView, backlog
from penstock.cli.summary import failed_jobs, result_lines, warning
from penstock.epoch.report import RunSummary
from penstock.testing.inline import run_inline
from tests.regressions.harness import ev, stream


def run_summary(rows: list[dict[str, Any]], state: Path, **options: Any) -> RunSummary:
    reports = run_inline(ps.app("t", ps.output("o", stream(rows, "clicks", **options))), state)
    return RunSummary(
        events=sum(one.events for one in reports),
        late=sum(one.late for one in reports),
        bad=sum(one.bad for one in reports),
    )


def test_a_run_of_dead_letters_alone_warns(tmp_path: Path) -> None:
    text = warning(run_summary([ev(0, n="many"), ev(1, n="more")], tmp_path), tmp_path)
    assert text is not None
    assert (
        "WARNING: none of the records read could be used: 2 dead; the first: clicks: column n: 'many'" in text
    )


def test_a_run_of_late_events_alone_warns(tmp_path: Path) -> None:
    text = warning(run_summary([ev(4e9, n=1)], tmp_path), tmp_path)
    assert text is not None
    assert "1 late; the first: clicks: dated too far ahead" in text


def test_a_run_with_usable_records_does_not_warn(tmp_path: Path) -> None:
    assert warning(run_summary([ev(0, n="many"), ev(1, n=2)], tmp_path), tmp_path) is None
    assert warning(RunSummary(), tmp_path) is None


def test_a_run_warns_also_without_a_known_reason(tmp_path: Path) -> None:
    assert warning(RunSummary(bad=3), tmp_path) == "WARNING: none of the records read could be used: 3 dead"


def test_the_backlog_names_its_streams() -> None:
    log = SimpleNamespace(unit="bytes")
    scans = {name: SimpleNamespace(stream=SimpleNamespace(log=log)) for name in ("clicks", "bills")}
    engine = SimpleNamespace(
        admission=SimpleNamespace(backlog={"clicks": 0, "bills": 7}), plan=SimpleNamespace(scans=scans)
    )
    assert list(backlog(cast(Any, engine))) == [("clicks", 0, "bytes"), ("bills", 7, "bytes")]
    report = SimpleNamespace(epoch=3, state_bytes=0)
    line = LineView(cast(Any, engine), cast(Any, None))._line(cast(Any, report))
    assert "backlog clicks 0 B" in line
    assert "backlog bills 7 B" in line


def test_a_stream_that_no_job_reads_any_more_has_no_backlog() -> None:
    scans = {"clicks~3": SimpleNamespace(stream=SimpleNamespace(log=SimpleNamespace(unit="bytes")))}
    admission = SimpleNamespace(backlog={"clicks": 5, "clicks~3": 7})
    engine = SimpleNamespace(plan=SimpleNamespace(scans=scans), admission=admission)
    assert list(backlog(cast(Any, engine))) == [("clicks~3", 7, "bytes")]


def test_many_sinks_are_counted() -> None:
    def lines(count: int) -> list[tuple[str, str]]:
        sink = SimpleNamespace(describe=lambda: "the console")
        outputs = {f"o{n}": SimpleNamespace(name=f"o{n}", sinks=(sink, sink)) for n in range(count)}
        return result_lines(cast(Any, SimpleNamespace(outputs=outputs)))

    assert lines(10) == [(f"results o{n // 2}", "the console") for n in range(20)]
    assert lines(200) == [("results", "in 400 sinks of 200 outputs")]


def test_failed_jobs_are_listed_at_a_start() -> None:
    catalogue = Catalogue()
    assert failed_jobs(catalogue) == ""
    for number in range(8):
        catalogue = catalogue.after(AddJob(f"j{number}", "SELECT 1"))
        if number:
            catalogue = catalogue.after(FailJob(f"j{number}", 1, "no size()"))
    lines = failed_jobs(catalogue).split("\n")
    assert lines[0] == "job j1 has failed: no size()"
    assert lines[5:] == ["and 2 more; `penstock jobs list` shows all"]
