"""`penstock plan`: runs a sample of an application and proposes executors and slices for a load."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.load_app import load
from penstock.cli.options import AppFile, as_seconds
from penstock.engine.collect import COLD_EPOCHS
from penstock.engine.engine import Engine
from penstock.epoch.report import SCAN, EpochReport, RunSummary
from penstock.errors import UserError
from penstock.query.logical import App
from penstock.query.physical import Plan
from penstock.scaling.sizes import Proposal, find_warnings, propose_size
from penstock.settings import Settings

#: least seconds between epochs, alternating: epochs of different size separate the fixed cost from the cost per event
_INTERVAL_SECONDS = (0.5, 2.0)
#: a sample keeps every manifest, so that no log removes what it has read
_ALL = 1 << 30


def plan(
    file: AppFile,
    sample: Annotated[str, typer.Option(help="Length of the sample.")] = "30s",
    rate: Annotated[
        float | None,
        typer.Option(help="Load to plan for, in events per second.", show_default="that of the sample"),
    ] = None,
    cores_per_executor: Annotated[int, typer.Option(min=1, help="Cores of each executor.")] = 1,
    target: Annotated[float, typer.Option(min=0.05, max=1, help="Target utilisation.")] = 0.6,
    master: Annotated[str, typer.Option(help="The Spark master for the sample.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what an event costs an application, and propose executors and slices for a load.

    The sample leaves nothing behind: its state is temporary and its sinks receive no rows.
    """
    seconds, app = as_seconds(sample, "--sample"), load(file)
    if isinstance(app, JobsApp):
        raise UserError(
            "JOBS_NOT_APP",
            f"{file} has jobs that come and go, and the cost changes with them",
            hint="Run it: `penstock status` shows what each stage uses.",
        )
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as scratch:
        # small epochs would be one task; a load that needs a proposal has none of them
        settings = Settings(
            state=Path(scratch) / "state", master=master, manifests_kept=_ALL, small_epoch_bytes=0
        )
        engine = Engine(_without_sinks(app), settings)
        with console.status(f"measuring for {sample}") if not as_json else console.capture():
            run, reports = _run_sample(engine, seconds)
        read = [report for report in reports if report.events]
        measured = read[COLD_EPOCHS:] or read
        events = [report.events for report in measured]
        if not events and run.bad:
            raise UserError(
                "EMPTY_SAMPLE",
                f"none of the {run.bad:,} rows of the sample could be decoded",
                hint="Run the application to see some of them in its dead letters; look at the decoder.",
            )
        proposal = propose_size(
            task_seconds(measured),
            events,
            rate or run.events / max(run.seconds, 1e-3),
            epoch_seconds=settings.epoch_seconds,
            target_utilisation=target,
            cores_per_executor=cores_per_executor,
            buckets=settings.buckets,
        )
        warnings = find_warnings(proposal, _partitions(engine.plan))
    if as_json:
        typer.echo(json.dumps(asdict(proposal) | {"warnings": warnings, "sample_events": sum(events)}))
        return
    _print_proposal(console, proposal, sum(events), warnings)


def _run_sample(engine: Engine, seconds: float) -> tuple[RunSummary, list[EpochReport]]:
    reports: list[EpochReport] = []

    def watch(report: EpochReport) -> None:
        reports.append(report)
        assert engine.admission is not None
        behind = any(engine.admission.backlog.values())
        engine.admission.throttle_seconds = 0.0 if behind else _INTERVAL_SECONDS[len(reports) % 2]

    try:
        return engine.run(watch, for_seconds=seconds), reports
    finally:
        for scan in engine.plan.scans.values():
            scan.stream.log.forsake()


def _without_sinks(app: App) -> App:
    """The application without its sinks."""
    return replace(app, outputs=tuple(replace(output, sinks=()) for output in app.outputs))


def task_seconds(reports: list[EpochReport]) -> dict[str, list[float]]:
    """Task seconds of the scan and of every stage in each epoch. What slice tasks take besides is divided among the
    stages by their shares."""
    names = dict.fromkeys(name for report in reports for name in report.work)
    seconds: dict[str, list[float]] = {SCAN: [], **{name: [] for name in names}}
    for report in reports:
        slices = sum(task.seconds for task in report.tasks if task.stage != SCAN)
        staged = sum(work.seconds for work in report.work.values())
        seconds[SCAN].append(sum(task.seconds for task in report.tasks if task.stage == SCAN))
        for name in names:
            own = report.work[name].seconds if name in report.work else 0.0
            seconds[name].append(max(slices, staged) * (own / staged if staged else 1 / len(names)))
    return seconds


def _partitions(plan: Plan) -> int:
    return sum(len(scan.stream.log.partitions({})) for scan in plan.scans.values())


def _print_proposal(console: Console, proposal: Proposal, events: int, warnings: list[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("stage", "ms per epoch", "µs per event", f"cores at {proposal.load:,.0f}/s"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for part in proposal.parts:
        table.add_row(
            part.name,
            f"{part.seconds_per_epoch * 1e3:.1f}",
            f"{part.seconds_per_event * 1e6:.2f}",
            f"{part.cores:.2f}",
        )
    console.print(table)
    console.print(
        f"{events:,} events measured; a core processes {proposal.core_rate:,.0f}/s besides the fixed cost per epoch\n"
        f"start with {proposal.executors} executor{'s' * (proposal.executors > 1)} of "
        f"{proposal.cores_per_executor} core{'s' * (proposal.cores_per_executor > 1)} and {proposal.slices} slice"
        f"{'s' * (proposal.slices > 1)}: {proposal.utilisation:.0%} used",
    )
    for warning in warnings:
        console.print(f"note: {warning}", soft_wrap=True)
