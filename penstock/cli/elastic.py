"""`penstock elastic simulate`: runs the elastic loop on a model of a cluster, a day of load in seconds."""

from __future__ import annotations

import json as json_text
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.scaling_options import load_manager
from penstock.cli.tables import plain_table, shortened_table, write_file
from penstock.errors import UserError
from penstock.formatting import clock, seconds
from penstock.scaling.decide import Manager
from penstock.scaling.decisions import explain
from penstock.scaling.record import Entry, Outcome
from penstock.scaling.settings import ElasticSettings, parse_settings
from penstock.simulate.cluster_model import ModelSettings
from penstock.simulate.loads import FORMS, SPREADS, Trace, find_trace
from penstock.simulate.scaling import ScalingResult, ScalingRun, simulate_scaling
from penstock.simulate.scaling_charts import draw_scaling

elastic_app = typer.Typer(
    help="Simulate the elastic loop, which scales a cluster with the load.", no_args_is_help=True
)

#: decisions that the table shows at each end
_SHOWN = 12
#: longer runs are measured every 10 s instead of every 5 s, unless --period is given
_LONG_HOURS = 6.0


@elastic_app.callback()
def _elastic() -> None:
    """Simulate the elastic loop, which scales a cluster with the load."""


@elastic_app.command("simulate")
# over 8 parameters and 60 lines: each parameter is an option
def simulate(
    trace: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE", help=f"The load: {', '.join(FORMS)}, or a CSV file with columns time,rate."
        ),
    ] = "sine",
    settings: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Settings of the loop, separated by commas; may be repeated."),
    ] = None,
    executors: Annotated[
        str | None, typer.Option(metavar="LEAST..MOST", help="Least and most executors, such as 2..100.")
    ] = None,
    start: Annotated[
        int | None, typer.Option(min=1, help="Executors at the start.", show_default="what the load needs")
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=1000, help="Length of the load.")] = 1.0,
    rate: Annotated[float, typer.Option(min=0.001, help="Mean load in events per second.")] = 100_000,
    noise: Annotated[
        float, typer.Option(min=0, max=2, help="Relative noise on the load, such as 0.2.")
    ] = 0.0,
    factor: Annotated[float, typer.Option(min=0, help="Factor of a spike, step or ramp.")] = 3.0,
    cycles: Annotated[float, typer.Option(min=0, help="Cycles of a sine.")] = 1.0,
    spread: Annotated[
        str, typer.Option(help=f"How keys spread over buckets: {', '.join(SPREADS)}.")
    ] = "even",
    buckets: Annotated[
        int | None,
        typer.Option(min=1, help="Buckets of each operator.", show_default="enough for the most executors"),
    ] = None,
    core_rate: Annotated[
        float, typer.Option(min=0.001, help="Events per second that one core processes.")
    ] = 10_000,
    state: Annotated[float, typer.Option(min=0, help="Size of the state, in MB.")] = 200,
    start_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds until a requested executor is there.")
    ] = 10,
    period: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds between measurements.", show_default="5, or 10")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 1,
    never_comes: Annotated[
        float, typer.Option(min=0, max=1, help="Probability that a requested executor never starts.")
    ] = 0,
    dies_in_move: Annotated[
        float, typer.Option(min=0, max=1, help="Probability that a migration kills an executor.")
    ] = 0,
    dies_an_hour: Annotated[
        float, typer.Option(min=0, max=1, help="Probability per hour that an executor dies.")
    ] = 0,
    slow: Annotated[int, typer.Option(min=0, help="Number of executors that are three times slower.")] = 0,
    manager: Annotated[
        Path | None, typer.Option(help="A Python file with a manager that replaces Penstock's rules.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="off|KEY=VALUE,...", help="Compare with a run without the loop, or with other settings."
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the run into this file.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the picture.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines: every decision, then the figures.")
    ] = False,
) -> None:
    """Simulate the loop under a load on a model of a cluster; shows its decisions and their outcomes."""
    chosen = parse_settings(settings or [], _parse_budget(executors))
    costs = replace(ModelSettings().costs, start_seconds=start_seconds)
    model = ModelSettings(
        buckets=buckets or _enough_buckets(chosen),
        core_rate=core_rate,
        state_bytes=state * 1e6,
        costs=costs,
        never_comes=never_comes,
        dies_in_move=dies_in_move,
        dies_an_hour=dies_an_hour,
        slow_executors=slow,
    )
    if period is None:
        period = 5.0 if hours <= _LONG_HOURS else 10.0
    form = find_trace(trace, Trace(rate=rate, noise=noise, factor=factor, cycles=cycles))
    run = ScalingRun(form, chosen, model, hours, period, seed, spread, start)
    one = _simulate(run, None if manager is None else load_manager(manager))
    other = None if against is None else _simulate(_compared_run(run, against), None)
    if svg is not None:
        names = ("with the loop", "without") if against == "off" else ("as set", against or "")
        write_file(svg, draw_scaling(one, title or f"{form.name}, {hours:g} h", other, names))
    if json:
        print(one.record.lines(), end="")
        print(json_text.dumps({"figures": _rounded(one)} | ({"against": _rounded(other)} if other else {})))
        return
    console = Console(highlight=False)
    console.print(_decisions(one))
    console.print(_figures(one, other, against or ""))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


