"""Penstock's side of the jobs benchmark: many jobs in one engine.

The jobs run over each data set in turn.
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
from bench.penstock_runs import clicks, files_of, run_to_end, start_session
from bench.processes import memory_bytes
from penstock.catalogue.program import Program
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings

#: the longest epoch there may be, in seconds, with which many jobs still emit soon
EPOCH_SECONDS = 1.5
#: what the first epoch takes: with a thousand jobs it must not be much
FIRST_BYTES = 2_000_000


def runs(jobs: Sequence[Job], datasets: Sequence[Dataset], cores: int | None, place: Path) -> list[Outcome]:
    """The jobs over each data set in turn, in one session; the first ones warm it up for the last."""
    spark = start_session("local[*]" if cores is None else f"local[{cores}]")
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
    rows_by_job: dict[str, list[pl.DataFrame]] = defaultdict(list)

    def watch(report: EpochReport) -> None:
        if not memory:
            memory.append((memory_bytes() - before) / 1000 / len(jobs))
        lengths.append(report.seconds)
        sizes.append(report.events)
        ends.append(time.perf_counter())
        for name, rows in report.rows.items():
            rows_by_job[name].append(rows)

    done = run_to_end(program, dataset, settings, spark, watch)
    # from the end of the first epoch to the end of the last but one that reads
    last = max(number for number, size in enumerate(sizes) if size)
    lasting = sum(sizes[1:last]) / (ends[last - 1] - ends[0]) if last > 1 else done.events / done.seconds
    return Outcome(
        done.events,
        done.seconds,
        done.epochs,
        [_summarise(job, rows_by_job[name_of(job)]) for job in jobs],
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


def _summarise(job: Job, found: Sequence[pl.DataFrame]) -> list[Any]:
    return answer(job, pl.concat(found)) if found else [job.number, 0, 0]
