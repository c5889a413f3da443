"""The click-stream benchmark: Penstock and plain PySpark side by side on the same lines, results compared first.

A case yields its findings only after its results agreed.

How it measures. Engines run one after the other, each in its own process, `runs` times in turn. A process
first runs the same query over a smaller data set, which is thrown away (start-up, compilers, Python workers), then
over the measured one. Throughput is events divided by the time from the start of the first epoch to the end of
the last, commits included: plain PySpark's by its progress reports, Penstock's from when its engine is ready for it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench import pyspark_patterns, reference
from bench.benchmark import Benchmark, ShowProgress
from bench.dataset import Dataset, Parameters, make_dataset
from bench.decode import measure_decoding
from bench.findings import Finding, Target, ratio
from bench.outcome import Outcome, agree
from bench.worker import Task, run_task

BENCH = "clicks"
SPEED = "throughput"
PER_SECOND = "events/s"


@dataclass(frozen=True)
class Size:
    """How much is measured. `slow_events`: for `transformWithState`, a prefix of the same lines."""

    events: int = 4_000_000
    slow_events: int = 300_000
    warm_events: int = 50_000
    runs: int = 3
    warm_epochs: int = 40
    epochs: int = 100
    slow_peers: tuple[str, ...] = ("transformWithState", "transformWithStateInPandas")


QUICK = Size(
    events=300_000,
    slow_events=20_000,
    warm_events=5_000,
    runs=1,
    warm_epochs=10,
    epochs=30,
    slow_peers=("transformWithState",),
)


class Clicks(Benchmark):
    """One run of the benchmark."""

    def __init__(self, size: Size, root: Path, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size
        self._dataset = cache(lambda events: self._make_dataset(events, root))

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "patterns": self.patterns,
            "windows": self.windows,
            "small-epochs": self.small_epochs,
            "decode": self.decode,
        }

    def patterns(self) -> Iterator[Finding]:
        """Count the last three pages of each session, and keep the running top ten."""
        size, case = self._size, "patterns"
        slow, whole = self._dataset(size.slow_events), self._dataset(size.events)
        warm, peers = self._dataset(size.warm_events), self._peers()
        penstock_outcomes: list[Outcome] = []
        peer_outcomes: dict[str, list[Outcome]] = {peer: [] for peer in peers}
        self._show_progress("patterns: reference")
        expected, expected_slow = reference.patterns(whole), reference.patterns(slow)
        for number in range(size.runs):
            prefix, outcome = self._run_case(number, Task("penstock", case, (slow, whole)))
            agree(case, "penstock", outcome.answer, expected)
            agree(f"{case}, first {slow.events} events", "penstock", prefix.answer, expected_slow)
            penstock_outcomes.append(outcome)
            for peer in peers:
                _, outcome = self._run_case(number, Task(peer, case, (warm, slow)))
                agree(f"{case}, first {slow.events} events", peer, outcome.answer, prefix.answer)
                peer_outcomes[peer].append(outcome)
        self.stages[case] = _stages(penstock_outcomes[-1])
        penstock = _speed(case, "penstock", penstock_outcomes, Target(700_000))
        yield penstock
        for peer in peers:
            found = _speed(f"{case}", f"pyspark {peer}", peer_outcomes[peer])
            yield found
            yield ratio(SPEED, penstock, found, Target(25) if peer == "transformWithState" else None)

    def windows(self) -> Iterator[Finding]:
        """Count visits of each page in windows of 30 s, and rank the top ten of each."""
        size, case = self._size, "windows"
        warm, whole = self._dataset(size.slow_events), self._dataset(size.events)
        penstock_outcomes: list[Outcome] = []
        peer_outcomes: list[Outcome] = []
        self._show_progress("window counts: reference")
        expected = reference.windows(whole)
        for number in range(size.runs):
            for engine, outcomes in (("penstock", penstock_outcomes), ("pyspark", peer_outcomes)):
                *_, outcome = self._run_case(number, Task(engine, case, (warm, whole)))
                agree("window counts", engine, outcome.answer, expected)
                outcomes.append(outcome)
        self.stages["window counts"] = _stages(penstock_outcomes[-1])
        penstock = _speed("window counts", "penstock", penstock_outcomes, Target(1_000_000))
        other = _speed("window counts", "pyspark", peer_outcomes)
        yield from (penstock, other, ratio(SPEED, penstock, other, Target(3)))

    def small_epochs(self) -> Iterator[Finding]:
        """Measure the time from epoch to epoch with 1,000 events each, and of empty epochs of Structured Streaming."""
        size, case = self._size, "small epochs"
        medians: dict[str, list[float]] = {"penstock": [], "pyspark": []}
        for number in range(size.runs):
            for engine, found in medians.items():
                task = Task(engine, case, warm_epochs=size.warm_epochs, epochs=size.epochs)
                (outcome,) = self._run_case(number, task)
                found.append(statistics.median(outcome.samples))
                if engine == "penstock":
                    self.stages[case] = outcome.stages
        yield Finding(BENCH, case, "penstock", "epoch of 1,000 events", "ms", tuple(medians["penstock"]))
        yield Finding(BENCH, case, "pyspark", "empty foreachBatch epoch", "ms", tuple(medians["pyspark"]))

    def decode(self) -> Iterator[Finding]:
        """Measure the combined-log decoder alone, in one process and in as many as there are cores."""
        cores, whole = os.cpu_count() or 1, self._dataset(self._size.events)
        ways = {
            f"lines decoded, 1 process x {cores} threads": (1, cores, None),
            f"lines decoded, {cores} processes x 1 thread": (cores, 1, Target(1_000_000)),
        }
        for metric, (processes, threads, target) in ways.items():
            speeds = []
            for number in range(self._size.runs):
                self._show_progress(f"decode: {metric}, run {number + 1} of {self._size.runs}")
                speeds.append(measure_decoding(whole, processes, threads).events_per_second)
            yield Finding(BENCH, "decode", "penstock", metric, "lines/s", tuple(speeds), target)

    def left_out(self, names: Collection[str]) -> list[str]:
        """Say what is not measured here and why, a line each."""
        missing = pyspark_patterns.missing()
        if not missing or not self._size.slow_peers or "patterns" not in names:
            return []
        return [
            f"{' and '.join(self._size.slow_peers)} left out: {' and '.join(missing)} not installed; "
            "to have them: pip install -r requirements-bench.lock (or penstock[bench])"
        ]

    def _peers(self) -> Sequence[str]:
        return () if pyspark_patterns.missing() else self._size.slow_peers

    def _run_case(self, number: int, task: Task) -> list[Outcome]:
        self._show_progress(f"{task.case}: {task.engine}, run {number + 1} of {self._size.runs}")
        return run_task(task)

    def _make_dataset(self, events: int, root: Path) -> Dataset:
        self._show_progress(f"{events:,} log lines")
        return make_dataset(Parameters(events), root)


def _speed(case: str, engine: str, outcomes: list[Outcome], target: Target | None = None) -> Finding:
    speeds = tuple(outcome.events_per_second for outcome in outcomes)
    return Finding(BENCH, case, engine, SPEED, PER_SECOND, speeds, target)


def _stages(outcome: Outcome) -> dict[str, float]:
    return {**outcome.stages, "epoch to epoch": outcome.seconds, "epochs": float(outcome.epochs)}
