"""The operator benchmark: single operators on call records, Penstock and plain PySpark side by side.

A case yields its findings only after all its results agreed.

It is the experiment by which StreamCloud shows the scalability of its operators: map, aggregate, join and
cartesian product, on more and more cores and with growing windows. Two cases are about Penstock alone: what it costs
that a call is in many overlapping windows, and what the three orders cost.

It measures as `bench.clicks` describes. A process takes one engine on so many cores (`local[n]`) and
first runs the queries on a small data set, whose results are discarded. Queries of one case that differ in their
parameters share a process, and every other run takes them in reverse, so that none is always the warmest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Literal

from bench import operators_reference as reference
from bench.benchmark import Benchmark, ShowProgress
from bench.call_data import CallParameters
from bench.dataset import Dataset, make_dataset
from bench.findings import Finding, Target, ratio
from bench.operator_queries import Order, Query, answer
from bench.outcome import AnswerRows, Outcome, agree
from bench.worker import Task, run_task

BENCH = "operators"
SPEED, PER_SECOND = "throughput", "events/s"
ORDERS: tuple[Order, ...] = ("none", "epoch", "strict")

Engine = Literal["penstock", "pyspark"]
Case = Literal["aggregate", "map", "join", "product", "windows", "order"]
CASES: tuple[Case, ...] = ("aggregate", "map", "join", "product", "windows", "order")


def _cores() -> tuple[int, ...]:
    return tuple(sorted({1, min(2, os.cpu_count() or 1)}))


@dataclass(frozen=True)
class Size:
    """How much is measured. `slow_events`: for Spark's many overlapping windows, a prefix of the same lines.

    Products are measured at `product_rate` calls a second of event time: the pairs of a window grow with its square.
    `together`: one process an engine answers everything, instead of one a case.
    """

    events: int = 4_000_000
    join_events: int = 1_000_000
    product_events: int = 100_000
    product_rate: float = 500
    slow_events: int = 300_000
    warm_events: int = 100_000
    warm_product_events: int = 5_000
    runs: int = 3
    cores: tuple[int, ...] = field(default_factory=_cores)
    #: how far apart the calls of a pair may be, in seconds; the last one is the question that is compared
    join_seconds: tuple[int, ...] = (10, 30, 60)
    product_seconds: tuple[int, ...] = (10, 30, 60)
    windows: tuple[int, ...] = (1, 2, 6, 12, 30, 60)
    slow_windows: tuple[int, ...] = (1, 6, 60)
    together: bool = False


QUICK = Size(
    events=200_000,
    join_events=60_000,
    product_events=10_000,
    slow_events=20_000,
    warm_events=5_000,
    warm_product_events=2_000,
    runs=1,
    cores=_cores()[-1:],
    join_seconds=(60,),
    product_seconds=(10,),
    windows=(1, 60),
    slow_windows=(),
    together=True,
)


@dataclass(frozen=True)
class Trial:
    """One engine's go at one question, on some calls and so many cores."""

    engine: Engine
    query: Query
    data: CallParameters
    cores: int


Measured = dict[Trial, list[Outcome]]


