"""Errors of going back in a state: to what is not kept, and where nothing is whole."""

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


def test_what_is_not_kept_is_not_gone_back_to(made: StateDirectory) -> None:
    with pytest.raises(UserError, match="NO_SUCH_EPOCH"):
        roll_back(made, 99)


def test_where_no_epoch_is_whole_nothing_is_taken_back(made: StateDirectory) -> None:
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
def test_what_there_is_not_cannot_be_shown(
    words: list[str], condition: str, made: StateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["state", *(str(made.path) if word == "DIR" else word for word in words)])
    assert left.value.code == 2
    assert f"[{condition}]" in capsys.readouterr().err
