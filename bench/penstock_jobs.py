"""Penstock's side of the jobs benchmark: many jobs in one engine.

Receives jobs and data sets; hands outcomes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bench.dataset import Dataset
from bench.job_queries import STREAM, Job, answer
from bench.outcome import Outcome
from bench.penstock_runs import clicks, drained, files_of, started
from bench.processes import memory_bytes
from penstock.catalogue.program import Program
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings

#: the longest epoch there may be, in seconds, in which many jobs still answer soon
EPOCH_SECONDS = 1.5
#: what the first epoch takes: with a thousand jobs it must not be much
FIRST_BYTES = 2_000_000


def runs(jobs: Sequence[Job], datasets: Sequence[Dataset], cores: int | None, place: Path) -> list[Outcome]:
    """The jobs over each data set in turn, in one session; the first ones warm it up for the last."""
    spark = started("local[*]" if cores is None else f"local[{cores}]")
    return [_run(jobs, dataset, spark, place / str(number)) for number, dataset in enumerate(datasets)]


def _run(jobs: Sequence[Job], dataset: Dataset, spark: Any, place: Path) -> Outcome:
    state = place / "state"
    before = memory_bytes()
    program = Program("bench", state, streams={STREAM: clicks(files_of(dataset))}, begin=script(jobs))
    settings = Settings(
        state=state,
        drain=True,
        epoch_seconds=EPOCH_SECONDS,
        catch_up_seconds=EPOCH_SECONDS,
        first_epoch_units=FIRST_BYTES,
    )
    memory: list[float] = []
    lengths: list[float] = []
    sizes: list[int] = []
    ends: list[float] = []
    told: dict[str, list[pl.DataFrame]] = defaultdict(list)

    def watch(report: EpochReport) -> None:
        if not memory:
            memory.append((memory_bytes() - before) / 1000 / len(jobs))
        lengths.append(report.seconds)
        sizes.append(report.events)
        ends.append(time.perf_counter())
        for name, rows in report.rows.items():
            told[name].append(rows)

    done = drained(program, dataset, settings, spark, watch)
    # from the end of the first epoch to the end of the last but one that reads
    last = max(number for number, size in enumerate(sizes) if size)
    lasting = sum(sizes[1:last]) / (ends[last - 1] - ends[0]) if last > 1 else done.events / done.seconds
    return Outcome(
        done.events,
        done.seconds,
        done.epochs,
        [_answered(job, told[name_of(job)]) for job in jobs],
        samples=[length * 1000 for length in lengths],
        stages={
            **done.stages,
            "driver memory a job, kB": memory[0],
            "jobs": float(len(jobs)),
            "jobs done": float(len(jobs)),
            "share read": 1.0,
            "lasting": lasting,
        },
    )


def script(jobs: Sequence[Job]) -> str:
    """The jobs in SQL."""
    return ";\n".join(f"CREATE JOB {name_of(job)} AS {job.sql()}" for job in jobs)


def name_of(job: Job) -> str:
    """What a job is called."""
    return f"job_{job.number}"


def _answered(job: Job, found: Sequence[pl.DataFrame]) -> list[Any]:
    return answer(job, pl.concat(found)) if found else [job.number, 0, 0]
