"""The jobs benchmark: what the state of aggregates costs, and many jobs at once on one click stream.

Receives its size; hands findings, case by case, each case only after its answers agreed.

- `state`: compressed, buffered state beside a plain dictionary, with a million and ten million keys.
- `template` and `arbitrary`: more and more jobs of a family (see `job_queries`). Throughput is events divided by the
  time until the slowest job has read them all. Plain PySpark runs each job as a query of its own, up to a time limit;
  cut short, its throughput is what the slowest had read by then, and nothing is said of its answers.

Penstock's side of the last two is not built yet: see `penstock_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from penstock.bench import jobs_reference as reference
from penstock.bench.dataset import Dataset, Parameters, materialised
from penstock.bench.findings import Finding
from penstock.bench.job_queries import FAMILIES, Family, jobs_of
from penstock.bench.outcome import Outcome, agree
from penstock.bench.state import BENCH, states
from penstock.bench.worker import Task, performed

SPEED, PER_SECOND = "throughput", "events/s"
CASES = ("state", *FAMILIES)


@dataclass(frozen=True)
class Size:
    """How much is measured: keys of states, events that jobs read, and how many jobs plain PySpark gets at a time."""

    keys: tuple[int, ...] = (1_000_000, 10_000_000)
    events: int = 1_000_000
    warm_events: int = 50_000
    peer_jobs: tuple[int, ...] = (1, 10, 50)
    peer_limit_seconds: float = 300
    runs: int = 1


QUICK = Size(keys=(100_000,), events=50_000, warm_events=5_000, peer_jobs=(1, 4), peer_limit_seconds=60)

#: says what is being done, for people who wait
Told = Callable[[str], None]


class Jobs:
    """One run of the benchmark."""

    def __init__(self, size: Size, root: Path, told: Told) -> None:
        self._size, self._told = size, told
        self._dataset = cache(partial(self._made, root))
        #: for people: where the time went, by case
        self.stages: dict[str, dict[str, float]] = {}

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "state": self.state,
            "template": partial(self._jobs, "template"),
            "arbitrary": partial(self._jobs, "arbitrary"),
        }

    def state(self) -> Iterator[Finding]:
        """Bytes a key and inserts a second of Penstock's state and of dictionaries."""
        return states(self._size.keys, self._size.runs, self._told)

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """What is not measured here and why, a line each."""
        if not {*FAMILIES} & {*wanted}:
            return []
        return ["Penstock's side of template and arbitrary left out: it is not built yet"]

    def _jobs(self, family: Family) -> Iterator[Finding]:
        """Throughput and how far the jobs came, for each number of jobs."""
        size = self._size
        warm, whole = self._dataset(size.warm_events), self._dataset(size.events)
        self._told(f"{family}: reference")
        jobs = jobs_of(family, max(size.peer_jobs), reference.words_of(whole))
        right = reference.answers(jobs, whole)
        for count in size.peer_jobs:
            outcomes = []
            for number in range(size.runs):
                self._told(f"{family}: pyspark, {count} jobs, run {number + 1} of {size.runs}")
                task = Task(
                    "pyspark",
                    "jobs",
                    (warm, whole),
                    family=family,
                    jobs=count,
                    limit_seconds=size.peer_limit_seconds,
                )
                outcome = performed(task)[-1]
                if outcome.stages["jobs done"] == count:
                    agree(f"{count} jobs of {family}", "pyspark", outcome.answer, right[:count])
                outcomes.append(outcome)
            yield from told(f"{family}, {count} jobs", "pyspark, a query each", outcomes)
            self.stages[f"{family}, {count} jobs"] = {"first to last trigger": outcomes[-1].seconds}

    def _made(self, root: Path, events: int) -> Dataset:
        self._told(f"{events:,} log lines")
        return materialised(Parameters(events), root)


def told(case: str, engine: str, outcomes: list[Outcome]) -> Iterator[Finding]:
    """What is told of some jobs' runs."""
    speeds = tuple(outcome.events_per_second for outcome in outcomes)
    yield Finding(BENCH, case, engine, SPEED, PER_SECOND, speeds)
    read = tuple(outcome.stages["share read"] for outcome in outcomes)
    yield Finding(BENCH, case, engine, "read within the time limit", "share", read)
