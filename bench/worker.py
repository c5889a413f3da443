"""Runs one engine in a process of its own, so that no engine inherits another's JVM, heat or memory.

Outcomes come back through a file. Both sides are here: `run_task`
starts the process, `main` is what runs in it.

On failure: `InternalError` BENCH_FAILED with the end of what the process printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.dataset import Dataset
from bench.job_queries import Family, jobs_of
from bench.operator_queries import Query
from bench.outcome import Outcome, read_outcomes, write_outcomes
from bench.processes import end_tree, environment
from penstock.errors import InternalError

_DEADLINE_SECONDS = 3600


@dataclass(frozen=True)
class Task:
    """What a process does: an engine ("penstock", "pyspark", a `transformWithState` method), a case, its input.

    `queries`: of the operator benchmark, one for each data set. `cores`: how many to use, all if not said.
    `family`, `jobs` and `limit_seconds`: of the jobs benchmark, made of the words of the last data set.
    """

    engine: str
    case: str
    datasets: tuple[Dataset, ...] = ()
    warm_epochs: int = 0
    epochs: int = 0
    epoch_events: int = 1_000
    queries: tuple[Query, ...] = ()
    cores: int | None = None
    family: Family = "template"
    jobs: int = 0
    limit_seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Task:
        facts = json.loads(text)
        datasets = tuple(
            Dataset(d["events"], d["servers"], Path(d["whole"]), Path(d["rotated"]))
            for d in facts.pop("datasets")
        )
        queries = tuple(Query(**query) for query in facts.pop("queries"))
        return cls(datasets=datasets, queries=queries, **facts)


def run_task(task: Task) -> list[Outcome]:
    """The outcomes of a task, one for each data set; its state and checkpoints are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        run_module("bench.worker", [task.to_json(), str(place)], f"{task.engine} for {task.case}", place)
        return read_outcomes(place / "outcomes.json")


def run_module(
    module: str, arguments: Sequence[str], what: str, place: Path, settings: Mapping[str, str] | None = None
) -> None:
    """Run a module in a process of its own, with these environment variables set; `place` gets what it prints."""
    printed = place / "printed"
    with open(printed, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(**(settings or {})),
            start_new_session=True,
        )
    try:
        code = process.wait(_DEADLINE_SECONDS)
    finally:
        end_tree(process)
    if code:
        raise InternalError(
            "BENCH_FAILED",
            f"the process of {what} ended with code {code}",
            detail=printed.read_text(errors="replace")[-3000:],
        )


def main(text: str, place: Path) -> None:
    """In the process: do the task and write its outcomes."""
    write_outcomes(_outcomes(Task.from_json(text), place), place / "outcomes.json")


def _outcomes(task: Task, place: Path) -> list[Outcome]:
    # each engine imports its own, so that what one needs does not slow the other's start
    datasets = list(task.datasets)
    match task.engine, task.case:
        case "penstock", "small epochs":
            from bench.penstock_runs import small_epochs

            return [small_epochs(task.warm_epochs, task.epochs, task.epoch_events, place)]
        case "penstock", "operators":
            from bench import penstock_operators

            return penstock_operators.runs(task.queries, datasets, task.cores, place)
        case "pyspark", "operators":
            from bench import pyspark_operators

            return pyspark_operators.runs(task.queries, datasets, task.cores, place)
        case "penstock", "jobs":
            from bench import penstock_jobs
            from bench.jobs_reference import words_of

            jobs = jobs_of(task.family, task.jobs, words_of(datasets[-1]))
            return penstock_jobs.runs(jobs, datasets, task.cores, place)
        case "penstock", "job latency":
            from bench.job_latency import latency
            from bench.jobs_reference import words_of

            jobs = jobs_of(task.family, task.jobs, words_of(datasets[-1]))
            return latency(jobs, task.epochs, task.epoch_events, place)
        case "pyspark", "jobs":
            from bench import pyspark_jobs
            from bench.jobs_reference import words_of

            jobs = jobs_of(task.family, task.jobs, words_of(datasets[-1]))
            return pyspark_jobs.runs([jobs] * len(datasets), datasets, task.cores, task.limit_seconds, place)
        case "penstock", _:
            from bench.penstock_runs import runs

            return runs(task.case, datasets, place)
        case "pyspark", "small epochs":
            from bench.empty_epochs import empty_epochs
            from bench.penstock_runs import start_session

            return [empty_epochs(start_session(), task.warm_epochs, task.epochs, place / "checkpoint")]
        case "pyspark", "windows":
            from bench import pyspark_windows

            return pyspark_windows.runs(datasets, place)
        case ("transformWithState" | "transformWithStateInPandas") as form, "patterns":
            from bench import pyspark_patterns

            return pyspark_patterns.runs(form, datasets, place)
    raise InternalError("BENCH_FAILED", f"no program runs {task.engine} for {task.case}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
