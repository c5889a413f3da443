"""Findings speak the one language of all benchmarks."""

from __future__ import annotations

import json

import pytest

from bench.cli import click_size, format_value, stage_lines, table
from bench.findings import Finding, Target, ratio


def finding(
    *runs: float, engine: str = "penstock", unit: str = "events/s", target: Target | None = None
) -> Finding:
    return Finding("clicks", "patterns", engine, "throughput", unit, runs, target)


def test_a_finding_is_one_json_object_on_one_line_with_all_runs() -> None:
    line = finding(100.0, 300.0, 200.0).to_json()
    assert "\n" not in line
    assert json.loads(line) == {
        "bench": "clicks",
        "case": "patterns",
        "engine": "penstock",
        "metric": "throughput",
        "value": 200.0,
        "unit": "events/s",
        "runs": [100.0, 300.0, 200.0],
    }


def test_target_and_met_are_present_only_with_a_target() -> None:
    record = json.loads(finding(800_000, target=Target(700_000)).to_json())
    assert (record["target"], record["met"]) == (700_000, True)
    assert "met" not in json.loads(finding(800_000).to_json())


def test_the_median_decides_whether_a_target_is_met_not_the_best_run() -> None:
    assert finding(10, 20, 90, target=Target(50)).met is False
    assert finding(10, 20, 90, unit="ms", target=Target(50, "at most")).met is True


def test_the_best_run_is_the_greatest_speed_and_the_least_time() -> None:
    assert finding(1, 2, 3).best == 3
    assert finding(1, 2, 3, unit="ms").best == 1


def test_a_ratio_is_a_finding_of_its_own_taken_run_by_run() -> None:
    made = ratio("throughput", finding(100, 300), finding(10, 10, engine="pyspark"), Target(25))
    assert (made.engine, made.unit, made.runs) == ("penstock/pyspark", "times", (10.0, 30.0))
    assert (made.value, made.met) == (20.0, False)


def test_a_finding_without_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        finding()


def test_the_table_has_a_row_for_every_finding() -> None:
    made = table(
        [finding(1.0), finding(2.0, target=Target(1.0)), finding(3.0, target=Target(4.0, "at most"))]
    )
    assert made.row_count == 3


def test_figures_are_spelled_with_as_many_digits_as_one_can_believe() -> None:
    assert [format_value(value) for value in (1234567.8, 123.4, 12.345, 0.12345)] == [
        "1,234,568",
        "123",
        "12.3",
        "0.123",
    ]


def test_stages_are_shown_as_one_line_per_case() -> None:
    assert stage_lines({"patterns": {"scan": 1.25, "epochs": 4.0}}) == ["patterns: scan 1.25 s, epochs 4"]


def test_the_smaller_data_sets_never_exceed_the_events_asked_for() -> None:
    size = click_size(quick=False, events=10_000, runs=None)
    assert (size.events, size.slow_events, size.warm_events, size.runs) == (10_000, 10_000, 10_000, 3)
    assert click_size(quick=True, events=None, runs=2).runs == 2
