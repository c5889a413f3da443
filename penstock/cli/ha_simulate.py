"""`penstock ha simulate` and `sweep`: run the fault-tolerance controller on a model of a load with failures."""

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

from penstock.cli.options import as_seconds
from penstock.cli.tables import plain_table, shortened_table, write_file
from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.formatting import clock, size
from penstock.ha.cost import RESOURCES, weights_of
from penstock.ha.schemes import Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from penstock.simulate import failure_charts, sweeps
from penstock.simulate.engine_model import Truth
from penstock.simulate.failures import FailureResult, FailureRun, simulate_failures
from penstock.simulate.loads import DRAWN
from penstock.size import byte_count

#: switches that the table shows at each end
_SHOWN = 8

TraceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE", help=f"The load: {', '.join(DRAWN)}, or a CSV file with columns time,rate."
    ),
]
CostsOption = Annotated[
    str, typer.Option(help="Cost model: all-costs, cloud-vm, or weights such as cpu=1,memory=0.2,engines=2.")
]
StateOption = Annotated[
    str, typer.Option(help="Mean size of the state, which grows and shrinks with the load.")
]
SemanticsOption = Annotated[Semantics, typer.Option(help="Recovery semantics; see `penstock ha schemes`.")]
EveryOption = Annotated[
    str,
    typer.Option(metavar="N|auto", help="Checkpoint interval in epochs; auto: the controller chooses it."),
]
StartOption = Annotated[str, typer.Option(help="How long an engine takes to start.")]
RateOption = Annotated[float, typer.Option(min=1, help="Mean load in events per second.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
SvgOption = Annotated[Path | None, typer.Option(help="Draw the result into this file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class By(StrEnum):
    """The parameter that a sweep varies."""

    threshold = "threshold"
    costs = "costs"
    semantics = "semantics"
    state = "state"
    interval = "interval"


# over 8 parameters: each is an option
def simulate(
    trace: TraceOption = "day",
    threshold: Annotated[str, typer.Option(help="Recovery time: how long a failure may last.")] = "10s",
    costs: CostsOption = "all-costs",
    semantics: SemanticsOption = Semantics.precise,
    state: StateOption = "50MB",
    growth: Annotated[
        float, typer.Option(min=0.01, help="Factor by which the state grows until the end.")
    ] = 1.0,
    checkpoint_every: EveryOption = "1",
    start_up: StartOption = "12s",
    hours: Annotated[float, typer.Option(min=0.05, max=1000, help="Length of the load.")] = 24.0,
    rate: RateOption = 100_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the leader is killed.")] = 20,
    seed: SeedOption = 1,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also run each scheme alone, without the controller.")
    ] = False,
    svg: SvgOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate the controller under a load with failures.

    Shows its choices, what they cost, and how long recoveries took.
    """
    settings = ControllerSettings(
        threshold_seconds=as_seconds(threshold, "--threshold"),
        semantics=semantics,
        weights=weights_of(costs),
        checkpoint_choices=_parse_intervals(checkpoint_every),
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
    result = simulate_failures(run)
    constant = sweeps.simulate_constant_schemes(run) if compare else []
    if svg is not None:
        title = f"{trace}, threshold {threshold}, {semantics}, costs {costs}, state {state}"
        write_file(svg, failure_charts.draw_over_time(result, title))
    if json:
        for decision in result.decisions:
            print(json_text.dumps(decision.to_plain()))
        print(json_text.dumps({"figures": _rounded(result.summarize()), "constants": _rounded(constant)}))
        return
    console = Console(highlight=False)
    console.print(_switches(result))
    console.print(_figures(result))
    if constant:
        console.print(_constant_schemes(result, constant))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


# over 8 parameters: each is an option
def sweep(
    by: Annotated[By, typer.Option(help="The parameter to vary.")] = By.threshold,
    trace: TraceOption = "spikes",
    costs: CostsOption = "all-costs",
    semantics: SemanticsOption = Semantics.precise,
    state: StateOption = "50MB",
    checkpoint_every: EveryOption = "1",
    start_up: StartOption = "12s",
    hours: Annotated[float, typer.Option(min=0.05, max=100, help="Length of each run.")] = 1.0,
    rate: RateOption = 100_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the leader is killed in each run.")] = 10,
    seed: SeedOption = 1,
    svg: SvgOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate the same load several times with one parameter varied, such as the threshold."""
    settings = ControllerSettings(
        semantics=semantics, weights=weights_of(costs), checkpoint_choices=_parse_intervals(checkpoint_every)
    )
    truth = Truth(start_seconds=microseconds(start_up) / 1e6)
    run = FailureRun(
        trace, settings, truth, hours, 5.0, rate, float(byte_count(state)), kills=kills, seed=seed
    )
    rows, picture = _SWEEPS[by](run)
    if svg is not None:
        write_file(svg, picture)
    if json:
        print(json_text.dumps(_rounded(rows)))
        return
    console = Console(highlight=False)
    console.print(_rows(rows))
    if svg is not None:
        console.print(f"drawn in {svg}", markup=False)


# ---------------------------------------------------------------- sweeps


SweepResult = tuple[list[dict[str, Any]], str]


def _threshold(run: FailureRun) -> SweepResult:
    rows = sweeps.sweep_thresholds(run)
    return rows, failure_charts.draw_overhead(rows, "Overhead against the threshold")


def _costs(run: FailureRun) -> SweepResult:
    rows = sweeps.sweep_costs(run)
    return rows, failure_charts.draw_time_in_schemes(rows, "costs", "Time in each scheme, by cost model")


def _semantics(run: FailureRun) -> SweepResult:
    rows = sweeps.sweep_semantics(run)
    return rows, failure_charts.draw_time_in_schemes(
        rows, "semantics", "Time in each scheme, precise against gap"
    )


def _state(run: FailureRun) -> SweepResult:
    rows = sweeps.sweep_state_sizes(replace(run, trace="steady", hours=min(run.hours, 0.1), kills=0))
    return rows, failure_charts.draw_by_state_size(rows, "The least threshold that saves, by state size")


def _interval(run: FailureRun) -> SweepResult:
    passive = (Scheme.passive_hot, Scheme.passive_cold, Scheme.deployed)
    rows = sweeps.sweep_intervals(replace(run, trace="steady"), passive)
    return rows, failure_charts.draw_by_interval(rows, "Recovery time and overhead by checkpoint interval")


_SWEEPS: dict[By, Callable[[FailureRun], SweepResult]] = {
    By.threshold: _threshold,
    By.costs: _costs,
    By.semantics: _semantics,
    By.state: _state,
    By.interval: _interval,
}


# ---------------------------------------------------------------- options and tables


def _parse_intervals(text: str) -> tuple[int, ...]:
    if text == "auto":
        return CHECKPOINT_CHOICES
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise UserError(
            "BAD_OPTION",
            f"--checkpoint-every {text} is not a number of epochs",
            hint="Use 1 or more, or auto to leave it to the controller.",
        )
    return (int(text),)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _switches(result: FailureResult) -> Table:
    rows = [
        (clock(decision.at), f"{decision.before} to {decision.chosen}", Text(decision.reason))
        for decision in result.decisions
        if decision.switched
    ]
    otherwise = f"stayed in {result.run.settings.first_scheme}"
    return shortened_table(("at", "switch", "because"), rows, _SHOWN, otherwise)


def _figures(result: FailureResult) -> Table:
    figures = result.summarize()
    shares = {name: share for name, share in figures["time_shares"].items() if share}
    within = f"{figures['kept']} of {figures['recoveries']}"
    lines: dict[str, str | Text] = {
        "recoveries within the threshold": Text(
            within, "" if figures["kept"] == figures["recoveries"] else "red"
        ),
        "longest recovery": f"{figures['worst_recovery_seconds']:.1f} s of {figures['threshold_seconds']:g} s",
        "least estimate over measured": f"{figures['least_estimate_over_measured']:.0%}",
        "cost relative to constant active replication": f"{figures['cost_share']:.0%}",
        "the same including the leader": f"{figures['cost_share_with_primary']:.0%}",
        "the same by resource": ", ".join(f"{n} {figures['resource_shares'][n]:.0%}" for n in RESOURCES),
        "switches": str(figures["switches"]),
        "time in each scheme": ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
        "time in which no scheme was fast enough": f"{figures['unsuited_share']:.1%}",
    }
    table = plain_table()
    for name, value in lines.items():
        table.add_row(Text(name, "dim"), value)
    return table


def _constant_schemes(result: FailureResult, rows: list[dict[str, Any]]) -> Table:
    table = plain_table("all the time", "cost", "within", "longest", left=("all the time",))
    for row in [{"scheme": "the controller", **result.summarize()}, *rows]:
        table.add_row(
            row["scheme"],
            f"{row['cost_share']:.0%}",
            f"{row['kept']} of {row['recoveries']}",
            f"{row['worst_recovery_seconds']:.1f} s",
        )
    return table


#: figures of a sweep that the table shows: their names in JSON and in the table
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
    """The rows of a sweep, with the figures that fit on a terminal."""
    flat = [_flat(row) for row in rows]
    names = [name for name in _COLUMNS if name in flat[0]]
    if "semantics" in names:
        names.remove("costs")
    table = plain_table()
    table.show_header = True
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
    if name == "state_bytes":
        return size(int(value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with each value of a nested mapping as a figure of its own."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= (
            {f"{name}.{part}": one for part, one in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat
