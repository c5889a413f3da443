"""The jobs benchmark: what the state of aggregates costs, and many jobs at once on one click stream.

A case yields its findings only after its results agreed.

- `state`: compressed, buffered state beside a plain dictionary, with a million and ten million keys.
- `template` and `arbitrary`: more and more jobs of a family (see `job_queries`). Throughput is events divided by the
  time until the slowest job has read them all. Plain PySpark runs each job as a query of its own, up to a time limit;
  cut short, its throughput is what the slowest had read by then, and its results are not compared.
- `latency`: with many jobs on a live stream, the time from an ALTER to the first row that shows it, and from a
  request to its reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench import jobs_reference as reference
from bench.benchmark import Benchmark, ShowProgress
from bench.dataset import Dataset, Parameters, make_dataset
from bench.findings import Finding, Target
from bench.job_queries import Family, jobs_of
from bench.outcome import AnswerRows, Outcome, agree
from bench.state import BENCH, states
from bench.worker import Task, run_task

SPEED, PER_SECOND, MEMORY = "throughput", "events/s", "driver memory a job, kB"
#: events a second of event time: what the stream would bring if it were live
RATE = 20_000


@dataclass(frozen=True)
class Size:
    """How much is measured: keys of states, events that jobs read, and how many jobs each engine gets at a time."""

    keys: tuple[int, ...] = (1_000_000, 10_000_000)
    events: int = 1_000_000
    warm_events: int = 50_000
    jobs: tuple[int, ...] = (1, 10, 100, 1_000)
    peer_jobs: tuple[int, ...] = (1, 10, 50)
    peer_limit_seconds: float = 300
    alters: int = 100
    requests: int = 2_000
    latency_jobs: int = 100
    runs: int = 1


QUICK = Size(
    keys=(100_000,),
    events=50_000,
    warm_events=5_000,
    jobs=(1, 20),
    peer_jobs=(1, 4),
    peer_limit_seconds=60,
    alters=10,
    requests=200,
    latency_jobs=10,
)

#: events a second that so many arbitrary jobs must at least read, and their longest epoch in seconds
_ARBITRARY = {100: (100_000, None), 1_000: (20_000, 2.0)}


class Jobs(Benchmark):
    """One run of the benchmark."""

    def __init__(self, size: Size, root: Path, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size
        self._dataset = cache(partial(self._make_dataset, root))

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "state": self.state,
            "template": partial(self._jobs, "template"),
            "arbitrary": partial(self._jobs, "arbitrary"),
            "latency": self.latency,
        }

    def state(self) -> Iterator[Finding]:
        """Bytes a key and inserts a second of Penstock's state and of dictionaries."""
        return states(self._size.keys, self._size.runs, self._show_progress)

    def latency(self) -> Iterator[Finding]:
        """Measure how soon an altered job emits, and how long a request for a result takes."""
        size = self._size
        self._show_progress(f"latency: {size.alters} alters, {size.requests} questions")
        task = Task(
            "penstock",
            "job latency",
            (self._dataset(size.warm_events),),
            family="arbitrary",
            jobs=size.latency_jobs,
            epochs=size.alters,
            epoch_events=size.requests,
        )
        alter, request = run_task(task)
        case = f"{size.latency_jobs} jobs"
        for name, samples, bounds in (
            ("ALTER to its first row", alter.samples, (700, 1_500)),
            ("answer to a question", request.samples, (None, 10)),
        ):
            for share, bound in zip((0.5, 0.99), bounds, strict=True):
                value = sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]
                target = None if bound is None else Target(bound, "at most")
                metric = f"{name}, p{share * 100:.0f}"
                yield Finding(BENCH, f"latency, {case}", "penstock", metric, "ms", (value,), target)

    def _jobs(self, family: Family) -> Iterator[Finding]:
        """Throughput of each number of jobs: in one engine, and as so many queries of plain PySpark."""
        size = self._size
        warm, whole = self._dataset(size.warm_events), self._dataset(size.events)
        self._show_progress(f"{family}: reference")
        jobs = jobs_of(family, max(*size.jobs, *size.peer_jobs), reference.words_of(whole))
        expected = reference.answers(jobs, whole)
        outcomes_by_count = {}
        for count in size.jobs:
            outcomes_by_count[count] = self._runs("penstock", family, count, warm, whole, expected)
            yield from self._penstock_findings(family, count, outcomes_by_count[count])
        least, most = min(outcomes_by_count), max(outcomes_by_count)
        if family == "template":
            shares = tuple(
                many.events_per_second / one.events_per_second
                for many, one in zip(outcomes_by_count[most], outcomes_by_count[least], strict=True)
            )
            metric = f"throughput over {least} job"
            yield Finding(BENCH, f"template, {most} jobs", "penstock", metric, "times", shares, Target(0.5))
        memory_growth = tuple(
            (many.stages[MEMORY] * most - one.stages[MEMORY] * least) / (most - least)
            for many, one in zip(outcomes_by_count[most], outcomes_by_count[least], strict=True)
        )
        bound = Target(100, "at most")
        yield Finding(BENCH, f"{family}, {most} jobs", "penstock", MEMORY, "kB", memory_growth, bound)
        for count in size.peer_jobs:
            outcomes = self._runs("pyspark", family, count, warm, whole, expected)
            yield from run_findings(f"{family}, {count} jobs", "pyspark, a query each", outcomes)

    def _runs(
        self, engine: str, family: Family, count: int, warm: Dataset, whole: Dataset, expected: AnswerRows
    ) -> list[Outcome]:
        """The runs of so many jobs on an engine, their answers right."""
        outcomes = []
        for number in range(self._size.runs):
            self._show_progress(f"{family}: {engine}, {count} jobs, run {number + 1} of {self._size.runs}")
            task = Task(
                engine,
                "jobs",
                (warm, whole),
                family=family,
                jobs=count,
                limit_seconds=self._size.peer_limit_seconds,
            )
            outcome = run_task(task)[-1]
            if outcome.stages["jobs done"] == count:
                agree(f"{count} jobs of {family}", engine, outcome.answer, expected[:count])
            outcomes.append(outcome)
        self.stages[f"{family}, {count} jobs, {engine}"] = outcomes[-1].stages
        return outcomes

    def _penstock_findings(self, family: Family, count: int, outcomes: list[Outcome]) -> Iterator[Finding]:
        case, (events, seconds) = f"{family}, {count} jobs", (None, None)
        if family == "arbitrary":
            events, seconds = _ARBITRARY.get(count, (None, None))
        speeds = tuple(outcome.events_per_second for outcome in outcomes)
        target = None if events is None else Target(events)
        yield Finding(BENCH, case, "penstock", SPEED, PER_SECOND, speeds)
        # the end of a log closes every window, which never happens on a live stream
        lasting = tuple(outcome.stages["lasting"] for outcome in outcomes)
        yield Finding(BENCH, case, "penstock", "throughput but for the end", PER_SECOND, lasting, target)
        longest = tuple(max(outcome.samples) / 1000 for outcome in outcomes)
        target = None if seconds is None else Target(seconds, "at most")
        yield Finding(BENCH, case, "penstock", "longest epoch", "s", longest, target)

    def _make_dataset(self, root: Path, events: int) -> Dataset:
        self._show_progress(f"{events:,} log lines")
        return make_dataset(Parameters(events, rate=RATE), root)


def run_findings(case: str, engine: str, outcomes: list[Outcome]) -> Iterator[Finding]:
    """Return the findings of some jobs' runs."""
    speeds = tuple(outcome.events_per_second for outcome in outcomes)
    yield Finding(BENCH, case, engine, SPEED, PER_SECOND, speeds)
    read = tuple(outcome.stages["share read"] for outcome in outcomes)
    yield Finding(BENCH, case, engine, "read within the time limit", "share", read)
