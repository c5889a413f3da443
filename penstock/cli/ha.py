"""`penstock ha`: the fault-tolerance controller tried on a load with failures; the schemes as a table."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import clock, size
from penstock.cli.options import as_seconds
from penstock.duration import microseconds
from penstock.errors import ExternalError, UserError
from penstock.ha.cost import RESOURCES, weights_of
from penstock.ha.schemes import SCHEMES, SEMANTICS, Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from penstock.simulate import failure_charts, sweeps
from penstock.simulate.engine_model import Truth
from penstock.simulate.failures import FailureResult, FailureRun, simulate_failures
from penstock.simulate.loads import DRAWN
from penstock.size import byte_count

ha_app = typer.Typer(
    help="HA units: look at one, switch its scheme, stop it; and a simulator of the controller.",
    no_args_is_help=True,
)

#: switches the table shows, of each end
_SHOWN = 8

TraceOption = Annotated[
    str, typer.Option(metavar="NAME|FILE", help=f"{', '.join(DRAWN)}, or a CSV file of time,rate.")
]
CostsOption = Annotated[
    str, typer.Option(help="all-costs, cloud-vm, or weights such as cpu=1,memory=0.2,engines=2.")
]
StateOption = Annotated[str, typer.Option(help="The state's mean size; it follows the load.")]
SemanticsOption = Annotated[Semantics, typer.Option(help="What a recovery has to keep.")]
EveryOption = Annotated[
    str, typer.Option(metavar="N|auto", help="Epochs from one durable manifest to the next.")
]
StartOption = Annotated[str, typer.Option(help="What starting an engine takes.")]
RateOption = Annotated[float, typer.Option(min=1, help="Mean events a second.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Another seed is another run.")]
SvgOption = Annotated[Path | None, typer.Option(help="Draw it into this file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Figures as JSON.")]


class By(StrEnum):
    """What a sweep varies."""

    threshold = "threshold"
    costs = "costs"
    semantics = "semantics"
    state = "state"
    interval = "interval"


@ha_app.command("simulate")
def simulate_(
    trace: TraceOption = "day",
    threshold: Annotated[str, typer.Option(help="A failure should be over after this long.")] = "10s",
    costs: CostsOption = "all-costs",
    semantics: SemanticsOption = Semantics.precise,
    state: StateOption = "50MB",
    growth: Annotated[
        float, typer.Option(min=0.01, help="What the state has become at the end, in times.")
    ] = 1.0,
    checkpoint_every: EveryOption = "1",
    start_up: StartOption = "12s",
    hours: Annotated[float, typer.Option(min=0.05, max=1000, help="How long the load lasts.")] = 24.0,
    rate: RateOption = 100_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the primary is killed.")] = 20,
    seed: SeedOption = 1,
    compare: Annotated[bool, typer.Option("--compare", help="Also run every scheme for good.")] = False,
    svg: SvgOption = None,
    json: JsonOption = False,
) -> None:
    """Turn the controller through a load with failures; tell what it chose, what it cost and what it kept."""
    settings = ControllerSettings(
        threshold_seconds=as_seconds(threshold, "--threshold"),
        semantics=semantics,
        weights=weights_of(costs),
        checkpoint_choices=_choices(checkpoint_every),
    )
    run = FailureRun(
        trace,
        settings,
        Truth(start_seconds=microseconds(start_up) / 1e6),
        hours,
        10.0 if hours > 6 else 5.0,
        rate,
        float(byte_count(state)),
        growth=growth,
        kills=kills,
        seed=seed,
    )
    done = simulate_failures(run)
    beside = sweeps.simulate_constant_schemes(run) if compare else []
    if svg is not None:
        told = f"{trace}, threshold {threshold}, {semantics}, costs {costs}, state {state}"
        _write(svg, failure_charts.draw_over_time(done, told))
    if json:
        for decision in done.decisions:
            print(json_text.dumps(decision.to_plain()))
        print(json_text.dumps({"figures": _rounded(done.summarize()), "constants": _rounded(beside)}))
        return
    console = Console(highlight=False)
    console.print(_decisions(done))
    console.print(_figures(done))
    if beside:
        console.print(_constants(done, beside))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


@ha_app.command("sweep")
def sweep_(
    by: Annotated[By, typer.Option(help="What is varied.")] = By.threshold,
    trace: TraceOption = "spikes",
    costs: CostsOption = "all-costs",
    semantics: SemanticsOption = Semantics.precise,
    state: StateOption = "50MB",
    checkpoint_every: EveryOption = "1",
    start_up: StartOption = "12s",
    hours: Annotated[float, typer.Option(min=0.05, max=100, help="How long each run lasts.")] = 1.0,
    rate: RateOption = 100_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the primary is killed in each run.")] = 10,
    seed: SeedOption = 1,
    svg: SvgOption = None,
    json: JsonOption = False,
) -> None:
    """Run the same load again and again with one thing varied: the threshold, the state's size, the costs."""
    settings = ControllerSettings(
        semantics=semantics, weights=weights_of(costs), checkpoint_choices=_choices(checkpoint_every)
    )
    truth = Truth(start_seconds=microseconds(start_up) / 1e6)
    run = FailureRun(
        trace, settings, truth, hours, 5.0, rate, float(byte_count(state)), kills=kills, seed=seed
    )
    rows, drawn = _SWEEPS[by](run)
    if svg is not None:
        _write(svg, drawn)
    if json:
        print(json_text.dumps(_rounded(rows)))
        return
    console = Console(highlight=False)
    console.print(_rows(rows))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