class Operators(Benchmark):
    """One run of the benchmark, of the cases in `wanted`."""

    def __init__(
        self, size: Size, root: Path, show_progress: ShowProgress, wanted: Collection[str] = CASES
    ) -> None:
        super().__init__(show_progress)
        self._size, self._wanted = size, wanted
        self._dataset = cache(partial(self._make_dataset, root))
        self._right = cache(self._expected_answer)
        self._comparisons = cache(self._count_comparisons)
        self._done: dict[str, Measured] = {}

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "aggregate": partial(self._compare_engines, "aggregate", Target(1_000_000), Target(3)),
            "map": partial(self._compare_engines, "map", None, None),
            "join": self.join,
            "product": self.product,
            "windows": self.windows,
            "order": self.order,
        }

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """Say what is not measured here and why, a line each."""
        if "product" not in wanted:
            return []
        return [
            "product: no peer, since Spark refuses a join of two streams without an equality "
            "(a test shows its message)"
        ]

    # -- cases -----------------------------------------------------------------------------------

    def join(self) -> Iterator[Finding]:
        """The distance of two calls of a caller, with growing windows."""
        yield from self._compare_engines("join", Target(200_000), Target(3))
        for trial in self._trials("join")["windows"]:
            yield self._speed(f"join within {trial.query.seconds} s", trial, self._measure_case("join"))

    def product(self) -> Iterator[Finding]:
        """Calls that share a number and overlap, looked for among all pairs of a window."""
        measured = self._measure_case("product")
        for trial in [*self._trials("product")["compared"], *self._trials("product")["windows"]]:
            most = trial.cores == self._most
            case = f"product within {trial.query.seconds} s" + (
                "" if most else f", {_count_cores(trial.cores)}"
            )
            pairs = self._comparisons(trial.query.seconds, trial.data)
            speeds = tuple(pairs / outcome.seconds for outcome in measured[trial])
            target = Target(200_000_000) if most else None
            yield Finding(BENCH, case, trial.engine, "comparisons", "comparisons/s", speeds, target)
            yield self._speed(case, trial, measured)
        yield from self._scaling("product", measured)

    def windows(self) -> Iterator[Finding]:
        """The aggregate with a call in more and more overlapping windows: what it costs."""
        measured = self._measure_case("windows")
        for trials in self._trials("windows").values():
            for trial in trials:
                costs = tuple(_cost(outcome) for outcome in measured[trial])
                case = f"windows: {trial.query.windows} overlapping"
                yield Finding(BENCH, case, trial.engine, "cost of an event", "us", costs)
            if trials:
                by_run = zip(*(measured[trial] for trial in trials), strict=True)
                spread = tuple(max(costs) / min(costs) for costs in (list(map(_cost, run)) for run in by_run))
                flat = Target(1.3, "at most") if trials[0].engine == "penstock" else None
                yield Finding(
                    BENCH, "windows", trials[0].engine, "most over least cost", "times", spread, flat
                )

    def order(self) -> Iterator[Finding]:
        """The same count by caller with its calls in no order, by epochs and in strict order."""
        measured = self._measure_case("order")
        findings_by_order = {}
        for trial in self._trials("order")["orders"]:
            findings_by_order[trial.query.order] = self._speed(f"order: {trial.query.order}", trial, measured)
            yield findings_by_order[trial.query.order]
        for order in ("epoch", "strict"):
            shares = ratio(SPEED, findings_by_order[order], findings_by_order["none"]).runs
            yield Finding(BENCH, f"order: {order}", "penstock", "throughput over no order", "times", shares)

    # -- what is tried ---------------------------------------------------------------------------

    def _trials(self, case: Case) -> dict[str, list[Trial]]:
        """The trials of a case, by what they are for."""
        size, most = self._size, self._most
        calls = CallParameters(size.events)
        both: tuple[Engine, ...] = ("penstock", "pyspark")
        match case:
            case "aggregate" | "map":
                query = Query(case)
                return {"compared": [Trial(e, query, calls, c) for c in size.cores[::-1] for e in both]}
            case "join":
                calls, (*fewer, last) = CallParameters(size.join_events), size.join_seconds
                return {
                    "compared": [
                        Trial(e, Query("join", last), calls, c) for c in size.cores[::-1] for e in both
                    ],
                    "windows": [Trial(e, Query("join", s), calls, most) for s in fewer for e in both],
                }
            case "product":
                calls, (*fewer, last) = self._product_calls(size.product_events), size.product_seconds
                return {
                    "compared": [
                        Trial("penstock", Query("product", last), calls, c) for c in size.cores[::-1]
                    ],
                    "windows": [Trial("penstock", Query("product", s), calls, most) for s in fewer],
                }
            case "windows":
                slow = CallParameters(size.slow_events)
                return {
                    "ours": [
                        Trial("penstock", Query("aggregate", windows=n), calls, most) for n in size.windows
                    ],
                    "theirs": [
                        Trial("pyspark", Query("aggregate", windows=n), slow, most) for n in size.slow_windows
                    ],
                }
            case "order":
                return {"orders": [Trial("penstock", Query("order", order=o), calls, most) for o in ORDERS]}

    def _all(self, case: Case) -> list[Trial]:
        return [trial for trials in self._trials(case).values() for trial in trials]

    @property
    def _most(self) -> int:
        return max(self._size.cores)

    def _product_calls(self, events: int) -> CallParameters:
        return CallParameters(events, rate=self._size.product_rate)

    # -- measuring -------------------------------------------------------------------------------

    def _measure_case(self, case: Case) -> Measured:
        """The outcomes of a case, all answers right; measured now unless that is done."""
        together = [name for name in CASES if name in self._wanted] if self._size.together else [case]
        what = case if len(together) == 1 else "all cases"
        if what not in self._done:
            self._done[what] = self._measure(what, [t for name in together for t in self._all(name)])
        measured = self._done[what]
        for trial in self._all(case):
            if trial.engine == "penstock" and trial.cores == self._most:
                last = measured[trial][-1]
                whole = {"epoch to epoch": last.seconds, "epochs": float(last.epochs)}
                self.stages[_name_query(trial.query)] = {**last.stages, **whole}
        return measured

    def _measure(self, what: str, trials: Sequence[Trial]) -> Measured:
        """All runs of some trials; those of one engine on as many cores share a process."""
        by_process = sorted(dict.fromkeys(trials), key=_process)
        measured: Measured = {trial: [] for trial in by_process}
        for number in range(self._size.runs):
            for (engine, fewer), group in groupby(by_process, key=_process):
                run = f"run {number + 1} of {self._size.runs}"
                self._show_progress(f"{what}: {engine} on {_count_cores(-fewer)}, {run}")
                sharing = list(group)[:: -1 if number % 2 else 1]
                for trial, outcome in zip(sharing, self._outcomes(sharing), strict=True):
                    right = self._right(replace(trial.query, order="epoch"), trial.data)
                    agree(_name_query(trial.query), trial.engine, outcome.answer, right)
                    measured[trial].append(outcome)
        return measured

    def _outcomes(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The trials of one engine on so many cores, in a process of their own that is warm by then."""
        kinds = {trial.query.operator: trial.query for trial in trials}.values()
        warm = [(query, self._dataset(self._warm(query))) for query in kinds]
        steps = warm + [(trial.query, self._dataset(trial.data)) for trial in trials]
        queries, datasets = zip(*steps, strict=True)
        task = Task(trials[0].engine, BENCH, datasets, queries=queries, cores=trials[0].cores)
        return run_task(task)[len(warm) :]

    def _warm(self, query: Query) -> CallParameters:
        if query.operator == "product":
            return self._product_calls(self._size.warm_product_events)
        return CallParameters(self._size.warm_events)

    def _make_dataset(self, root: Path, data: CallParameters) -> Dataset:
        return make_dataset(data, root)

    def _expected_answer(self, query: Query, data: CallParameters) -> AnswerRows:
        return answer(query, reference.rows(query, self._dataset(data)))

    def _count_comparisons(self, seconds: int, data: CallParameters) -> int:
        return reference.comparisons(self._dataset(data), seconds)

    # -- findings --------------------------------------------------------------------------------

    def _compare_engines(self, case: Case, target: Target | None, times: Target | None) -> Iterator[Finding]:
        """Both engines on all numbers of cores; targets are for the most cores."""
        measured = self._measure_case(case)
        trials = self._trials(case)["compared"]
        for ours, theirs in zip(trials[::2], trials[1::2], strict=True):
            most = ours.cores == self._most
            name = case if most else f"{case}, {_count_cores(ours.cores)}"
            mine = self._speed(name, ours, measured, target if most else None)
            other = self._speed(name, theirs, measured)
            yield from (mine, other, ratio(SPEED, mine, other, times if most else None))
        yield from self._scaling(case, measured)

    def _scaling(self, case: Case, measured: Measured) -> Iterator[Finding]:
        """What the cores beyond the first bring to each engine."""
        trials = self._trials(case)["compared"]
        for ours in (trial for trial in trials if trial.cores == self._most):
            alone = replace(ours, cores=min(self._size.cores))
            if alone != ours:
                pairs = zip(measured[alone], measured[ours], strict=True)
                times = tuple(one.seconds / many.seconds for one, many in pairs)
                metric = f"{_count_cores(ours.cores)} over {alone.cores}"
                yield Finding(BENCH, case, ours.engine, metric, "times", times)

    def _speed(self, case: str, trial: Trial, measured: Measured, target: Target | None = None) -> Finding:
        speeds = tuple(outcome.events_per_second for outcome in measured[trial])
        return Finding(BENCH, case, trial.engine, SPEED, PER_SECOND, speeds, target)


def _process(trial: Trial) -> tuple[str, int]:
    return trial.engine, -trial.cores


def _cost(outcome: Outcome) -> float:
    return 1e6 * outcome.seconds / outcome.events


def _count_cores(cores: int) -> str:
    return f"{cores} core" if cores == 1 else f"{cores} cores"


def _name_query(query: Query) -> str:
    match query.operator:
        case "aggregate":
            return f"aggregate, {query.windows} windows"
        case "join" | "product":
            return f"{query.operator} within {query.seconds} s"
        case "order":
            return f"order: {query.order}"
    return query.operator
