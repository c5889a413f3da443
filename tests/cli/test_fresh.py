"""`penstock run --fresh` starts without state and removes only state directories."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.cli import commands as cli
from penstock.cli.state import remove_state_directory
from penstock.errors import ExternalError, UserError
from penstock.state.directory import StateDirectory
from penstock.testing.inline import run_inline
from tests.regressions.harness import ev, stream

APP = """
import penstock as ps
clicks = ps.stream("clicks", ps.generated(total=500), ps.combined_log(extra=["cookie"]), time="time")
app = ps.app("tiny", ps.output("paths", clicks.select("path"), ps.console()))
"""


def run_once(state: Path) -> Path:
    late = [ev(5, n=1), ev(1, n=2), ev(6, n="x")]
    run_inline(ps.app("t", ps.output("o", stream(late))), state)
    (state / "engine.log").write_text("Spark's")
    (state / "spark").mkdir()
    (state / "service.json").write_text("{}")
    return state


def test_a_state_directory_is_removed(tmp_path: Path) -> None:
    state = run_once(tmp_path / "state")
    remove_state_directory(state)
    assert not state.exists()
    remove_state_directory(state)


def test_a_state_directory_with_commands_only_is_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    jobs = Program(
        "t", state, begin="CREATE STREAM s FROM generated(rate => 1) FORMAT combined_log EVENT TIME time"
    )
    jobs.join(begin=True)
    assert jobs.commands == 1
    remove_state_directory(state)
    assert not state.exists()


def test_a_folder_named_commands_alone_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "deploy.sh").write_text("by hand")
    remove_state_directory(tmp_path)
    assert (tmp_path / "commands" / "deploy.sh").exists()


def test_a_directory_with_other_files_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(UserError, match="NOT_A_STATE_DIRECTORY"):
        remove_state_directory(tmp_path)
    state = run_once(tmp_path / "state")
    (state / "thesis.txt").write_text("all of it")
    with pytest.raises(UserError, match=r"it also holds thesis\.txt"):
        remove_state_directory(state)
    (state / "thesis.txt").rename(state / ".hidden")
    with pytest.raises(UserError, match=r"it also holds \.hidden"):
        remove_state_directory(state)
    (state / ".hidden").unlink()
    link = tmp_path / "link"
    link.symlink_to(state)
    with pytest.raises(UserError, match="it is a link"):
        remove_state_directory(link)
    assert (tmp_path / "thesis.txt").exists()
    assert (state / "penstock.json").exists()


def test_a_state_directory_in_use_is_not_removed(tmp_path: Path) -> None:
    state = run_once(tmp_path / "state")
    with StateDirectory(state).locked(), pytest.raises(ExternalError, match="STATE_IN_USE"):
        remove_state_directory(state)
    assert (state / "penstock.json").exists()


def test_run_removes_its_state_only_with_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.py").write_text(APP)
    state = run_once(tmp_path / "state")
    state_existed: list[bool] = []

    def record_state(app: Any, settings: Any, **options: Any) -> None:
        state_existed.append(settings.state.exists())

    monkeypatch.setattr("penstock.cli.run.serve", record_state)
    for options in ([], ["--fresh"]):
        with pytest.raises(SystemExit):
            cli.main(["run", str(tmp_path / "tiny.py"), "--state", str(state), *options])
    assert state_existed == [True, False]


COUNTING = """
import penstock as ps
clicks = ps.stream("clicks", ps.generated(total=500), ps.combined_log(extra=["cookie"]), time="time")
counts = clicks.key_by("path").window("{window}").aggregate(ps.count())
app = ps.app("tiny", ps.output("counts", counts, ps.console()))
"""


def test_a_changed_app_runs_on_its_state_with_drop_state_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_tiny(window: str, *options: str) -> int:
        (tmp_path / "tiny.py").write_text(COUNTING.format(window=window))
        options_of_place = ["--state", str(tmp_path / "state"), "--master", "inline", "--drain"]
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", str(tmp_path / "tiny.py"), *options_of_place, *options])
        return int(ended.value.code or 0)

    assert run_tiny("1h") == 0
    assert run_tiny("2h") == 2
    assert "--drop-state" in capsys.readouterr().err
    assert run_tiny("2h", "--drop-state") == 0
    output = capsys.readouterr()
    assert (
        "of its state kept: nothing; dropped: nothing; starts empty: 1-time-window-aggregate"
        in output.out + output.err
    )
    assert "continue with" in output.out
    assert "--drop-state" not in output.out.partition("continue with")[2]
    assert run_tiny("2h") == 0


@pytest.mark.process
def test_the_command_in_the_hint_lets_a_service_continue_with_a_changed_app(tmp_path: Path) -> None:
    def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from penstock.cli.commands import main; main()", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def serve() -> subprocess.CompletedProcess[str]:
        options = ["--state", "state", "--master", "inline", "--no-ui", "--listen", "127.0.0.1:0"]
        return penstock("serve", "tiny.py", *options, "--for", "1s")

    (tmp_path / "tiny.py").write_text(COUNTING.format(window="1h"))
    first = serve()
    assert first.returncode == 0, first.stderr
    (tmp_path / "tiny.py").write_text(COUNTING.format(window="2h"))
    refused = serve()
    assert refused.returncode == 2, refused.stderr
    found = re.search(r"Run `penstock run FILE ([^`]*)` once", refused.stderr)
    assert found is not None, refused.stderr
    assert found[1] == "--state state --drop-state"
    dropped = penstock("run", "tiny.py", *found[1].split(), "--master", "inline", "--drain")
    assert dropped.returncode == 0, dropped.stderr
    continued = serve()
    assert continued.returncode == 0, continued.stderr


def test_the_engines_of_a_unit_refuse_to_drop_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.py").write_text(APP)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(tmp_path / "tiny.py"), "--state", str(tmp_path / "s"), "--ha", "--drop-state"])
    assert ended.value.code == 2
    assert "BAD_OPTION" in capsys.readouterr().err
