"""`./run bench`: runs a benchmark and reports its findings, as a table for people or as JSON lines.

It writes findings to standard output and progress to standard error. A benchmark is loaded
when it is run, so that `--help` is fast.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding
from bench.peers import command as peers_command
from penstock.cli.entry import run_cli
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from bench import clicks as clicks_bench
    from bench import operators as operators_bench

bench_app = typer.Typer(
    help="Measure Penstock beside its peers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class ClickCase(StrEnum):
    """A case of the click-stream benchmark."""

    patterns = "patterns"
    windows = "windows"
    small_epochs = "small-epochs"
    decode = "decode"


class OperatorCase(StrEnum):
    """A case of the operator benchmark."""

    aggregate = "aggregate"
    map_ = "map"
    join_ = "join"
    product = "product"
    windows = "windows"
    order = "order"


class JobCase(StrEnum):
    """A case of the jobs benchmark."""

    state = "state"
    template = "template"
    arbitrary = "arbitrary"
    latency = "latency"


class ElasticCase(StrEnum):
    """A case of the elastic benchmark."""

    scale = "scale"
    bucket = "bucket"
    surge = "surge"
    overhead = "overhead"


class IngestCase(StrEnum):
    """A case of the ingest benchmark."""

    throughput = "throughput"
    light = "light"
    result = "result"
    latency = "latency"
    agents = "agents"
    connections = "connections"


class ApiCase(StrEnum):
    """A case of the API's benchmark."""

    ask = "ask"
    connections = "connections"
    subscribers = "subscribers"


class RecoveryCase(StrEnum):
    """A case of the recovery benchmark: a scheme, the controller that picks one, or what being recoverable costs."""

    active_replication = "active-replication"
    active_standby = "active-standby"
    passive_hot = "passive-hot"
    passive_cold = "passive-cold"
    deployed = "deployed"
    passive_replication = "passive-replication"
    controller = "controller"
    overhead = "overhead"


Case = TypeVar("Case", bound=StrEnum)
Size = TypeVar("Size", bound="DataclassInstance")


Json = Annotated[bool, typer.Option("--json", help="One line, one JSON object a finding.")]
Quick = Annotated[bool, typer.Option("--quick", help="A look of a minute or two, one run each.")]
Runs = Annotated[int | None, typer.Option(min=1, help="Runs of each engine.")]


