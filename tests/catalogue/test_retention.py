"""What commands and failures leave is bounded: files, memory and the time of a start."""

from __future__ import annotations

import gc
import os
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from penstock.catalogue.command_log import CommandHistory
from penstock.catalogue.program import Program
from penstock.state.cache import SHARED_MEMORY
from penstock.testing.inline import InlineEngine
from tests.catalogue.kit import append_events, growing_log, of_log, running

#: commands are folded when there are more than so many
FOLD_AFTER = 50


def count_files(state: Path, folder: str) -> int:
    return sum(1 for path in (state / folder).rglob("*") if path.is_file())


def fail_jobs(program: Program, engine: InlineEngine, given: list[object], numbers: range) -> None:
    """In each epoch a job of its own fails."""
    log, *events = given
    for number in numbers:
        program.execute(f"CREATE JOB j{number} AS SELECT user FROM clicks WHERE raising(user) = 'x'")
        append_events(log, [events[number]])  # type: ignore[arg-type, list-item]
        engine.step()
        program.execute(f"DROP JOB j{number}")


def raising(values: pl.Series) -> pl.Series:
    if values.str.starts_with("u").any():
        raise ValueError("this job fails")
    return values


def test_failures_are_forgotten_with_the_epochs_that_could_be_repeated(tmp_path: Path) -> None:
    log, events = growing_log(60)
    functions = {"raising": lambda user: user.map_batches(raising, return_dtype=pl.String)}
    with running(tmp_path / "state", of_log(log), functions=functions) as (program, engine):
        fail_jobs(program, engine, [log, *events], range(40))
        assert count_files(tmp_path / "state", "failures") == 40
        engine.remove_old_state(5)
        epochs = sorted(int(path.stem) for path in (tmp_path / "state" / "failures").glob("*.json"))
        manifests = sorted(int(path.stem) for path in (tmp_path / "state" / "manifests").glob("*.json"))
        assert epochs == manifests, "those of epochs that a rollback may repeat stay"


def test_results_of_a_job_dropped_in_the_middle_of_an_epoch_are_forgotten(tmp_path: Path) -> None:
    log, events = growing_log(30)
    sql = "CREATE JOB stays AS SELECT user FROM clicks; CREATE JOB goes AS SELECT page FROM clicks"
    with running(tmp_path / "state", of_log(log), sql) as (program, engine):
        key, results = program.catalogue.jobs["goes"].result_key, program._results
        append_events(log, events[:3])
        engine.step()
        latest = results.latest(key)
        assert latest is not None
        program.execute("DROP JOB goes")
        results.append(latest.epoch, {key: latest.rows})  # as the epoch under way does
        for event in events[3:]:
            append_events(log, [event])
            engine.step()
        engine.remove_old_state(5)
        assert results.latest(key) is None
        assert results.latest(program.catalogue.jobs["stays"].result_key) is not None


def churn(program: Program, engine: InlineEngine, numbers: range) -> None:
    for number in numbers:
        program.execute(
            f"CREATE JOB j{number} AS SELECT user FROM clicks WHERE bytes > {number}",
            request=f"create-{number}",
        )
        program.execute(f"DROP JOB j{number}", request=f"drop-{number}")
        if number % 10 == 9:
            engine.step()
        if number % 100 == 99:
            engine.remove_old_state(5)


def seconds_to_load(state: Path) -> float:
    started = time.perf_counter()
    CommandHistory(state, Program("other", state / "other")._history.latest).load(owned=False)
    return time.perf_counter() - started


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: ten thousand commands are synced."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as directory:
        yield Path(directory)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_creates_and_drops_leave_bounded_files_and_memory(quick_disk: Path) -> None:
    log, _ = growing_log(1)
    state = quick_disk / "state"
    tracemalloc.start()
    try:
        with running(state, of_log(log)) as (program, engine):
            program._intake._fold_after = FOLD_AFTER
            churn(program, engine, range(600))  # the replies to 1,000 requests are remembered
            gc.collect()
            bytes_before, files = tracemalloc.get_traced_memory()[0], count_files(state, "")
            folded = sum(path.stat().st_size for path in (state / "commands").glob("*.snapshot"))
            churn(program, engine, range(600, 5_000))
            gc.collect()
            # what each of 8,800 statements leaves is less than a line of text
            assert tracemalloc.get_traced_memory()[0] < bytes_before + 6_000_000
            assert len(program.deliveries._sinks) <= 2, "of dropped jobs nothing is delivered"
            assert count_files(state, "") <= files + 100
            # those that are not folded yet, and those of the epochs that are kept
            assert count_files(state, "commands") <= FOLD_AFTER + 6 * 20
            after = sum(path.stat().st_size for path in (state / "commands").glob("*.snapshot"))
            assert after < folded * 1.2
    finally:
        tracemalloc.stop()
    assert seconds_to_load(state) < 5.0