@ha_app.command()
def schemes(json: JsonOption = False) -> None:
    """The six schemes and the four recovery semantics."""
    if json:
        plain = [facts.to_plain() for facts in SCHEMES.values()]
        meant = {str(name): facts.meaning for name, facts in SEMANTICS.items()}
        print(json_text.dumps({"schemes": plain, "semantics": meant}))
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("scheme", "secondary", "on failure"):
        table.add_column(column, overflow="fold")
    for facts in SCHEMES.values():
        table.add_row(str(facts.scheme), facts.secondary, ", ".join(facts.on_failure))
    console = Console(highlight=False)
    console.print(table)
    console.print()
    for name, meant_ in SEMANTICS.items():
        console.print(Text(f"{name}: {meant_.meaning}"))


# ---------------------------------------------------------------- sweeps


Swept = tuple[list[dict[str, Any]], str]


def _threshold(run: FailureRun) -> Swept:
    rows = sweeps.sweep_thresholds(run)
    return rows, failure_charts.draw_overhead(rows, "Overhead against the threshold")


def _costs(run: FailureRun) -> Swept:
    rows = sweeps.sweep_costs(run)
    return rows, failure_charts.draw_time_in_schemes(rows, "costs", "Time in each scheme, by cost model")


def _semantics(run: FailureRun) -> Swept:
    rows = sweeps.sweep_semantics(run)
    return rows, failure_charts.draw_time_in_schemes(
        rows, "semantics", "Time in each scheme, precise against gap"
    )


def _state(run: FailureRun) -> Swept:
    rows = sweeps.sweep_state_sizes(replace(run, trace="steady", hours=min(run.hours, 0.1), kills=0))
    return rows, failure_charts.draw_by_state_size(rows, "The least threshold that saves, by state size")


def _interval(run: FailureRun) -> Swept:
    passive = (Scheme.passive_hot, Scheme.passive_cold, Scheme.deployed)
    rows = sweeps.sweep_intervals(replace(run, trace="steady"), passive)
    return rows, failure_charts.draw_by_interval(rows, "Recovery time and overhead by checkpoint interval")


_SWEEPS: dict[By, Callable[[FailureRun], Swept]] = {
    By.threshold: _threshold,
    By.costs: _costs,
    By.semantics: _semantics,
    By.state: _state,
    By.interval: _interval,
}


# ---------------------------------------------------------------- options and what is shown


