"""The engines of the benchmark give the right answers on a small data set: each once in a process of its own, as they
are run there, and otherwise in the session of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import reference
from bench.dataset import Dataset, Parameters, make_dataset
from bench.decode import measure_decoding
from bench.outcome import Outcome, agree, read_outcomes
from bench.worker import Task, main, run_task
from penstock.errors import InternalError


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(Parameters(5_000, rate=50), tmp_path_factory.mktemp("clicks"))


def performed_here(task: Task, place: Path) -> list[Outcome]:
    """The outcomes of a task, in the session of the tests."""
    place.mkdir()
    main(task.to_json(), place)
    return read_outcomes(place / "outcomes.json")


def check(task: Task, outcome: Outcome, small: Dataset) -> None:
    right = reference.patterns(small) if task.case == "patterns" else reference.windows(small)
    agree(task.case, task.engine, outcome.answer, right)
    assert outcome.events == small.events
    assert outcome.seconds > 0


@pytest.mark.spark
@pytest.mark.parametrize(("engine", "case"), [("penstock", "patterns"), ("pyspark", "windows")])
@pytest.mark.timeout(240)
def test_an_engine_agrees_with_plain_batch_code(engine: str, case: str, small: Dataset) -> None:
    task = Task(engine, case, (small,))
    (outcome,) = run_task(task)
    check(task, outcome, small)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_so_do_our_windows(small: Dataset, tmp_path: Path) -> None:
    task = Task("penstock", "windows", (small,))
    (outcome,) = performed_here(task, tmp_path / "here")
    check(task, outcome, small)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(240)
def test_epochs_are_measured_one_by_one(tmp_path: Path) -> None:
    (empty,) = performed_here(Task("pyspark", "small epochs", warm_epochs=1, epochs=3), tmp_path / "empty")
    ours_too = Task("penstock", "small epochs", warm_epochs=1, epochs=3, epoch_events=100)
    (ours,) = performed_here(ours_too, tmp_path / "ours")
    assert len(empty.samples) == len(ours.samples) == 3
    assert all(sample > 0 for sample in empty.samples + ours.samples)


@pytest.mark.process
def test_the_decoder_takes_every_line_however_the_work_is_shared(small: Dataset) -> None:
    assert measure_decoding(small, 1, 2).events == measure_decoding(small, 2, 1).events == small.events


@pytest.mark.process
def test_a_process_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    nowhere = Dataset(1, 1, tmp_path / "nowhere", tmp_path / "nowhere")
    with pytest.raises(InternalError, match="no program runs abacus") as failed:
        run_task(Task("abacus", "patterns", (nowhere,)))
    assert failed.value.condition == "BENCH_FAILED"
