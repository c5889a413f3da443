"""How a command line is entered and left: what goes wrong becomes a text for people and an exit code.

Receives commands and their arguments; hands an exit code: 0 done, 2 the user's to mend, 3 something outside, 4 damaged
state or a broken promise inside Penstock, 5 a defect nobody expected.
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

UNEXPECTED = 5


def entered(app: typer.Typer, arguments: Sequence[str] | None = None, name: str = "penstock") -> None:
    """Carry out the command that the arguments name. Always leaves with SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if debug:
        given = ["--debug", *(word for word in given if word != "--debug")]
    try:
        app(args=given, prog_name=name)
    except PenstockError as error:
        if debug:
            traceback.print_exc()
        _tell(*error.parts())
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # whoever read our output has gone; nothing more can be told there
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except Exception as failure:
        if debug:
            traceback.print_exc()
            sys.exit(UNEXPECTED)
        _tell(
            f"[UNEXPECTED] {type(failure).__name__}: {failure}. This is a defect of Penstock.",
            f"Hint: The traceback is in {_kept_traceback()}; `{name} --debug ...` shows it.",
        )
        sys.exit(UNEXPECTED)


def _tell(headline: str, *more: str) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(Text(headline, style="red"), soft_wrap=True)
    for part in more:
        console.print(Text(f"  {part}"), soft_wrap=True)


def _kept_traceback() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="penstock-error-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return file.name
