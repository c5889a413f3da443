"""Errors of rollbacks: to epochs that are gone, and without a whole epoch."""

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
def made(state: Path) -> StateDirectory:
    rows = events_stream(new_history(12), epochs_of(3)).key_by("user").last(2, "n")
    run_inline(ps.app("any", ps.output("out", rows, ListSink())), state)
    return StateDirectory(state)


def test_a_rollback_to_a_missing_epoch_is_refused(made: StateDirectory) -> None:
    with pytest.raises(UserError, match="NO_SUCH_EPOCH"):
        roll_back(made, 99)


def test_without_a_whole_epoch_nothing_is_rolled_back(made: StateDirectory) -> None:
    for run in (made.path / "runs").rglob("*"):
        if run.is_file():
            run.unlink()
    for record in (made.path / "epochs").glob("*"):
        record.unlink()
    kept = made.manifests.epochs()
    with pytest.raises(InternalError, match="NO_GOOD_EPOCH"):
        roll_back(made)
    assert made.manifests.epochs() == kept


@pytest.mark.parametrize(
    ("words", "condition"),
    [(["show", "DIR", "nobody"], "UNKNOWN_OPERATOR"), (["show", "DIR", "--epoch", "99"], "NO_SUCH_EPOCH")],
)
def test_missing_state_cannot_be_shown(
    words: list[str], condition: str, made: StateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["state", *(str(made.path) if word == "DIR" else word for word in words)])
    assert left.value.code == 2
    assert f"[{condition}]" in capsys.readouterr().err
