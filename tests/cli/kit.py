"""What the tests of commands share: the command line, called in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.cli.commands import main


class CommandResult(NamedTuple):
    """The outcome of a command, with the names that `subprocess` has for it."""

    returncode: int
    stdout: str
    stderr: str


def run_in_process(*arguments: str) -> CommandResult:
    """Run a command as a process would, without starting one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as exited:
        main(arguments)
    code = exited.value.code
    return CommandResult(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """Run a command; return its exit code and all that it printed."""
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    output = capsys.readouterr()
    return exited.value.code, output.out + output.err


def run_state_command(*arguments: str | Path) -> int:
    """Run `penstock state` and return its exit code."""
    with pytest.raises(SystemExit) as exited:
        main(["state", *map(str, arguments)])
    return exited.value.code if isinstance(exited.value.code, int) else 0
