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


def test_a_picture_that_cannot_be_written_is_told() -> None:
    with pytest.raises(ExternalError, match="FILE_UNWRITABLE"):
        write_file(Path("/proc/nowhere/plan.svg"), "")


def test_a_show_that_does_not_go_on_or_ends_is_told(tmp_path: Path) -> None:
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
    made = Unit.create(
        root, Launch(unit_name("any", root), str(tmp_path / "store"), "app.sql", str(tmp_path))
    )
    made.create_record(UnitRecord(Scheme.passive_cold, str(root)))
    return made


@pytest.mark.parametrize(
    ("words", "condition"),
    [(["auto"], "NO_RECOVERY_TIME"), (["passive-hot", "--wait", "0.2"], "SWITCH_UNDER_WAY")],
)
def test_a_switch_that_cannot_be_is_told(
    words: list[str], condition: str, unit: Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["ha", "switch", *words, "--state", str(unit.root)])
    assert f"[{condition}]" in capsys.readouterr().err


def test_a_coordinator_ends_with_the_state_it_followed(state: Path) -> None:
    directory = StateDirectory(state)
    facts = directory.claim("query", "any", None)
    host: Any = None  # where another follows the engine, nobody is told
    with pytest.raises(ExternalError, match="STATE_REPLACED"):
        coordinator._follow(None, host, directory, f"not {facts.id}", threading.Event())
    directory.release()