def _choices(text: str) -> tuple[int, ...]:
    if text == "auto":
        return CHECKPOINT_CHOICES
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise UserError(
            "BAD_OPTION",
            f"--checkpoint-every {text} is not a number of epochs",
            hint="Say 1 or more, or auto to leave it to the controller.",
        )
    return (int(text),)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as failure:
        raise ExternalError("CANNOT_WRITE", f"{file} cannot be written: {failure.strerror}") from failure


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _decisions(done: FailureResult) -> Table:
    switches = [decision for decision in done.decisions if decision.switched]
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("at", "switch", "because"):
        table.add_column(column, justify="right" if column == "at" else "left", overflow="fold")
    if not switches:
        table.add_row("", f"stayed in {done.run.settings.first_scheme}", "")
    for number, decision in enumerate(switches):
        if _SHOWN <= number < len(switches) - _SHOWN:
            if number == _SHOWN:
                table.add_row("…", f"{len(switches) - 2 * _SHOWN} more", "")
            continue
        table.add_row(clock(decision.at), f"{decision.before} to {decision.chosen}", Text(decision.reason))
    return table


def _figures(done: FailureResult) -> Table:
    figures = done.summarize()
    shares = {name: share for name, share in figures["time_shares"].items() if share}
    within = f"{figures['kept']} of {figures['recoveries']}"
    told: dict[str, str | Text] = {
        "recoveries within the threshold": Text(
            within, "" if figures["kept"] == figures["recoveries"] else "red"
        ),
        "longest recovery": f"{figures['worst_recovery_seconds']:.1f} s of {figures['threshold_seconds']:g} s",
        "least estimate over measured": f"{figures['least_estimate_over_measured']:.0%}",
        "cost, of constant active replication": f"{figures['cost_share']:.0%}",
        "the same with the primary": f"{figures['cost_share_with_primary']:.0%}",
        "of each resource": ", ".join(f"{n} {figures['resource_shares'][n]:.0%}" for n in RESOURCES),
        "switches": str(figures["switches"]),
        "time in schemes": ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
        "time in which nothing suited": f"{figures['unsuited_share']:.1%}",
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in told.items():
        table.add_row(Text(name, "dim"), value)
    return table


def _constants(done: FailureResult, rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("for good", "cost", "within", "longest"):
        table.add_column(column, justify="left" if column == "for good" else "right")
    for row in [{"scheme": "the controller", **done.summarize()}, *rows]:
        table.add_row(
            row["scheme"],
            f"{row['cost_share']:.0%}",
            f"{row['kept']} of {row['recoveries']}",
            f"{row['worst_recovery_seconds']:.1f} s",
        )
    return table


#: figures of a sweep that the table shows: what stands in JSON as this, and the column's name
_COLUMNS = {
    "scheme": "scheme",
    "checkpoint_every": "every",
    "semantics": "semantics",
    "costs": "costs",
    "threshold_seconds": "threshold",
    "state_bytes": "state",
    "kept": "within",
    "cost_share": "cost",
    **{f"resource_shares.{name}": name for name in RESOURCES},
    **{f"least_threshold_seconds.{name}": name for name in RESOURCES},
    "median_seconds": "median",
    "worst_seconds": "longest",
    "estimated_seconds": "estimate",
    **{f"overhead.{name}": name for name in RESOURCES if name != "engines"},
}


def _rows(rows: list[dict[str, Any]]) -> Table:
    """A sweep's rows, those of its figures that fit a terminal."""
    flat = [_flat(row) for row in rows]
    names = [name for name in _COLUMNS if name in flat[0]]
    if "semantics" in names:
        names.remove("costs")
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        left = isinstance(flat[0][name], str)
        table.add_column(_COLUMNS[name], justify="left" if left else "right", no_wrap=left)
    for row in flat:
        table.add_row(*(_cell(name, row[name], row) for name in names))
    return table


def _cell(name: str, value: Any, row: dict[str, Any]) -> str:
    if value is None:
        return "none"
    if name == "kept":
        return f"{value} of {row['recoveries']}"
    if name.startswith(("cost_share", "resource_shares", "overhead")):
        return f"{value:.0%}"
    return (
        size(int(value))
        if name == "state_bytes"
        else f"{value:.3g}"
        if isinstance(value, float)
        else str(value)
    )


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose mappings have become figures of their own."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= (
            {f"{name}.{part}": one for part, one in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat
