"""The engines of the benchmark give the right answers on a small data set, each in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bench import reference
from penstock.bench.dataset import Dataset, Parameters, materialised
from penstock.bench.decode import decoded
from penstock.bench.outcome import agree
from penstock.bench.worker import Task, performed
from penstock.words.errors import InternalError


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return materialised(Parameters(5_000, rate=50), tmp_path_factory.mktemp("clicks"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "case"), [("penstock", "patterns"), ("penstock", "windows"), ("pyspark", "windows")]
)
@pytest.mark.timeout(240)
def test_an_engine_agrees_with_plain_batch_code(engine: str, case: str, small: Dataset) -> None:
    (outcome,) = performed(Task(engine, case, (small,)))
    right = reference.patterns(small) if case == "patterns" else reference.windows(small)
    agree(case, engine, outcome.answer, right)
    assert outcome.events == small.events
    assert outcome.seconds > 0


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_epochs_are_measured_one_by_one() -> None:
    (empty,) = performed(Task("pyspark", "small epochs", warm_epochs=1, epochs=3))
    (ours,) = performed(Task("penstock", "small epochs", warm_epochs=1, epochs=3, epoch_events=100))
    assert len(empty.samples) == len(ours.samples) == 3
    assert all(sample > 0 for sample in empty.samples + ours.samples)


def test_the_decoder_takes_every_line_however_the_work_is_shared(small: Dataset) -> None:
    assert decoded(small, 1, 2).events == decoded(small, 2, 1).events == small.events


def test_a_process_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    nowhere = Dataset(1, 1, tmp_path / "nowhere", tmp_path / "nowhere")
    with pytest.raises(InternalError, match="nobody knows how to run abacus") as failed:
        performed(Task("abacus", "patterns", (nowhere,)))
    assert failed.value.condition == "BENCH_FAILED"
