"""`penstock plan`: a sample run, and the sizes to begin with that it suggests for a load."""

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
from penstock.epoch.report import SCAN, EpochReport
from penstock.errors import UserError
from penstock.query.logical import App
from penstock.query.physical import Plan
from penstock.scaling.sizes import Proposal, find_warnings, propose_size
from penstock.settings import Settings

#: least times between epochs, in seconds, in turn: epochs of different size tell what is fixed from what an event costs
_PACES = (0.5, 2.0)
#: a sample goes back to nothing, and lets no log forget what it has read
_ALL = 1 << 30


def plan(
    file: AppFile,
    sample: Annotated[str, typer.Option(help="How long to measure.")] = "30s",
    rate: Annotated[
        float | None, typer.Option(help="The load to plan for, in events a second; default: the sample's.")
    ] = None,
    cores_per_executor: Annotated[int, typer.Option(min=1, help="Cores of an executor.")] = 1,
    target: Annotated[float, typer.Option(min=0.05, max=1, help="The utilisation to aim at.")] = 0.6,
    master: Annotated[str, typer.Option(help="Where to measure.")] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Measure what an application costs an event, and propose executors and slices for a load.

    Nothing is kept of the sample: its state and its results are thrown away.
    """
    seconds, app = as_seconds(sample, "--sample"), load(file)
    if isinstance(app, JobsApp):
        raise UserError(
            "JOBS_NOT_APP",
            f"{file} holds jobs that come and go, whose cost changes with them",
            hint="Run it and look at `penstock status`, which shows what each sub-query uses.",
        )
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as scratch:
        # no epoch is so small that it is one task: a load that needs a proposal has none of these
        settings = Settings(
            state=Path(scratch) / "state", master=master, manifests_kept=_ALL, small_epoch_bytes=0
        )
        engine = Engine(_unheard(app), settings)
        reports: list[EpochReport] = []

        def watch(report: EpochReport) -> None:
            reports.append(report)
            assert engine.admission is not None
            behind = any(engine.admission.backlog.values())
            engine.admission.throttle_seconds = 0.0 if behind else _PACES[len(reports) % len(_PACES)]

        with console.status(f"measuring for {sample}") if not as_json else console.capture():
            try:
                run = engine.run(watch, for_seconds=seconds)
            finally:
                for scan in engine.plan.scans.values():
                    scan.stream.log.forsake()
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
            spent(measured),
            events,
            rate or run.events / max(run.seconds, 1e-3),
            epoch_seconds=settings.epoch_seconds,
            target_utilisation=target,
            cores_per_executor=cores_per_executor,
            buckets=settings.buckets,
        )
        told = find_warnings(proposal, _partitions(engine.plan))
    if as_json:
        typer.echo(json.dumps(asdict(proposal) | {"warnings": told, "sample_events": sum(events)}))
        return
    _show(console, proposal, sum(events), told)


def _unheard(app: App) -> App:
    """The application without its sinks."""
    return replace(app, outputs=tuple(replace(output, sinks=()) for output in app.outputs))


def spent(reports: list[EpochReport]) -> dict[str, list[float]]:
    """Task seconds of the scan and of every sub-query in each epoch; what the slices take besides goes to these by
    their parts."""
    names = dict.fromkeys(name for report in reports for name in report.work)
    found: dict[str, list[float]] = {SCAN: [], **{name: [] for name in names}}
    for report in reports:
        slices = sum(task.seconds for task in report.tasks if task.stage != SCAN)
        named = sum(work.seconds for work in report.work.values())
        found[SCAN].append(sum(task.seconds for task in report.tasks if task.stage == SCAN))
        for name in names:
            own = report.work[name].seconds if name in report.work else 0.0
            found[name].append(max(slices, named) * (own / named if named else 1 / len(names)))
    return found


def _partitions(plan: Plan) -> int:
    return sum(len(scan.stream.log.partitions({})) for scan in plan.scans.values())


def _show(console: Console, proposal: Proposal, events: int, told: list[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("sub-query", "ms an epoch", "µs an event", f"cores at {proposal.load:,.0f}/s"):
        table.add_column(title, justify="left" if title == "sub-query" else "right")
    for part in proposal.parts:
        table.add_row(
            part.name,
            f"{part.seconds_per_epoch * 1e3:.1f}",
            f"{part.seconds_per_event * 1e6:.2f}",
            f"{part.cores:.2f}",
        )
    console.print(table)
    console.print(
        f"{events:,} events measured; a core does {proposal.core_rate:,.0f}/s beside what each epoch costs\n"
        f"begin with {proposal.executors} executor{'s' * (proposal.executors > 1)} of "
        f"{proposal.cores_per_executor} core{'s' * (proposal.cores_per_executor > 1)} and {proposal.slices} slice"
        f"{'s' * (proposal.slices > 1)}: {proposal.utilisation:.0%} used",
    )
    for warning in told:
        console.print(f"note: {warning}", soft_wrap=True)
