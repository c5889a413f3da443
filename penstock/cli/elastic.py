"""`penstock elastic simulate`: the elastic loop tried on a model of a cluster, a day of load in seconds."""

from __future__ import annotations

import importlib.util
import json as json_text
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import clock, seconds
from penstock.errors import UserError
from penstock.scaling.decisions import explain
from penstock.scaling.manager import Manager
from penstock.scaling.record import Entry, Outcome
from penstock.scaling.settings import ElasticSettings, parse_settings
from penstock.simulate.cluster_model import ModelSettings
from penstock.simulate.loads import FORMS, SPREADS, Trace, find_trace
from penstock.simulate.scaling import ScalingResult, ScalingRun, simulate_scaling
from penstock.simulate.scaling_charts import draw_scaling

elastic_app = typer.Typer(help="Try what the elastic loop would do.", no_args_is_help=True)

#: decisions the table shows, of each end
_SHOWN = 12
#: a run of more hours than this is measured every 10 s instead of every 5 s, unless somebody says otherwise
_LONG_HOURS = 6.0


@elastic_app.callback()
def _elastic() -> None:
    """Try what the elastic loop would do."""


@elastic_app.command("simulate")
def simulate_(
    trace: Annotated[
        str, typer.Option(metavar="NAME|FILE", help=f"{', '.join(FORMS)}, or a CSV file of time,rate.")
    ] = "sine",
    settings: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the loop; several by commas, or repeated."),
    ] = None,
    executors: Annotated[
        str | None, typer.Option(metavar="LEAST..MOST", help="The fleet's budget, such as 2..100.")
    ] = None,
    start: Annotated[
        int | None, typer.Option(min=1, help="Executors at the start.", show_default="what the load needs")
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=1000, help="How long the load lasts.")] = 1.0,
    rate: Annotated[
        float, typer.Option(min=0.001, help="Events a second around which the load is.")
    ] = 100_000,
    noise: Annotated[float, typer.Option(min=0, max=2, help="Noise on the load, such as 0.2.")] = 0.0,
    factor: Annotated[float, typer.Option(min=0, help="What a spike, step or ramp multiplies it by.")] = 3.0,
    cycles: Annotated[float, typer.Option(min=0, help="Waves of a sine.")] = 1.0,
    spread: Annotated[
        str, typer.Option(help=f"How keys spread over buckets: {', '.join(SPREADS)}.")
    ] = "even",
    buckets: Annotated[
        int | None, typer.Option(min=1, help="Buckets.", show_default="enough for the budget")
    ] = None,
    core_rate: Annotated[float, typer.Option(min=0.001, help="Events a second one core can do.")] = 10_000,
    state: Annotated[float, typer.Option(min=0, help="State, in MB.")] = 200,
    start_seconds: Annotated[float, typer.Option(min=0, help="What an executor takes to come.")] = 10,
    period: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds between measurements.", show_default="5, or 10")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another run.")] = 1,
    never_comes: Annotated[
        float, typer.Option(min=0, max=1, help="Chance that an executor never comes.")
    ] = 0,
    dies_in_move: Annotated[float, typer.Option(min=0, max=1, help="Chance that a move kills a worker.")] = 0,
    dies_an_hour: Annotated[float, typer.Option(min=0, max=1, help="Chance that an executor dies.")] = 0,
    slow: Annotated[int, typer.Option(min=0, help="Executors that are three times slower.")] = 0,
    manager: Annotated[Path | None, typer.Option(help="A Python file with your own manager.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="off|KEY=VALUE,...", help="Compare with a run without, or other settings."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw it into this file.")] = None,
    title: Annotated[str | None, typer.Option(help="What stands above the picture.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines: every decision, then the figures.")
    ] = False,
) -> None:
    """Run the loop over a load on a model of a cluster; tell what it decided and what came of it."""
    chosen = parse_settings(settings or [], _budget(executors))
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
    one = _progressed(run, None if manager is None else load_manager(manager))
    other = None if against is None else _progressed(_against(run, against), None)
    if svg is not None:
        names = ("as set", against or "")
        title = title or f"{form.name}, {hours:g} h"
        svg.write_text(
            draw_scaling(one, title, other, ("with the loop", "without") if against == "off" else names)
        )
    if json:
        print(one.record.lines(), end="")
        print(json_text.dumps({"figures": _rounded(one)} | ({"against": _rounded(other)} if other else {})))
        return
    console = Console(highlight=False)
    console.print(_decisions(one))
    console.print(_figures(one, other, against or ""))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


