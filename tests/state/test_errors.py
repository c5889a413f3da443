"""Errors of rollbacks: to epochs that do not exist, and without an undamaged epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.commands import main
from penstock.errors import InternalError, UserError
from penstock.state.directory import StateDirectory
from penstock.state.rollback import roll_back
from penstock.testing import ListSink, run_inline
from tests.epoch.map_changes import epochs_of, new_history
from tests.operators.harness import events_stream


@pytest.fixture
def directory(state: Path) -> StateDirectory:
    rows = events_stream(new_history(12), epochs_of(3)).key_by("user").last(2, "n")
    run_inline(ps.app("any", ps.output("out", rows, ListSink())), state)
    return StateDirectory(state)


def test_a_rollback_to_a_missing_epoch_is_refused(directory: StateDirectory) -> None:
    with pytest.raises(UserError, match="NO_SUCH_EPOCH"):
        roll_back(directory, 99)


def test_without_an_undamaged_epoch_nothing_is_rolled_back(directory: StateDirectory) -> None:
    for run in (directory.path / "runs").rglob("*"):
        if run.is_file():
            run.unlink()
    for record in (directory.path / "epochs").glob("*"):
        record.unlink()
    epochs = directory.manifests.epochs()
    with pytest.raises(InternalError, match="NO_GOOD_EPOCH"):
        roll_back(directory)
    assert directory.manifests.epochs() == epochs


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [(["show", "DIR", "nobody"], "UNKNOWN_OPERATOR"), (["show", "DIR", "--epoch", "99"], "NO_SUCH_EPOCH")],
)
def test_missing_state_cannot_be_shown(
    arguments: list[str], condition: str, directory: StateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["state", *(str(directory.path) if argument == "DIR" else argument for argument in arguments)])
    assert exit_info.value.code == 2
    assert f"[{condition}]" in capsys.readouterr().err
