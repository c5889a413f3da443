"""`penstock run` and `penstock explain`: runs a user's file, or shows its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli import options as o
from penstock.cli.command_line import resume_command
from penstock.cli.load_app import load
from penstock.cli.options import as_engine_settings, as_interval, as_reduced, as_seconds, default_state
from penstock.cli.run_engine import serve
from penstock.cli.scaling_options import executor_settings
from penstock.cli.state import remove_state_directory
from penstock.cli.tables import write_file
from penstock.cli.unit import serve_unit
from penstock.cli.unit_launch import UnitOptions, refuse_executors, refuse_reduced
from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.query.compile import compile_forms
from penstock.query.explain import FORMS, explain_app, resolve_form
from penstock.query.picture import draw_plan
from penstock.query.strategies import Cluster, compare_strategies
from penstock.settings import Settings

#: options that the command to continue leaves out
_ONE_TIME = ("for_", "fresh", "drop_state")


# over 8 parameters and 60 lines: each parameter is an option
def run(
    context: typer.Context,
    file: o.AppFile,
    state: o.State = None,
    master: o.Master = "local[*]",
    executors: o.ExecutorCount = None,
    for_: o.For = None,
    slices: o.Slices = None,
    epoch: o.Epoch = "1s",
    drain: o.Drain = False,
    fresh: o.Fresh = False,
    ha: o.Ha = False,
    scheme: o.SchemeName = None,
    coordination: o.Coordination = None,
    lease_timeout: o.LeaseTimeout = "2s",
    straggler_time: o.StragglerTime = "5s",
    recovery_time: o.RecoveryTime = None,
    cost: o.Costs = None,
    semantics: o.SemanticsName = Semantics.precise,
    checkpoint_every: o.CheckpointEvery = "1",
    elastic: o.Elastic = None,
    manager: o.ManagerFile = None,
    reduced: o.Reduced = None,
    drop_state: o.DropState = False,
    conf: o.Conf = None,
) -> None:
    """Run an application. It stops at Ctrl-C, after the time of --for, or with --drain when everything is read."""
    if not ha and any(one is not None for one in (scheme, coordination, recovery_time, cost)):
        raise UserError(
            "BAD_OPTION",
            "--scheme, --coordination, --recovery-time and --cost are for an HA unit",
            hint="Add --ha.",
        )
    unit = UnitOptions(
        scheme, coordination, lease_timeout, straggler_time, recovery_time, cost, semantics, checkpoint_every
    )
    unit.check()
    epoch_seconds = as_seconds(epoch, "--epoch")
    for_seconds = None if for_ is None else as_seconds(for_, "--for")
    configured = as_engine_settings(conf)
    app = as_reduced(load(file), reduced)
    settings = Settings(
        state=state or default_state(app.name),
        master=master,
        slices=slices,
        epoch_seconds=epoch_seconds,
        drain=drain,
        checkpoint_every=as_interval(checkpoint_every) or 1,
        semantics=semantics,
        drop_state=drop_state,
        **configured,
    )
    if fresh:
        remove_state_directory(settings.state)
    resume = resume_command(context, *_ONE_TIME)
    if not ha:
        scaled = replace(settings, **executor_settings(master, executors, elastic, manager))
        serve(app, scaled, for_seconds=for_seconds, again=resume)
        return
    _refuse_drop_state(drop_state)
    refuse_executors(elastic, manager, executors)
    refuse_reduced(reduced)
    serve_unit(settings.state, unit.launch(app, file, settings), scheme, for_seconds, resume)


def _refuse_drop_state(drop_state: bool) -> None:
    if drop_state:
        raise UserError(
            "BAD_OPTION",
            "--drop-state works for a single engine only: the engines of an HA unit would have to agree on it",
            hint="Start the unit on another state directory, or with --fresh.",
        )


def explain(
    file: o.AppFile,
    form: Annotated[str | None, typer.Option(help=f"Show only one form: {', '.join(FORMS)}.")] = None,
    strategies: Annotated[
        bool,
        typer.Option(
            "--strategies", help="Compare the cost of several ways to distribute the query over nodes."
        ),
    ] = False,
    nodes: Annotated[int, typer.Option(help="Number of nodes, for --strategies.")] = 4,
    rate: Annotated[float, typer.Option(help="Events per second, for --strategies.")] = 100_000,
    svg: Annotated[Path | None, typer.Option(help="Draw the plan into this file.")] = None,
) -> None:
    """Show the plans of an application.

    They are the query as written, the logical, the optimised and the physical plan, and Spark's stages. Of a file of
    SQL: what each job does.
    """
    form = None if form is None else resolve_form(form)
    console, app = Console(highlight=False), load(file)
    if isinstance(app, JobsApp):
        if form is not None or strategies or svg is not None:
            raise UserError(
                "BAD_OPTION",
                f"{file} holds jobs, which share one plan while they run",
                hint="Leave out --form, --strategies and --svg to see what each job does.",
            )
        _print_jobs(app, console)
        return
    if svg is not None:
        write_file(svg, draw_plan(compile_forms(app).plan))
        console.print(f"drawn in {svg}", soft_wrap=True)
    if strategies:
        console.print(Text(compare_strategies(app, Cluster(nodes, rate))), soft_wrap=True)
    if svg is not None or strategies:
        return
    for name, text in explain_app(app).items():
        if form is None:
            console.print(Text(name.upper(), style="bold cyan"))
        if form in (None, name):
            console.print(Text(text), soft_wrap=True)
            console.print() if form is None else None


def _print_jobs(app: JobsApp, console: Console) -> None:
    explanations = app.explained()
    for answer in explanations:
        console.print(Text(f"JOB {answer.name}", style="bold cyan"))
        console.print(Text(answer.message), soft_wrap=True)
        console.print()
    if not explanations:
        console.print(Text(f"{app.name} has no jobs"))