def _progressed(run: ScalingRun, manager: Manager | None) -> ScalingResult:
    """Simulate; on a terminal, what takes more than a second shows how far it is."""
    began, people = time.monotonic(), Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=people, transient=True, disable=not people.is_interactive)
    task = progress.add_task("simulating", total=1.0)

    def tell(share: float) -> None:
        if time.monotonic() - began > 1.0:
            progress.start()  # of one that runs already nothing is started
            progress.update(task, completed=share)

    try:
        return simulate_scaling(run, manager, tell)
    finally:
        if time.monotonic() - began > 1.0:
            progress.stop()


def _budget(text: str | None) -> ElasticSettings:
    if text is None:
        return ElasticSettings()
    least, dots, most = text.partition("..")
    try:
        low = int(least)
        return ElasticSettings(least_executors=low, most_executors=int(most) if dots else low)
    except ValueError:
        raise UserError(
            "BAD_OPTION", f"--executors {text} is not a budget", hint="Say least..most, such as 2..100."
        ) from None


def _enough_buckets(settings: ElasticSettings) -> int:
    """Eight a slice of the largest fleet, as a power of two, and at least the engine's 64."""
    return int(max(64, 1 << (8 * settings.most_executors - 1).bit_length()))


def _against(run: ScalingRun, text: str) -> ScalingRun:
    if text == "off":
        return replace(run, elastic=False)
    return replace(run, settings=parse_settings([text], run.settings))


def load_manager(file: Path) -> Manager:
    """The one class with a method `decide` that a Python file defines, made without arguments."""
    if not file.is_file():
        raise UserError(
            "NO_MANAGER", f"there is no file {file}", hint="Name the Python file of your manager."
        )
    spec = importlib.util.spec_from_file_location(f"penstock_manager_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError("NO_MANAGER", f"{file.name} is not a Python file", hint="Its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as failure:
        raise UserError("NO_MANAGER", f"{file} raised {type(failure).__name__}: {failure}") from failure
    found: list[Any] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "decide")
    ]
    if len(found) != 1:
        raise UserError(
            "NO_MANAGER",
            f"{file} has {len(found)} classes with a method decide(now), not one",
            hint="See docs/elasticity.md for a manager of ten lines.",
        )
    made: Manager = found[0]()
    return made


# ---------------------------------------------------------------- what is shown


def _rounded(one: ScalingResult) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in one.summarize().items()}


def _decisions(one: ScalingResult) -> Table:
    entries = one.record.entries
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("at", "decision", "outcome"):
        table.add_column(column, justify="right" if column == "at" else "left", overflow="fold")
    if not entries:
        table.add_row("", "nothing was decided", "")
    for number, entry in enumerate(entries):
        if _SHOWN <= number < len(entries) - _SHOWN:
            if number == _SHOWN:
                table.add_row("…", f"{len(entries) - 2 * _SHOWN} more", "")
            continue
        table.add_row(clock(entry.at), Text(explain(entry.decision)), _outcome(entry))
    return table


def _outcome(entry: Entry) -> Text:
    styles = {Outcome.helped: "green", Outcome.did_not_help: "yellow"}
    styles |= {Outcome.failed: "red", Outcome.undone: "red"}
    why = f", {entry.why}" if entry.why and entry.outcome in (Outcome.failed, Outcome.undone) else ""
    return Text(f"{entry.outcome}{why}", style=styles.get(entry.outcome, "dim"))


def _figures(one: ScalingResult, other: ScalingResult | None, against: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), show_header=other is not None)
    table.add_column("", style="dim")
    table.add_column("as set", justify="right")
    columns = [_told_figures(one)]
    if other is not None:
        table.add_column(against, justify="right")
        columns.append(_told_figures(other))
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


def _told_figures(one: ScalingResult) -> dict[str, str]:
    figures = one.summarize()
    counts = {name: f"{figures[name]:,.0f}" for name in ("provisions", "decommissions", "moves")}
    ends = ", ".join(
        f"{figures[name.replace(' ', '_')]:.0f} {name}"
        for name in ("helped", "did not help", "failed", "undone")
        if figures[name.replace(" ", "_")]
    )
    return {
        "load, events a second": f"{figures['mean_rate']:,.0f} (most {figures['most_rate']:,.0f})",
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
