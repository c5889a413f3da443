"""The operator benchmark: its trials and findings; it yields none before all results agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench import operators
from bench import operators_reference as reference
from bench.cli import OperatorCase, operator_size
from bench.findings import Finding
from bench.operator_queries import Query, answer
from bench.operators import CASES, QUICK, Operators, Size
from bench.outcome import Outcome
from bench.worker import Task
from penstock.errors import InternalError

SMALL = Size(
    events=3_000,
    join_events=2_000,
    product_events=1_000,
    product_rate=50,
    slow_events=1_000,
    warm_events=500,
    warm_product_events=200,
    runs=2,
    cores=(1, 2),
)

Seconds = Callable[[str, Query, int], float]
Made = Callable[..., tuple[Operators, "Engines"]]


class Engines:
    """Stands for the processes: the right answers, in the time that `seconds` says; remembers the tasks."""

    def __init__(self, seconds: Seconds, wrong: str = "") -> None:
        self.seconds, self.wrong = seconds, wrong
        self.tasks: list[Task] = []

    def __call__(self, task: Task) -> list[Outcome]:
        self.tasks.append(task)
        outcomes = []
        for query, dataset in zip(task.queries, task.datasets, strict=True):
            rows = reference.rows(replace(query, order="epoch"), dataset)
            right = answer(query, rows[1:] if query.operator == self.wrong else rows)
            seconds = self.seconds(task.engine, query, task.cores or 0)
            outcomes.append(Outcome(dataset.events, seconds, 1, right))
        return outcomes


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    def made(
        size: Size = SMALL, seconds: Seconds = lambda *_: 1.0, wrong: str = ""
    ) -> tuple[Operators, Engines]:
        engines = Engines(seconds, wrong)
        monkeypatch.setattr(operators, "run_task", engines)
        return Operators(size, tmp_path, lambda _: None), engines

    return made


def found(bench: Operators, case: str) -> dict[tuple[str, str, str], Finding]:
    return {(f.case, f.engine, f.metric): f for f in bench.cases()[case]()}


@pytest.mark.slow
def test_engines_are_compared_on_all_numbers_of_cores_and_targets_are_for_the_most(bench: Made) -> None:
    def seconds(engine: str, query: Query, cores: int) -> float:
        return (1.0 if engine == "penstock" else 4.0) * (0.003 if cores == 2 else 0.005)

    findings = found(bench(seconds=seconds)[0], "aggregate")
    ours = findings["aggregate", "penstock", "throughput"]
    assert (ours.unit, ours.value, ours.met) == ("events/s", pytest.approx(1_000_000), True)
    assert ours.target is not None
    assert findings["aggregate", "pyspark", "throughput"].met is None
    times = findings["aggregate", "penstock/pyspark", "throughput"]
    assert (times.value, times.met) == (pytest.approx(4), True)
    assert findings["aggregate, 1 core", "penstock", "throughput"].target is None
    assert findings["aggregate", "penstock", "2 cores over 1"].value == pytest.approx(5 / 3)
    assert all(len(finding.runs) == SMALL.runs for finding in findings.values())


def test_joins_have_findings_for_every_window(bench: Made) -> None:
    findings = found(bench()[0], "join")
    assert {case for case, *_ in findings} == {"join", "join, 1 core", "join within 10 s", "join within 30 s"}
    assert {f.target.value for f in findings.values() if f.target} == {200_000, 3}


def test_products_count_the_pairs_of_a_window_and_have_no_peer(bench: Made) -> None:
    made, engines = bench(seconds=lambda *_: 2.0)
    findings = found(made, "product")
    dataset = engines.tasks[0].datasets[-1]
    for seconds in (10, 30, 60):
        finding = findings[f"product within {seconds} s", "penstock", "comparisons"]
        assert finding.value == reference.comparisons(dataset, seconds) / 2
        assert finding.target is not None
    assert findings["product", "penstock", "2 cores over 1"].value == 1
    assert {task.engine for task in engines.tasks} == {"penstock"}
    assert "refuses" in made.left_out(CASES)[0]
    assert made.left_out(["map"]) == []


def test_windows_are_flat_when_the_dearest_costs_little_more_than_the_cheapest(bench: Made) -> None:
    for dearest, flat in ((1.25, True), (1.5, False)):
        findings = found(
            bench(seconds=lambda _, q, __, d=dearest: d if q.windows == 60 else 1.0)[0], "windows"
        )
        spread = findings["windows", "penstock", "most over least cost"]
        assert (spread.value, spread.met) == (pytest.approx(dearest), flat)
        assert findings["windows", "pyspark", "most over least cost"].target is None
        cost = findings["windows: 6 overlapping", "penstock", "cost of an event"]
        assert (cost.unit, cost.value) == ("us", pytest.approx(1e6 / SMALL.events))


def test_orders_are_compared_with_no_order(bench: Made) -> None:
    findings = found(bench(seconds=lambda _, q, __: 3.0 if q.order == "strict" else 1.0)[0], "order")
    assert findings["order: strict", "penstock", "throughput over no order"].value == pytest.approx(1 / 3)
    assert findings["order: epoch", "penstock", "throughput over no order"].value == pytest.approx(1)


def test_a_case_with_a_wrong_result_has_no_findings(bench: Made) -> None:
    made, _ = bench(wrong="aggregate")
    assert found(made, "map")
    findings = []
    with pytest.raises(InternalError) as refused:
        findings += made.cases()["aggregate"]()
    assert refused.value.condition == "BENCH_DISAGREES"
    assert findings == []


def test_a_process_is_warm_before_it_is_measured_and_every_other_run_is_in_reverse(bench: Made) -> None:
    made, engines = bench()
    list(made.cases()["windows"]())
    ours = [task for task in engines.tasks if task.engine == "penstock"]
    assert [[q.windows for q in task.queries[1:]] for task in ours] == [
        [1, 2, 6, 12, 30, 60],
        [60, 30, 12, 6, 2, 1],
    ]
    assert {task.datasets[0].events for task in engines.tasks} == {SMALL.warm_events}


def test_a_quick_look_has_one_process_an_engine_for_all_cases(bench: Made) -> None:
    made, engines = bench(replace(SMALL, runs=1, cores=(2,), together=True))
    for case in CASES:
        assert list(made.cases()[case]())
    assert sorted(task.engine for task in engines.tasks) == ["penstock", "pyspark"]
    assert {"map", "join within 60 s", "order: strict"} < made.stages.keys()


def test_the_size_asked_for_bounds_every_data_set() -> None:
    size = operator_size(quick=False, events=2_000, runs=1)
    assert (size.events, size.join_events, size.product_events, size.warm_events) == (2_000,) * 4
    assert size.runs == 1
    assert operator_size(quick=True, events=None, runs=None) == QUICK
    assert tuple(case.value for case in OperatorCase) == CASES