@bench_app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure Penstock beside its peers."""


@bench_app.command()
def clicks(
    json: Json = False,
    quick: Quick = False,
    events: Annotated[int | None, typer.Option(min=1_000, help="Events of the two queries.")] = None,
    runs: Runs = None,
    only: Annotated[ClickCase | None, typer.Option(help="This case alone.")] = None,
) -> None:
    """Click patterns, window counts, small epochs and decoding, beside plain PySpark on the same lines."""
    from bench.clicks import Clicks
    from bench.dataset import cache_root

    _report(
        lambda show_progress: Clicks(click_size(quick, events, runs), cache_root(), show_progress),
        _choose_cases(ClickCase, only),
        json,
    )


@bench_app.command()
def operators(
    json: Json = False,
    quick: Quick = False,
    events: Annotated[int | None, typer.Option(min=1_000, help="Most events of any case.")] = None,
    runs: Runs = None,
    only: Annotated[OperatorCase | None, typer.Option(help="This case alone.")] = None,
) -> None:
    """Aggregate, map, join, product, overlapping windows and orders on call records, beside plain PySpark."""
    from bench.dataset import cache_root
    from bench.operators import Operators

    names, size = _choose_cases(OperatorCase, only), operator_size(quick, events, runs)
    _report(lambda show_progress: Operators(size, cache_root(), show_progress, names), names, json)


@bench_app.command()
def jobs(
    json: Json = False,
    quick: Quick = False,
    runs: Runs = None,
    only: Annotated[JobCase | None, typer.Option(help="This case alone.")] = None,
) -> None:
    """What the state of aggregates costs beside a dictionary, and many jobs at once beside plain PySpark."""
    from bench import jobs as jobs_bench
    from bench.dataset import cache_root

    size = _apply_options(jobs_bench.QUICK if quick else jobs_bench.Size(), runs=runs)
    _report(
        lambda show_progress: jobs_bench.Jobs(size, cache_root(), show_progress),
        _choose_cases(JobCase, only),
        json,
    )


@bench_app.command()
def elastic(
    json: Json = False,
    quick: Quick = False,
    runs: Runs = None,
    only: Annotated[ElasticCase | None, typer.Option(help="This case alone.")] = None,
) -> None:
    """What it costs that executors come and go: scaling, moving a bucket, following a surge, the loop itself."""
    from bench import elastic as elastic_bench

    size = _apply_options(elastic_bench.QUICK if quick else elastic_bench.Size(), runs=runs)
    _report(
        lambda show_progress: elastic_bench.Elastic(size, show_progress),
        _choose_cases(ElasticCase, only),
        json,
    )


@bench_app.command()
def ingest(
    json: Json = False,
    quick: Quick = False,
    runs: Runs = None,
    only: Annotated[IngestCase | None, typer.Option(help="This case alone.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="How long the thousand agents send.", show_default="10")
    ] = None,
) -> None:
    """Agents and a gateway: lines a second, to disk and to results, what an agent costs, and a thousand of them at
    once."""
    from bench import ingest as ingest_bench

    size = _apply_options(
        ingest_bench.QUICK if quick else ingest_bench.Size(),
        agents_seconds=None if minutes is None else minutes * 60,
        runs=runs,
    )
    _report(
        lambda show_progress: ingest_bench.Ingest(size, show_progress), _choose_cases(IngestCase, only), json
    )


@bench_app.command()
def api(
    json: Json = False,
    quick: Quick = False,
    runs: Runs = None,
    only: Annotated[ApiCase | None, typer.Option(help="This case alone.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="How long each run is.", show_default="30")
    ] = None,
) -> None:
    """Questions and subscribers of a service while events flow, also beside connections that send nothing."""
    from bench import api as api_bench

    size = _apply_options(api_bench.QUICK if quick else api_bench.Size(), seconds=seconds, runs=runs)
    _report(lambda show_progress: api_bench.Api(size, show_progress), _choose_cases(ApiCase, only), json)


@bench_app.command()
def checkpoint(json: Json = False, quick: Quick = False, runs: Runs = None) -> None:
    """The checkpoint interval: what it saves while nothing fails, and what a recovery takes."""
    from bench import checkpoint as checkpoint_bench

    size = _apply_options(checkpoint_bench.QUICK if quick else checkpoint_bench.Size(), runs=runs)
    _report(lambda show_progress: checkpoint_bench.Checkpoint(size, show_progress), ["interval"], json)


@bench_app.command()
def recovery(
    json: Json = False,
    quick: Quick = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Kills of each scheme; runs of the overhead.")
    ] = None,
    only: Annotated[RecoveryCase | None, typer.Option(help="This scheme or case alone.")] = None,
) -> None:
    """Kill the primary of real units, scheme by scheme: the gap at the sink, the estimate beside it, and what the
    scheme takes while nothing fails."""
    from bench import recovery as recovery_bench

    size = _apply_options(recovery_bench.QUICK if quick else recovery_bench.Size(), runs=runs, kills=runs)
    _report(
        lambda show_progress: recovery_bench.Recovery(size, show_progress),
        _choose_cases(RecoveryCase, only),
        json,
    )


@bench_app.command()
def soak(
    json: Json = False,
    quick: Quick = False,
    epochs: Annotated[
        int | None, typer.Option(min=8, help="Small epochs back to back, without Spark.")
    ] = None,
    hours: Annotated[float | None, typer.Option(min=0.01, help="So long on Spark instead.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="End after so long, without Spark.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the series into this SVG file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write here, and keep it.")] = None,
) -> None:
    """Epochs while jobs come and go, files rotate and sinks fail: memory, descriptors, files and time stay flat, and
    the output is that of an oracle."""
    from bench import soak as soak_bench

    size = dataclasses.replace(soak_bench.QUICK if quick else soak_bench.Size(), plot=plot, folder=folder)
    size = _apply_options(size, epochs=epochs, hours=hours, minutes=minutes)
    _report(lambda show_progress: soak_bench.Soak(size, show_progress), [soak_bench.case_of(size)], json)


@bench_app.command()
def faults(
    json: Json = False,
    quick: Quick = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Inject faults for so long.", show_default="30")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The order of the faults follows from it.")] = None,
    master: Annotated[str, typer.Option(help="The Spark master; `inline` is without Spark.")] = "local[2]",
    only: Annotated[str | None, typer.Option(help="The faults alone whose names contain this.")] = None,
) -> None:
    """Every fault in one run on Spark, of sinks, workers, engines, disks, files and clocks; output equal event for
    event."""
    from bench import faults as faults_bench

    size = faults_bench.QUICK if quick else faults_bench.Size()
    size = _apply_options(
        dataclasses.replace(size, master=master, only=only or ""), minutes=minutes, seed=seed
    )
    _report(lambda show_progress: faults_bench.Faults(size, show_progress), ["every-fault"], json)


bench_app.command()(peers_command.peers)
bench_app.command()(peers_command.growth)


def _choose_cases(cases: type[Case], only: Case | None) -> list[Case]:
    """Return the one chosen case, or all of them."""
    return [*cases] if only is None else [only]


def _apply_options(size: Size, **changes: float | None) -> Size:
    """Return a size with the user's options."""
    return dataclasses.replace(size, **{name: value for name, value in changes.items() if value is not None})