def _simulate(run: ScalingRun, manager: Manager | None) -> ScalingResult:
    """Simulate, with a progress bar on a terminal if it takes more than a second."""
    started_at, console = time.monotonic(), Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_interactive)
    task = progress.add_task("simulating", total=1.0)

    def show(share: float) -> None:
        if time.monotonic() - started_at > 1.0:
            progress.start()  # once: a second start does nothing
            progress.update(task, completed=share)

    try:
        return simulate_scaling(run, manager, show)
    finally:
        if time.monotonic() - started_at > 1.0:
            progress.stop()


def _parse_budget(text: str | None) -> ElasticSettings:
    if text is None:
        return ElasticSettings()
    least, dots, most = text.partition("..")
    try:
        low = int(least)
        return ElasticSettings(least_executors=low, most_executors=int(most) if dots else low)
    except ValueError:
        raise UserError(
            "BAD_OPTION", f"--executors {text} is not a range", hint="Write least..most, such as 2..100."
        ) from None


def _enough_buckets(settings: ElasticSettings) -> int:
    """Eight for each slice of the largest cluster, as a power of two, and at least 64."""
    return int(max(64, 1 << (8 * settings.most_executors - 1).bit_length()))


def _compared_run(run: ScalingRun, text: str) -> ScalingRun:
    if text == "off":
        return replace(run, elastic=False)
    return replace(run, settings=parse_settings([text], run.settings))


# ---------------------------------------------------------------- tables


def _rounded(one: ScalingResult) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in one.summarize().items()}


def _decisions(one: ScalingResult) -> Table:
    rows = [(clock(entry.at), Text(explain(entry.decision)), _outcome(entry)) for entry in one.record.entries]
    return shortened_table(("at", "decision", "outcome"), rows, _SHOWN, "no decisions")


def _outcome(entry: Entry) -> Text:
    styles = {Outcome.helped: "green", Outcome.did_not_help: "yellow"}
    styles |= {Outcome.failed: "red", Outcome.undone: "red"}
    why = f", {entry.why}" if entry.why and entry.outcome in (Outcome.failed, Outcome.undone) else ""
    return Text(f"{entry.outcome}{why}", style=styles.get(entry.outcome, "dim"))


def _figures(one: ScalingResult, other: ScalingResult | None, against: str) -> Table:
    table = plain_table()
    table.show_header = other is not None
    table.add_column("", style="dim")
    table.add_column("as set", justify="right")
    columns = [_describe_figures(one)]
    if other is not None:
        table.add_column(against, justify="right")
        columns.append(_describe_figures(other))
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


def _describe_figures(one: ScalingResult) -> dict[str, str]:
    figures = one.summarize()
    counts = {name: f"{figures[name]:,.0f}" for name in ("provisions", "decommissions", "moves")}
    ends = ", ".join(
        f"{figures[name.replace(' ', '_')]:.0f} {name}"
        for name in ("helped", "did not help", "failed", "undone")
        if figures[name.replace(" ", "_")]
    )
    return {
        "load, events per second": f"{figures['mean_rate']:,.0f} (highest {figures['most_rate']:,.0f})",
        "executors": f"{figures['least_executors']:.0f} to {figures['most_executors']:.0f}",
        "executor hours, spare included": f"{figures['executor_hours']:,.1f}",
        "mean utilisation": f"{figures['mean_utilisation']:.0%}",
        "mean imbalance": f"{figures['mean_imbalance']:.1%}",
        "longest backlog": seconds(figures["worst_backlog_seconds"]),
        "time with a backlog": f"{figures['behind_share']:.1%}",
        "provisions": counts["provisions"],
        "decommissions": counts["decommissions"],
        "moves": f"{counts['moves']} ({figures['moved_buckets']:,.0f} buckets)",
        "outcomes": ends or "none",
        "executors that died": f"{figures['lost_executors']:.0f}",
    }
