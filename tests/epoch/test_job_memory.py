"""A job that takes too much memory, or in whose code workers die, is left out; the epoch and other jobs continue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import numpy as np
import polars as pl
import pytest
from pyspark.sql import SparkSession

from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.epoch.job_memory import EXIT_STATUS, JobMemory, WorkerDeaths, default_job_bytes
from penstock.epoch.report import EpochReport
from penstock.settings import Settings
from tests.catalogue import kit
from tests.catalogue.kit import STEADY_JOBS, life

cloudpickle.register_pickle_by_value(sys.modules[__name__])
LIMIT = 300_000_000
EVENTS = kit.events(120)


def _keeps_much(values: pl.Series) -> pl.Series:
    if (values == "u5").any():
        much = np.ones(2 * LIMIT, dtype=np.uint8)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # a worker that is not ended fails the test by its error
            time.sleep(0.01)
        raise AssertionError(f"had {len(much)} bytes")
    return values


def _joins_all(values: pl.Series) -> pl.Series:
    if (values == "u5").any():
        many = pl.DataFrame({"n": np.arange(40_000)})
        raise AssertionError(f"made {many.join(many, how='cross').height} rows")
    return values


def _dies(values: pl.Series) -> pl.Series:
    if (values == "u5").any():
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory runs out
    return values


@pytest.mark.spark
@pytest.mark.parametrize(
    ("code", "condition", "small_epoch_bytes"),
    [
        (_keeps_much, "JOB_OUT_OF_MEMORY", 0),
        (_joins_all, "JOB_OUT_OF_MEMORY", 1_000_000),
        (_dies, "JOB_ENDED_WORKER", 0),
    ],
)
def test_a_job_that_ends_its_workers_is_left_out_and_the_others_continue(
    code: Callable[[pl.Series], pl.Series],
    condition: str,
    small_epoch_bytes: int,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    alone = kit.run_all(tmp_path / "alone", kit.clicks(EVENTS), STEADY_JOBS, epoch_units=40)
    jobs = Program(
        "test",
        tmp_path / "state",
        streams={"clicks": kit.clicks(EVENTS)},
        functions={"hungry": lambda user: user.map_batches(code, return_dtype=pl.String)},
        begin=f"{STEADY_JOBS}; CREATE JOB bad AS SELECT hungry(user) AS who FROM clicks",
    )
    settings = Settings(
        state=tmp_path / "state",
        drain=True,
        most_epoch_units=40,
        small_epoch_bytes=small_epoch_bytes,
        slices=2,
        warm_up=False,
        job_memory_bytes=LIMIT,
        job_seconds=0.0,
    )
    reports: list[EpochReport] = []
    Engine(jobs, settings, spark).run(reports.append)
    emitted = kit.emitted_rows(reports)
    assert life(jobs, "bad") == "failed"
    assert condition in str(jobs.catalogue.jobs["bad"].master.error)
    assert {name: rows for name, rows in emitted.items() if name != "bad"} == alone


_HUNGRY = """
import sys, time
from penstock.epoch.job_memory import JobMemory, job_watch
watch = job_watch(JobMemory(50_000_000, sys.argv[1]))
with watch.watch(7):
    kept = bytearray(b"x" * 20_000_000)
    time.sleep(0.2)
print(watch.take_growth(), flush=True)
if sys.argv[2] == "exceed":
    with watch.watch(8):
        kept += b"x" * 100_000_000
        time.sleep(60)
input()
"""


@pytest.mark.process
def test_a_worker_ends_when_a_job_takes_more_than_its_bound(tmp_path: Path) -> None:
    memory = JobMemory(50_000_000, str(tmp_path / "marks"))
    deaths = WorkerDeaths(memory)
    command = [sys.executable, "-c", _HUNGRY, memory.marks]
    ended = subprocess.run([*command, "exceed"], capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_STATUS
    errors = deaths.blame(3)
    assert errors is not None
    assert {job: error.condition for job, error in errors.items()} == {8: "JOB_OUT_OF_MEMORY"}
    assert deaths.blame(3) is None, "each death counts once"


@pytest.mark.process
def test_a_job_is_blamed_when_two_workers_died_in_its_code_in_one_epoch(tmp_path: Path) -> None:
    deaths = WorkerDeaths(JobMemory(1 << 40, str(tmp_path / "marks")))
    code = (
        "import os, sys; from penstock.epoch.job_memory import JobMemory, job_watch\n"
        "with job_watch(JobMemory(1 << 40, sys.argv[1])).watch(5): os.abort()"
    )

    def die() -> None:
        subprocess.run([sys.executable, "-c", code, tmp_path / "marks"], capture_output=True, check=False)

    die()
    assert deaths.blame(1) == {}, "once is tried again"
    die()
    assert deaths.blame(2) == {}, "another epoch counts from the start"
    die()
    errors = deaths.blame(2)
    assert errors is not None
    assert [error.condition for error in errors.values()] == ["JOB_ENDED_WORKER"]


@pytest.mark.process
def test_a_living_worker_is_not_blamed_and_reports_the_growth_of_its_jobs(tmp_path: Path) -> None:
    memory = JobMemory(50_000_000, str(tmp_path / "marks"))
    deaths = WorkerDeaths(memory)
    command = [sys.executable, "-c", _HUNGRY, memory.marks, "stay"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline().startswith("{7: ")
        assert deaths.blame(0) is None
        worker.communicate("\n", timeout=60)
    assert deaths.blame(0) is None, "it died in no job's code"


@pytest.mark.process
def test_workers_of_cancelled_tasks_are_not_blamed_when_they_end_later(tmp_path: Path) -> None:
    """Spark ends them seconds after the failure of another task."""
    memory = JobMemory(1 << 40, str(tmp_path / "marks"))
    deaths = WorkerDeaths(memory)
    code = (
        "import sys; from penstock.epoch.job_memory import JobMemory, job_watch\n"
        "with job_watch(JobMemory(1 << 40, sys.argv[1])).watch(7): print('in', flush=True); input()"
    )
    with contextlib.ExitStack() as running:
        for _ in range(2):
            worker = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code, memory.marks],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            assert worker.stdout is not None
            assert worker.stdout.readline() == "in\n"
            running.callback(worker.kill)
        assert deaths.blame(3) is None, "they live"
    assert deaths.blame(3) is None
    assert list(Path(memory.marks).iterdir()) == []


def test_jobs_share_half_of_the_hosts_memory() -> None:
    assert (
        0
        < default_job_bytes() * (os.cpu_count() or 1) * 2
        <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )
