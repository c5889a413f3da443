"""The command line: every command in one place, and how errors are told.

Receives the arguments; hands an exit code: 0 done, 2 the user's to mend, 3 something outside, 4 damaged state or
a broken promise inside Penstock, 5 a defect nobody expected.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import penstock
from penstock.bench.cli import bench_app
from penstock.main import light
from penstock.service.cluster import cluster_app
from penstock.service.coordinator import coordinator
from penstock.service.demo import demo
from penstock.service.elastic import elastic_app
from penstock.service.engine_process import engine_process
from penstock.service.ha import ha_app
from penstock.service.http import serve
from penstock.service.jobs import ask, jobs_app
from penstock.service.node import node
from penstock.service.plan import plan
from penstock.service.run import explain, run
from penstock.service.sql import sql
from penstock.service.state import state_app
from penstock.service.status import status
from penstock.service.unit import status as unit_status
from penstock.service.unit import stop, switch
from penstock.words.errors import PenstockError

UNEXPECTED = 5

app = typer.Typer(
    name="penstock",
    help="Continuous queries over live event streams, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(run)
app.command()(demo)
app.command()(serve)
app.command()(coordinator)
app.command()(explain)
app.command()(sql)
app.command()(ask)
app.command("engine-process", hidden=True)(engine_process)
app.command()(status)
app.command()(plan)
ha_app.command("status")(unit_status)
for command in (switch, stop, node):
    ha_app.command()(command)
app.add_typer(ha_app, name="ha")
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
app.add_typer(jobs_app, name="jobs")
app.add_typer(state_app, name="state")
app.add_typer(cluster_app, name="cluster")
app.add_typer(elastic_app, name="elastic")
app.add_typer(bench_app, name="bench")


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def agent(context: typer.Context) -> None:
    """Ship lines from a pipe or from files to a gateway."""
    raise typer.Exit(light("agent", context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def gateway(context: typer.Context) -> None:
    """Take lines from agents and over HTTP into segment logs."""
    raise typer.Exit(light("gateway", context.args))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of all commands; `main` looks at --debug itself, since it tells the errors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Always leaves with SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if debug:
        given = ["--debug", *(word for word in given if word != "--debug")]
    try:
        app(args=given, prog_name="penstock")
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
            f"Hint: The traceback is in {_kept_traceback()}; `penstock --debug ...` shows it.",
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
