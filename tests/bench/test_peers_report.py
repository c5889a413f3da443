"""The report is made of raw runs alone; a wrong result gives no value, and a busy machine is noted."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import bench_app
from bench.peers import growth, raw
from bench.peers.comparison import chosen, gaps, why
from bench.peers.growth_report import slope
from bench.peers.raw import Run, agreement, write_run
from bench.peers.report import report
from bench.peers.roster import PEERS, WORKLOADS, code_lines, left_out
from penstock.errors import UserError
from penstock.simulate import charts as plots

RIGHT = {"rows": 2, "digest": "00000000000000aa", "few": ["1|/a|3", "2|/b|2"]}
WRONG = RIGHT | {"digest": "00000000000000bb"}


def run(workload: str, peer: str, number: int = 1, **further: object) -> Run:
    facts = {
        "status": "ok",
        "events": 1_000_000,
        "began": f"2026-11-15T00:0{number}:00+00:00",
        "seconds": 2.0,
        "wall": 5.0,
        "peak_bytes": 2_000_000_000,
        "cpu_seconds": 3.0,
        "others": 0.1,
        "code_lines": 12,
        "answer": RIGHT,
        "versions": {"python": "3.11.7", peer: "1.0"},
        "settings": {"cores": 2},
    }
    return Run(workload, peer, number, **facts | further)  # type: ignore[arg-type]


RUNS = [
    run("windows", "polars", seconds=0.5),
    run("windows", "penstock", 1, seconds=2.0),
    run("windows", "penstock", 2, seconds=1.0),
    run("windows", "penstock", 3, seconds=4.0),
    run("windows", "pyspark", seconds=8.0),
    run("windows", "bytewax", seconds=1.0, wall=2.0),
    run("windows", "pathway", seconds=0.1, answer=WRONG),
    run("windows", "flink-sql", status="timeout", reason="not done after 300 s", answer={}),
    run("latency", "penstock", events=0, rate=5_000.0, delays=[0.1, 0.2, 0.3], answer={}),
    run("latency", "pyspark", events=0, rate=4_000.0, delays=[1.0, 2.0, 9.0], answer={}),
]
MACHINE = {"cores": 2, "memory_gib": 24, "system": "Linux", "machine": "x86_64", "java": "17"}
POINTS = [{"axis": "keys", "at": 10**n, "cost": 2.0 * 10 ** (n * 0.5), "others": 0.1} for n in range(3, 6)]


def test_the_report_tells_medians_and_where_penstock_loses() -> None:
    page, pictures = report(RUNS, MACHINE, POINTS)
    assert "| PySpark Structured Streaming | 4.00, 1.00 (1M) |" in page
    assert "| Bytewax | 0.50, 0.40 (1M) |" in page
    assert "| Penstock | 1,000,000 | 500,000 (250,000 to 1,000,000) |" in page
    assert "| Bytewax | 1,000,000 | 1,000,000 | 500,000 | 0.50 | 2.0 s | 5.0 s | 0.40 |" in page
    assert "25% of the faster batch program; slower than Bytewax (2.00 times, on 1,000,000 events)" in page
    assert "by the whole process slower than Bytewax (2.50 times, on 1,000,000 events)" in page
    assert "| Penstock | 0.20 s | 0.30 s | 5,000 | 1% | 3.0 s | 2.00 GB | 12 | 1 |" in page
    assert "- **latency**: 0.20 s at 5,000 events/s; nobody has less." in page
    assert "Nothing else took more than 0.3 of a core" in page
    assert "slope +0.50" in page
    assert page.count("| windows | penstock |") == 3
    assert {"peers-windows.svg", "peers-latency.svg", "growth-keys.svg"} == set(pictures)
    for name, text in pictures.items():
        assert f"(pictures/{name})" in page
        ET.fromstring(text)


def test_wrong_and_slow_runs_have_no_figure() -> None:
    page, _ = report(RUNS, MACHINE)
    assert "| Pathway | wrong answer |" in page
    assert "| Flink, SQL | not in time |" in page
    assert "Flink, SQL: stopped; not done after 300 s." in page
    assert "10,000,000" not in page
    assert "Not run here: limit: DuckDB, plain batch, Flink, DataStream with Python functions." in page


def test_engines_are_compared_on_the_same_events() -> None:
    """Penstock is faster on more of them: that must not count against those that got fewer."""
    few = [run("windows", name, events=100_000, seconds=0.5) for name in ("polars", "bytewax")]
    page, _ = report([*RUNS[:5], *few], MACHINE)
    assert "not compared on the same events: Bytewax" in page
    assert "no streaming peer that was run is faster by either clock" in page
    assert "| Bytewax | –, – (100k) |" in page
    assert "| Bytewax | 100,000 | 200,000 | – | – | 5.0 s | – | – |" in page
    slow = run("windows", "penstock", events=100_000, seconds=1.0, wall=10.0)
    page, _ = report([*RUNS[:5], *few, slow], MACHINE)
    assert "slower than Bytewax (2.00 times, on 100,000 events)" in page
    assert "| Bytewax | 0.50, 0.50 (100k) |" in page
    assert "| Bytewax | 100,000 | 200,000 | 100,000 | 0.50 | 5.0 s | 10.0 s | 0.50 |" in page


def test_a_difference_that_is_not_printed_is_none() -> None:
    equal = [run("windows", "penstock", wall=5.01), run("windows", "bytewax", seconds=2.001)]
    page, _ = report([RUNS[0], *equal], MACHINE)
    assert "no streaming peer that was run is faster by either clock" in page


def test_a_missing_result_of_penstock_is_noted_too() -> None:
    late = run("windows", "penstock", status="timeout", reason="not done after 60 s", answer={})
    page, _ = report([RUNS[0], late], MACHINE)
    assert "**windows**: Penstock has no figure (timeout: not done after 60 s)" in page


def test_missing_windows_are_found() -> None:
    assert gaps({"few": ["10|1.0", "11|2.0", "12|3.0"]}) == 0
    assert gaps({"few": ["10|1.0", "13|2.0"]}) == 2


def test_a_busy_machine_is_noted() -> None:
    page, _ = report([dataclasses.replace(RUNS[0], others=3.0), *RUNS[1:]], MACHINE)
    assert "busy with other work in 1 of the 10 runs" in page
    assert "| 3.00* |" in page


def test_small_inputs_are_noted() -> None:
    small = [dataclasses.replace(one, events=1_000 if one.events else 0) for one in RUNS]
    assert "Inputs are small here" in report(small, MACHINE)[0]
    assert "Inputs are small here" not in report(RUNS, MACHINE)[0]


def test_the_reference_decides_even_if_most_disagree_with_it() -> None:
    runs = [
        run("windows", "polars"),
        *(run("windows", name, answer=WRONG) for name in ("penstock", "pyspark")),
    ]
    assert [one.status for one in agreement(runs)] == ["ok", "wrong", "wrong"]
    alone = [run("windows", "penstock"), run("windows", "pyspark"), run("windows", "bytewax", answer=WRONG)]
    assert [one.status for one in agreement(alone)] == ["ok", "ok", "wrong"]
    other = [run("windows", "polars"), run("windows", "penstock", events=5, answer=WRONG)]
    assert [one.status for one in agreement(other)] == ["ok", "ok"]  # another input


def test_a_folder_of_raw_runs_becomes_a_page(tmp_path: Path) -> None:
    for one in RUNS:
        write_run(one, tmp_path / "raw")
    (tmp_path / "raw" / raw.MACHINE).write_text(json.dumps(MACHINE))
    (tmp_path / "raw" / "growth").mkdir()
    for point in POINTS:
        (tmp_path / "raw" / "growth" / f"keys-{point['at']}.json").write_text(json.dumps(point))
    assert sorted(raw.read(tmp_path / "raw"), key=lambda one: one.name) == sorted(
        RUNS, key=lambda one: one.name
    )
    done = CliRunner().invoke(
        bench_app, ["peers", "--report", str(tmp_path / "raw"), "--to", str(tmp_path / "docs")]
    )
    assert done.exit_code == 0, done.output
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert page == report(raw.read(tmp_path / "raw"), MACHINE, growth.read(tmp_path / "raw" / "growth"))[0]
    assert (tmp_path / "docs" / "pictures" / "peers-windows.svg").exists()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        raw.read(tmp_path)
    assert refused.value.condition == "BENCH_NO_RUNS"


def test_only_names_workloads_peers_and_pairs() -> None:
    def names(*only: str) -> list[tuple[str, str]]:
        return [(workload.name, peer.name) for workload, peer in chosen(only)]

    assert len(names()) == len(WORKLOADS) * len(PEERS)
    assert {workload for workload, _ in names("windows")} == {"windows"}
    assert names("windows,penstock") == [("windows", "penstock")]
    assert names("taxi:bytewax", "windows:polars") == [("windows", "polars"), ("taxi", "bytewax")]
    assert {peer for _, peer in names("flink-sql")} == {"flink-sql"}
    with pytest.raises(UserError) as refused:
        chosen(["abacus"])
    assert refused.value.condition == "BENCH_UNKNOWN"


def test_every_program_has_what_the_roster_says() -> None:
    for peer in PEERS.values():
        for workload in WORKLOADS.values():
            if left_out(peer, workload) is None:
                assert code_lines(peer, workload) >= 3, (peer.name, workload.name)


def test_slopes_and_figures() -> None:
    assert slope([(1, 5), (10, 5), (100, 5)]) == pytest.approx(0)
    assert slope([(1, 1), (10, 10)]) == pytest.approx(1)
    assert [plots.short(value) for value in (0.25, 12, 1_000, 2_345_678)] == ["0.25", "12", "1k", "2.35M"]


def test_a_failed_run_says_its_innermost_cause() -> None:
    trace = "Caused by: it failed\n\tat one.place\nCaused by: no memory\n" + "\tat a.place\n" * 20
    assert why(trace) == "Caused by: no memory"
    assert why("begun\nSegmentation fault") == "begun\nSegmentation fault"
