"""The command that continues a run works: it names the program as it was called, with all options."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock.cli.run as run_command
from penstock.cli.command_line import program_name
from penstock.cli.commands import app as cli

pytestmark = pytest.mark.process

APP = """
import penstock as ps

log = ps.generated(total=10, live=False)
clicks = ps.stream("clicks", log, ps.combined_log(extra=[ps.Cookie("session")]), time="time")
app = ps.app("a", ps.output("n", clicks.key_by("path").window("10s").count()))
"""
OPTIONS = [
    *(
        "--master",
        "spark://127.0.0.1:7077",
        "--elastic",
        "most_executors=3",
        "--elastic",
        "patience_seconds=30s",
    ),
    *("--executors", "2", "--epoch", "2s", "--conf", "spark.a=b c", "--drain", "--semantics", "gap"),
]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that runs would print at their end; the runs do not execute."""
    commands: list[str] = []

    def serve(*_: Any, again: str, **__: Any) -> None:
        commands.append(again)

    monkeypatch.setattr(run_command, "serve", serve)
    return commands


def test_the_command_repeats_all_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my app.py").write_text(APP)
    called = CliRunner().invoke(
        cli, ["run", "my app.py", *OPTIONS, "--for", "5s", "--fresh"], catch_exceptions=False
    )
    assert called.exit_code == 0, called.output
    words = shlex.split(commands[0])
    assert words[1:3] == ["run", "my app.py"]
    assert sorted(words[3:]) == sorted(OPTIONS), "but options for one run only"
    CliRunner().invoke(cli, words[1:], catch_exceptions=False)
    assert commands[1] == commands[0]


def test_the_command_is_one_line_however_long(tmp_path: Path) -> None:
    (file := tmp_path / f"{'long' * 40}.py").write_text(APP)
    options = [str(file), "--state", str(tmp_path / ("deep" * 20)), "--master", "inline", "--drain"]
    called = CliRunner().invoke(cli, ["run", *options], catch_exceptions=False)
    (line,) = [one for one in called.output.splitlines() if one.startswith("continue with: ")]
    words = shlex.split(line.removeprefix("continue with: "))
    assert (words[1:3], sorted(words[3:])) == (["run", str(file)], sorted(options[1:]))


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_command_names_the_program_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, elsewhere = executable(tmp_path / "repo" / "run"), executable(tmp_path / "bin" / "penstock")
    monkeypatch.chdir(tmp_path / "repo")
    monkeypatch.setenv("PATH", "/nowhere")
    for called, works in (
        ("./run", "./run"),
        ("run", "./run"),
        (str(there), str(there)),
        ("gone", "penstock"),
    ):
        monkeypatch.setenv("PENSTOCK_CALLED_AS", called)
        assert program_name() == works
    monkeypatch.delenv("PENSTOCK_CALLED_AS")
    monkeypatch.setattr(sys, "argv", [str(elsewhere)])
    assert program_name() == str(elsewhere)
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    assert program_name() == "penstock"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program_name() == "penstock"


def test_the_run_script_passes_on_how_it_was_called(tmp_path: Path) -> None:
    """The checkout has a stub environment that prints how it was called."""
    script = Path(__file__).parents[2] / "run"
    (root := tmp_path / "checkout").mkdir()
    (root / "run").write_bytes(script.read_bytes())
    (root / "run").chmod(0o755)
    for name in ("requirements.lock", "pyproject.toml"):
        (root / name).touch()
    executable(root / ".venv/bin/python")
    executable(root / ".venv/bin/penstock").write_text("#!/bin/sh\necho called as $PENSTOCK_CALLED_AS\n")
    sums = subprocess.run(["cksum"], input="", text=True, capture_output=True, check=True).stdout
    (root / ".venv/penstock-ready").write_text(f"{root.resolve()}\n{sums}")
    for called, folder in (("./run", root), ("../checkout/run", root), (str(root / "run"), tmp_path)):
        options = subprocess.run([called, "status"], cwd=folder, capture_output=True, text=True, timeout=60)
        assert options.stdout == f"called as {called}\n", options.stderr
