"""The summary after a run: what happened and where everything lies. Pure.

Receives what the engine and the gauges know; hands text.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.catalogue.catalogue import Catalogue
from penstock.cli.formatting import program, seconds, size
from penstock.engine.engine import Engine
from penstock.engine.gauges import Gauges
from penstock.epoch.run_summary import Run
from penstock.query.physical import Plan

#: characters shown of a row that was put aside
_SHOWN = 120
#: jobs that failed, of which the errors are shown at a start
_FAILED_SHOWN = 5
#: so many places of results are named each by itself
_SINKS_SHOWN = 20


def summary(engine: Engine, run: Run, gauges: Gauges, *, stopped: bool) -> RenderableType:
    """All of it, as rich draws it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows(engine, run, gauges):
        grid.add_row(name, Text(value))
    ended = "stopped" if stopped else "ended"
    told: list[RenderableType] = [
        Text(""),
        Text(f"{engine.plan.name} {ended} after {seconds(run.seconds)}", "bold"),
    ]
    if (nothing := warning(run, engine.state.path)) is not None:
        told.append(Text(nothing, "bold red"))
    return Group(*told, grid)


def warning(run: Run, state: Path) -> str | None:
    """What to say if nothing of what was read could be used; None if something was."""
    if run.events or not (run.late or run.bad):
        return None
    parts = [f"{count:,} {what}" for count, what in ((run.bad, "dead"), (run.late, "late")) if count]
    why = first_reason(state / ("dead" if run.bad else "late"))
    told = f"WARNING: nothing that was read could be used: {' and '.join(parts)}"
    return f"{told}; the first: {why}" if why else told


def first_reason(folder: Path) -> str | None:
    """Why the first row of the newest epoch was put aside, with its beginning; None if that is not known."""
    files = sorted(folder.glob("*/epoch-*.jsonl"), key=lambda file: (file.name, file.parent.name))
    newest = [file for file in files if file.name == files[-1].name]
    try:
        with newest[0].open() as lines:
            row = json.loads(lines.readline())
        return f"{newest[0].parent.name}: {row['reason']}: {str(row['raw'])[:_SHOWN]}"
    except (IndexError, OSError, ValueError, KeyError, TypeError):
        return None


def rows(engine: Engine, run: Run, gauges: Gauges) -> list[tuple[str, str]]:
    """The lines, as (what, value)."""
    state = engine.state.path
    latency = gauges.latency(recent=False)
    total = run.counters.get("events", run.events)
    before = f" ({total:,} since the beginning)" if total != run.events else ""
    epochs = "none" if gauges.last_epoch is None else f"{run.epochs}, the last is {gauges.last_epoch}"
    told = [
        ("events", f"{run.events:,}{before}, {gauges.mean_rate():,.0f} a second"),
        ("epochs", epochs),
        (
            "latency",
            f"p50 {seconds(latency.p50)}, p99 {seconds(latency.p99)}" if latency else "no live events",
        ),
        ("put aside", f"{run.late:,} late, {run.bad:,} dead"),
        *([("passed over", f"silent partitions or beginnings, {run.leaped:,} times")] if run.leaped else []),
    ]
    told += places(engine.plan)
    for count, folder, name in (
        (run.late, "late", "late events"),
        (run.bad, "dead", "dead letters"),
        (run.leaped, "leaped", "passed over"),
    ):
        if count or (state / folder).is_dir():
            told.append((name, f"{state / folder}/"))
    told += [
        ("state", f"{state}, {size(engine.state.manifests.latest().state_bytes())}"),
        ("Spark's log", str(state / "engine.log")),
        ("look", f"{program()} state ls {state}"),
    ]
    return told


def places(plan: Plan) -> list[tuple[str, str]]:
    """Where results lie: a line each, or how many they are."""
    sinks = [(output.name, sink) for output in plan.outputs.values() for sink in output.sinks]
    if len(sinks) > _SINKS_SHOWN:
        return [("results", f"in {len(sinks):,} sinks of {len({name for name, _ in sinks}):,} outputs")]
    return [(f"results {name}", sink.describe()) for name, sink in sinks]


def failed_jobs(catalogue: Catalogue) -> str:
    """The jobs that do not run because they failed, a line each; empty when there are none."""
    failed = [entry for entry in catalogue.jobs.values() if entry.master.life == "failed"]
    lines = [f"job {entry.name} has failed: {entry.master.error}" for entry in failed[:_FAILED_SHOWN]]
    if len(failed) > len(lines):
        lines.append(f"and {len(failed) - len(lines)} more; `penstock jobs list` has all")
    return "\n".join(lines)
