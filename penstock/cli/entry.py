"""Runs a command and turns what goes wrong into a text for people and an exit code.

Exit codes: 0 success, 2 the user has to change something, 3 something outside Penstock failed, 4 damaged state or an
internal error, 5 an unexpected exception.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from penstock.errors import PenstockError
from penstock.formatting import printable
from penstock.moved import show_warnings

UNEXPECTED = 5


def run_cli(app: typer.Typer, arguments: Sequence[str] | None = None, name: str = "penstock") -> None:
    """Execute the command that the arguments name. Always leaves with SystemExit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    if debug:
        words = ["--debug", *(word for word in words if word != "--debug")]
    show_warnings()
    try:
        app(args=words, prog_name=name)
    except PenstockError as error:
        if debug:
            traceback.print_exc()
        _print_error(*error.parts())
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except Exception as failure:
        if debug:
            traceback.print_exc()
            sys.exit(UNEXPECTED)
        _print_error(
            f"[UNEXPECTED] {type(failure).__name__}: {failure}. This is a defect of Penstock.",
            f"Hint: The traceback is in {_write_traceback()}; `{name} --debug ...` shows it.",
        )
        sys.exit(UNEXPECTED)


def _print_error(headline: str, *more: str) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(Text(printable(headline), style="red"), soft_wrap=True)
    for part in more:
        console.print(Text(printable(f"  {part}")), soft_wrap=True)


def _write_traceback() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="penstock-error-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return file.name
