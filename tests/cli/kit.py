"""What the tests of commands share: the command line, called in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.commands import main


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
