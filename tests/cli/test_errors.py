"""Errors of commands."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import coordinator
from penstock.cli.commands import main
from penstock.cli.demo_show import Show
from penstock.cli.load_app import load
from penstock.cli.tables import write_file
from penstock.errors import ExternalError, UserError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord, unit_name
from penstock.state.directory import StateDirectory


def test_a_file_that_is_no_python_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "app.txt").write_text("import penstock")
    with pytest.raises(UserError, match="NOT_PYTHON"):
        load(tmp_path / "app.txt")


def test_an_unwritable_picture_is_an_error() -> None:
    with pytest.raises(ExternalError, match="FILE_UNWRITABLE"):
        write_file(Path("/proc/nowhere/plan.svg"), "")


@pytest.mark.process
def test_a_show_that_is_stuck_or_has_ended_is_an_error(tmp_path: Path) -> None:
    show = Show(tmp_path, 10.0, None, lambda line: None)
    with pytest.raises(ExternalError, match=r"SHOW_STUCK.*the first walks"):
        show._wait_until("the first walks", lambda: None, 0.01)
    (tmp_path / "serve.log").write_text("one\nits last words\n")
    with subprocess.Popen([sys.executable, "-c", ""]) as show._process:
        show._process.wait(60)
        with pytest.raises(ExternalError, match=r"SHOW_ENDED.*its last words"):
            show._wait_until("the first walks", lambda: None, 60)


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    root = tmp_path / "state"
    new_unit = Unit.create(
        root, Launch(unit_name("any", root), str(tmp_path / "store"), "app.sql", str(tmp_path))
    )
    new_unit.create_record(UnitRecord(Scheme.passive_cold, str(root)))
    return new_unit


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [(["auto"], "NO_RECOVERY_TIME"), (["passive-hot", "--wait", "0.2"], "SWITCH_UNDER_WAY")],
)
def test_an_impossible_switch_of_scheme_is_refused(
    arguments: list[str], condition: str, unit: Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["ha", "switch", *arguments, "--state", str(unit.root)])
    assert f"[{condition}]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_coordinator_ends_with_the_state_it_followed(state: Path) -> None:
    directory = StateDirectory(state)
    facts = directory.claim("query", "any", None)
    host: Any = None  # another coordinator follows the engine, so the host is not called
    with pytest.raises(ExternalError, match="STATE_REPLACED"):
        coordinator._follow(None, host, directory, f"not {facts.id}", threading.Event())
    directory.release()