def _report(make_benchmark: Callable[[ShowProgress], Benchmark], names: Sequence[str], json: bool) -> None:
    """Run the chosen cases; with `json` print each finding as soon as it is measured."""
    progress = Console(stderr=True)
    findings: list[Finding] = []
    with progress.status("starting") as status:
        # a file gets a line for each step, a terminal one line that changes
        bench = make_benchmark(status.update if progress.is_terminal else progress.print)
        for line in bench.left_out(names):
            progress.print(line)
        for name in names:
            try:
                for finding in bench.cases()[name]():
                    findings.append(finding)
                    if json:
                        print(finding.to_json(), flush=True)
            except PenstockError as error:
                progress.print(error.text(), markup=False, soft_wrap=True)
                raise typer.Exit(error.exit_code) from None
    if not json:
        out = Console()
        if not out.is_terminal:
            out = Console(width=160)  # a file has no edge to break lines at
        out.print(table(findings))
        for line in stage_lines(bench.stages):
            out.print(line, markup=False)


def click_size(quick: bool, events: int | None, runs: int | None) -> clicks_bench.Size:
    """Return the size that the user chose; the smaller data sets never exceed the largest."""
    from bench import clicks as clicks_bench

    size = clicks_bench.QUICK if quick else clicks_bench.Size()
    events = size.events if events is None else events
    return dataclasses.replace(
        size,
        events=events,
        slow_events=min(size.slow_events, events),
        warm_events=min(size.warm_events, events),
        runs=size.runs if runs is None else runs,
    )


def operator_size(quick: bool, events: int | None, runs: int | None) -> operators_bench.Size:
    """Return the size that the user chose; no data set exceeds these events."""
    from bench import operators as operators_bench

    size = operators_bench.QUICK if quick else operators_bench.Size()
    if events is not None:
        names = ("join_events", "product_events", "slow_events", "warm_events", "warm_product_events")
        fewer = {name: min(getattr(size, name), events) for name in names}
        size = dataclasses.replace(size, events=events, **fewer)
    return _apply_options(size, runs=runs)


def table(findings: Sequence[Finding]) -> Table:
    """Format the findings for people."""
    view = Table(title=" and ".join(dict.fromkeys(finding.bench for finding in findings)))
    for name in ("case", "engine", "metric"):
        view.add_column(name)
    for name in ("median", "best", "target"):
        view.add_column(name, justify="right")
    view.add_column("unit")
    view.add_column("met")
    for f in findings:
        target = (
            ""
            if f.target is None
            else f"{'≥' if f.target.sense == 'at least' else '≤'} {format_value(f.target.value)}"
        )
        met = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[f.met]
        view.add_row(
            f.case, f.engine, f.metric, format_value(f.value), format_value(f.best), target, f.unit, met
        )
    return view


def stage_lines(stages: dict[str, dict[str, float]]) -> list[str]:
    """Where Penstock's time went in its last run, a line a case; stages are summed over tasks."""
    return [
        f"{case}: "
        + ", ".join(
            f"{stage} {value:.4g}{'' if stage == 'epochs' else ' s'}" for stage, value in parts.items()
        )
        for case, parts in stages.items()
    ]


def format_value(value: float) -> str:
    """Format a value with its significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. It always raises SystemExit."""
    run_cli(bench_app, arguments, "./run bench")
