"""`penstock state` on a directory of format 1: before and after an engine of this version has used it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.directory import StateDirectory
from tests.cli.kit import run_state_command
from tests.golden import archive, case, lives
from tests.golden.case import Case
from tests.golden.cases import CASES
from tests.golden.test_golden import differences


@pytest.fixture
def case_(tmp_path: Path) -> Case:
    archive.unpack(archive.path_of("format-1", "time-windows"), tmp_path)
    return CASES["time-windows"]


def test_a_state_of_format_1_can_be_listed_shown_and_verified(
    case_: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert run_state_command("ls", state) == 0
    assert run_state_command("verify", state) == 0
    assert run_state_command("show", state) == 0
    assert "1-aggregation" in capsys.readouterr().out  # as it is on disk
    assert StateDirectory(state).read_existing_facts().format == 1


@pytest.mark.slow
def test_an_upgraded_state_can_be_rolled_back_to_what_the_older_version_wrote(
    case_: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, state = case.given_of(tmp_path), tmp_path / "state"
    before = StateDirectory(state).manifests.epochs()[-1]
    lives.live(case_.build(inputs), state, epochs=1, epoch_units=5)
    assert run_state_command("verify", state) == 0
    assert run_state_command("show", state) == 0
    assert "1-time-window-aggregate" in capsys.readouterr().out
    assert run_state_command("rollback", state, "--to", str(before)) == 0
    assert StateDirectory(state).manifests.epochs()[-1] == before
    case_.rest(inputs, tmp_path)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}
