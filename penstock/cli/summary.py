"""Draws the summary after a run: what happened, and where results and state are. Pure."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.catalogue.catalogue import Catalogue
from penstock.cli.command_line import program_name
from penstock.engine.engine import Engine
from penstock.engine.gauges import Gauges
from penstock.epoch.report import RunSummary
from penstock.formatting import seconds, size
from penstock.query.physical import Plan
from penstock.sinks.files import PrivateJsonLines

#: characters shown of a dead letter or a late event
_SHOWN = 120
#: of each stream, so many of its latest rows are searched for the first one of the newest epoch
_LATEST_ROWS = 10_000
#: failed jobs whose errors are shown at a start
_FAILED_SHOWN = 5
#: up to so many sinks get a line each
_SINKS_SHOWN = 20


def summary(engine: Engine, run: RunSummary, gauges: Gauges, *, stopped: bool) -> RenderableType:
    """The whole summary."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _summary_lines(engine, run, gauges):
        grid.add_row(name, Text(value))
    ended = "stopped" if stopped else "ended"
    parts: list[RenderableType] = [
        Text(""),
        Text(f"{engine.plan.name} {ended} after {seconds(run.seconds)}", "bold"),
    ]
    if (text := warning(run, engine.state.path)) is not None:
        parts.append(Text(text, "bold red"))
    return Group(*parts, grid)


def warning(run: RunSummary, state: Path) -> str | None:
    """A warning if none of the records read could be used; None if some could."""
    if run.events or not (run.late or run.bad):
        return None
    parts = [f"{count:,} {what}" for count, what in ((run.bad, "dead"), (run.late, "late")) if count]
    why = _first_reason(state / ("dead" if run.bad else "late"))
    text = f"WARNING: none of the records read could be used: {' and '.join(parts)}"
    return f"{text}; the first: {why}" if why else text


def _first_reason(folder: Path) -> str | None:
    """The reason for the first dead letter or late event of the newest epoch, with its row; None if unknown."""
    try:
        latest = [
            {**row, "stream": stream.name}
            for stream in sorted(folder.iterdir(), reverse=True)
            for row in PrivateJsonLines(stream).latest_rows(_LATEST_ROWS)
        ]
        newest = max(row["epoch"] for row in latest)
        row = [row for row in latest if row["epoch"] == newest][-1]
        return f"{row['stream']}: {row['reason']}: {str(row['raw'])[:_SHOWN]}"
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        return None


def _summary_lines(engine: Engine, run: RunSummary, gauges: Gauges) -> list[tuple[str, str]]:
    """The lines, as (name, value)."""
    state = engine.state.path
    latency = gauges.latency(recent=False)
    total = run.counters.get("events", run.events)
    before = f" ({total:,} since the first start)" if total != run.events else ""
    epochs = "none" if gauges.last_epoch is None else f"{run.epochs}, the last is {gauges.last_epoch}"
    lines = [
        ("events", f"{run.events:,}{before}, {gauges.mean_rate():,.0f} a second"),
        ("epochs", epochs),
        (
            "latency",
            f"p50 {seconds(latency.p50)}, p99 {seconds(latency.p99)}" if latency else "no live events",
        ),
        ("left out", f"{run.late:,} late, {run.bad:,} dead"),
        *(
            [("skipped", f"silent or slow partitions, {run.skipped_partitions:,} times")]
            if run.skipped_partitions
            else []
        ),
    ]
    lines += result_lines(engine.plan)
    for count, folder, name in (
        (run.late, "late", "late events"),
        (run.bad, "dead", "dead letters"),
        (run.skipped_partitions, "leaped", "skipped spans"),
    ):
        if count or (state / folder).is_dir():
            lines.append((name, f"{state / folder}/"))
    lines += [
        ("state", f"{state}, {size(engine.state.manifests.latest().state_bytes())}"),
        ("Spark's log", str(state / "engine.log")),
        ("inspect", f"{program_name()} state ls {state}"),
    ]
    return lines


def result_lines(plan: Plan) -> list[tuple[str, str]]:
    """The sinks of the results: a line each, or how many there are."""
    sinks = [(output.name, sink) for output in plan.outputs.values() for sink in output.sinks]
    if len(sinks) > _SINKS_SHOWN:
        return [("results", f"in {len(sinks):,} sinks of {len({name for name, _ in sinks}):,} outputs")]
    return [(f"results {name}", sink.describe()) for name, sink in sinks]


def failed_jobs(catalogue: Catalogue) -> str:
    """The failed jobs with their errors, a line each; empty if there are none."""
    failed = [entry for entry in catalogue.jobs.values() if entry.master.life == "failed"]
    lines = [f"job {entry.name} has failed: {entry.master.error}" for entry in failed[:_FAILED_SHOWN]]
    if len(failed) > len(lines):
        lines.append(f"and {len(failed) - len(lines)} more; `penstock jobs list` shows all")
    return "\n".join(lines)
