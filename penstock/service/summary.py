"""The summary after a run: what happened, where everything lies, how to go on. Pure.

Receives what the engine and the gauges know; hands text.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.engine.engine import Engine, Run
from penstock.service.figures import program, seconds, size
from penstock.service.gauges import Gauges


def summary(engine: Engine, run: Run, gauges: Gauges, again: str, *, stopped: bool) -> RenderableType:
    """All of it, as rich draws it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows(engine, run, gauges, again):
        grid.add_row(name, Text(value))
    ended = "stopped" if stopped else "ended"
    return Group(Text(""), Text(f"{engine.plan.name} {ended} after {seconds(run.seconds)}", "bold"), grid)


def rows(engine: Engine, run: Run, gauges: Gauges, again: str) -> list[tuple[str, str]]:
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
    ]
    for output in engine.plan.outputs.values():
        told += [(f"results {output.name}", sink.describe()) for sink in output.sinks]
    for count, folder, name in ((run.late, "late", "late events"), (run.bad, "dead", "dead letters")):
        if count or (state / folder).is_dir():
            told.append((name, f"{state / folder}/"))
    told += [
        ("state", f"{state}, {size(engine.state.latest().state_bytes())}"),
        ("Spark's log", str(state / "engine.log")),
        ("go on", again),
        ("look", f"{program()} state ls {state}"),
    ]
    return told
