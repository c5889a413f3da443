"""The command line: registers every command of `penstock`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import penstock
from penstock.cli.cluster import cluster_app
from penstock.cli.coordinator import coordinator
from penstock.cli.demo import demo
from penstock.cli.elastic import elastic_app
from penstock.cli.entry import run_cli
from penstock.cli.ha import ha_app
from penstock.cli.ingest_commands import run_ingest_command
from penstock.cli.jobs import ask, deploy, jobs_app
from penstock.cli.plan import plan
from penstock.cli.recover import recover_app
from penstock.cli.run import explain, run
from penstock.cli.serve import serve
from penstock.cli.sql import sql
from penstock.cli.state import state_app
from penstock.cli.status import status
from penstock.cli.token import token
from penstock.errors import UserError

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
app.command()(deploy)
app.command()(ask)
app.command()(status)
app.command()(plan)
app.command()(token)
app.add_typer(ha_app, name="ha")
_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
app.add_typer(jobs_app, name="jobs")
app.add_typer(state_app, name="state")
app.add_typer(recover_app, name="recover")
app.add_typer(cluster_app, name="cluster")
app.add_typer(elastic_app, name="elastic")


@app.command(context_settings=_PASS_ON, add_help_option=False)
def agent(context: typer.Context) -> None:
    """Ship lines from a pipe or from growing files to a gateway."""
    raise typer.Exit(run_ingest_command("agent", context.args))


@app.command(context_settings=_PASS_ON, add_help_option=False)
def gateway(context: typer.Context) -> None:
    """Receive lines from agents and over HTTP, and append them to segment logs."""
    raise typer.Exit(run_ingest_command("gateway", context.args))


@app.command(hidden=True, context_settings=_PASS_ON, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Moved: benchmarks run from a checkout, with `./run bench NAME`."""
    command = " ".join(["./run bench", *context.args])
    raise UserError(
        "BENCH_MOVED",
        "benchmarks are not part of the installed package",
        detail="`penstock bench` is deprecated; the next version removes it.",
        hint=f"Run them from a checkout of Penstock: `{command}`.",
    )


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works after a command too.")
    ] = False,
) -> None:
    """Options of all commands; `run_cli` reads --debug itself, because it prints the errors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Always leaves with SystemExit."""
    run_cli(app, arguments)
