"""`penstock state` on the state of a real run: listing, verifying, rolling back, and continuing from there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.engine import Engine
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from tests.cli.kit import run_state_command

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EVENTS, EPOCHS = 3_000, 6


def counting_app(directory: Path) -> ps.App:
    log = ps.generated(total=EVENTS, live=False, rate=100, users=50)
    clicks = ps.stream("clicks", log, ps.combined_log(extra=[ps.Cookie("session")]), time="time")
    counts = clicks.key_by("path").running("5s").count()
    return ps.app("counted", ps.output("counts", counts, ps.jsonl(directory / "out")))


def run_to_end(directory: Path, spark: SparkSession) -> dict[str, bytes]:
    """Run to the end; returns the files of the output."""
    settings = Settings(
        state=directory / "state",
        most_epoch_units=EVENTS // EPOCHS,
        drain=True,
        warm_up=False,
        cache_root=None,
    )
    Engine(counting_app(directory), settings, spark).run()
    return {path.name: path.read_bytes() for path in (directory / "out").glob("*.jsonl")}


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    run_to_end(directory, spark)
    return directory


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may spoil."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def damage_run(state: StateDirectory) -> int:
    """Change a byte of a run that only the last epochs need; returns the last epoch without it."""
    epochs = state.manifests.epochs()
    newest = max(state.manifests.read(epochs[-1]).runs() - state.manifests.read(epochs[-3]).runs())
    path = state.runs / newest
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return max(epoch for epoch in epochs if newest not in state.manifests.read(epoch).runs())


def test_ls_lists_every_retained_epoch(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_state_command("ls", run / "state") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(StateDirectory(run / "state").manifests.epochs())
    assert f"{EVENTS:,}" in lines[-1]
    assert "the end" in lines[-1]


def test_show_lists_collections_and_their_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_state_command("show", run / "state") == 0
    assert "totals" in capsys.readouterr().out
    assert run_state_command("show", run / "state", "1-running-aggregate", "--epoch", "2", "--rows", "2") == 0
    output = capsys.readouterr().out
    assert "state after epoch 2" in output
    assert "count.n" in output
    assert run_state_command("show", run / "state", "9-none") == 2
    assert run_state_command("show", run / "state", "--epoch", "999") == 2


def test_an_intact_state_verifies(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_state_command("verify", run / "state") == 0
    assert "retained epochs are intact" in capsys.readouterr().out


def test_a_directory_that_is_no_state_directory_is_an_error(tmp_path: Path) -> None:
    assert run_state_command("ls", tmp_path / "none") == 2
    assert not (tmp_path / "none").exists()


def test_a_damaged_run_is_found_and_a_rollback_repeats_the_same_results(
    run: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDirectory(run / "state")
    undisturbed = {path.name: path.read_bytes() for path in (run / "out").glob("*.jsonl")}
    last, good = state.manifests.epochs()[-1], damage_run(state)
    assert run_state_command("verify", run / "state") == 4
    output = capsys.readouterr()
    assert "its checksum does not match" in output.out
    assert f"the last intact epoch is {good}" in output.err

    assert run_state_command("rollback", run / "state") == 0
    assert f"Rolled back to epoch {good}." in capsys.readouterr().out
    assert state.manifests.epochs()[-1] == good
    assert run_state_command("verify", run / "state") == 0

    for epoch in range(good + 1, last + 1):  # the sinks receive these rows again
        (run / "out" / f"epoch-{epoch:012d}.jsonl").unlink(missing_ok=True)
    assert run_to_end(run, spark) == undisturbed
    assert state.manifests.epochs()[-1] == last


def test_a_rollback_to_before_the_first_epoch_is_possible(run: Path, spark: SparkSession) -> None:
    undisturbed = {path.name: path.read_bytes() for path in (run / "out").glob("*.jsonl")}
    assert run_state_command("rollback", run / "state", "--to", "-1") == 0
    assert StateDirectory(run / "state").manifests.epochs() == []
    shutil.rmtree(run / "out")
    assert run_to_end(run, spark) == undisturbed


def test_a_rollback_to_an_epoch_not_retained_changes_nothing(run: Path) -> None:
    before = StateDirectory(run / "state").manifests.epochs()
    assert run_state_command("rollback", run / "state", "--to", "999") == 2
    assert StateDirectory(run / "state").manifests.epochs() == before


def test_a_rollback_is_refused_while_an_engine_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateDirectory(run / "state").locked():
        assert run_state_command("rollback", run / "state", "--to", "1") == 3
    assert "STATE_IN_USE" in capsys.readouterr().err


def test_an_intact_state_has_nothing_to_roll_back(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_state_command("rollback", run / "state") == 0
    assert "Nothing to roll back" in capsys.readouterr().out
