"""The command line: every command in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import penstock
from penstock.cli.bench import bench
from penstock.cli.cluster import cluster_app
from penstock.cli.coordinator import coordinator
from penstock.cli.demo import demo
from penstock.cli.elastic import elastic_app
from penstock.cli.entry import entered
from penstock.cli.ha import ha_app
from penstock.cli.jobs import ask, deploy, jobs_app
from penstock.cli.light import light
from penstock.cli.node import node
from penstock.cli.plan import plan
from penstock.cli.run import explain, run
from penstock.cli.serve import serve
from penstock.cli.sql import sql
from penstock.cli.state import state_app
from penstock.cli.status import status
from penstock.cli.unit import status as unit_status
from penstock.cli.unit import stop, switch

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
ha_app.command("status")(unit_status)
for command in (switch, stop, node):
    ha_app.command()(command)
app.add_typer(ha_app, name="ha")
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
app.add_typer(jobs_app, name="jobs")
app.add_typer(state_app, name="state")
app.add_typer(cluster_app, name="cluster")
app.add_typer(elastic_app, name="elastic")
app.command(hidden=True, context_settings=_PASSED_ON, add_help_option=False)(bench)


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
    """Options of all commands; `entered` looks at --debug itself, since it tells the errors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Always leaves with SystemExit."""
    entered(app, arguments)
