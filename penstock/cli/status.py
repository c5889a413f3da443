"""`penstock status`: how a running engine stands, once or again and again."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import clock, seconds, size, sparkline
from penstock.cli.jobs import State as RunningState
from penstock.cli.unit import status as unit_status
from penstock.cli.unit_tables import counted, of_jobs
from penstock.engine.job_client import running_state
from penstock.server.status_client import request_status
from penstock.state.directory import SHARED

#: how often a watched status is requested, in seconds
_AGAIN_SECONDS = 1.0
#: places of the line that shows how much each bucket works, where there is room and where there is not
_HEAT, _LITTLE_HEAT = 32, 12
#: a terminal with fewer columns has little room
_WIDE = 110
#: measurements older than this are told to be, in seconds
_OLD_SECONDS = 5.0
_UNKNOWN = "–"
_LEFT = ("sub-query", "executor", "buckets", "decided", "why", "outcome", "")
#: columns whose texts are broken into lines where there is no room; of others nothing is left out
_BROKEN = ("sub-query", "decided", "why", "outcome")


def status(
    state: RunningState = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, all figures.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="All metrics for Prometheus.")] = False,
) -> None:
    """Show what a running engine does: sub-queries, executors, backlog, buckets, decisions; or an HA unit's engines."""
    place, console = running_state(state, "status"), Console(highlight=False)
    if (place / SHARED / "unit.json").exists():
        unit_status(place, as_json, metrics)
        return
    if metrics:
        console.print(Text(str(request_status(place, "metrics"))), soft_wrap=True, end="")
        return
    if as_json:
        console.print_json(json.dumps(request_status(place)))
        return
    if not watch:
        request_status(place)  # the first question begins the period that the second one is told about
        time.sleep(_AGAIN_SECONDS)
        console.print(drawn(request_status(place), console.width))
        return
    try:
        while not console.is_interactive:  # a pipe or a dumb terminal, where nothing can be drawn over
            time.sleep(_AGAIN_SECONDS)
            console.print(drawn(request_status(place), console.width))
        with Live(drawn(request_status(place), console.width), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(_AGAIN_SECONDS)
                live.update(drawn(request_status(place), console.width), refresh=True)
    except KeyboardInterrupt:
        return


def drawn(said: dict[str, Any], width: int = 80) -> RenderableType:
    """A status as tables, for a terminal so wide."""
    epoch = f"epoch {said['epoch']:,}" if said["epoch"] >= 0 else "no epoch yet"
    head = Text.assemble(
        ("penstock ", "bold"),
        (said["name"], "bold cyan"),
        f"  {epoch}  {said['master']}  pid {said['pid']}",
    )
    parts: list[RenderableType] = [head]
    if "sub_queries" in said:
        heat = _HEAT if width >= _WIDE else _LITTLE_HEAT
        parts += [_lengths(said), Text(""), _sub_queries(said, heat), Text(""), _executors(said)]
    if "recovery" in said:
        parts.append(Text(_came_back(said["recovery"]), style="dim"))
        parts += [Text(f"  {line}", style="dim") for line in of_jobs(said["recovery"].get("jobs", {}))]
    if "elastic" in said:
        parts += [Text(""), _decisions(said["elastic"])]
    return Group(*parts)


def _came_back(said: dict[str, Any]) -> str:
    """What became of the epochs that the last life of the engine had not made durable."""
    apart = ("semantics", "over", "jobs")
    counts = [f"{counted(name)} {value:,.0f}" for name, value in said.items() if name not in apart]
    told = ", ".join(counts) or "nothing lost or repeated so far"
    return f"came back ({said['semantics']}): {told}{'' if said['over'] else ', and goes on'}"


def _lengths(said: dict[str, Any]) -> RenderableType:
    took = f"epochs of {seconds(said['epoch_seconds'])}" if said["epoch_seconds"] else "no epoch of late"
    waiting = ", ".join(f"{name} {units:,}" for name, units in said["backlog"].items() if units)
    known = said["backlog_seconds"]
    work = "how long that takes is not known yet" if known is None else f"{seconds(known)} of work"
    told = f"; waiting: {waiting} ({work})" if waiting else ""
    ago = said.get("measured_seconds_ago", 0.0)
    old = f"; measured {seconds(ago)} ago" if ago > _OLD_SECONDS else ""
    rates = f"{said['input_rate']:,.0f} events/s arrive, {said['processing_rate']:,.0f} are executed"
    return Text(f"{took}, {seconds(said['epoch_target_seconds'])} wanted; {rates}{told}{old}", style="dim")


def _sub_queries(said: dict[str, Any], places: int) -> RenderableType:
    table = _table("sub-query", "used", "rows/s", "imbalance", "sent/s", "state", "buckets")
    for name, one in said["sub_queries"].items():
        heat = sparkline(_heat(one["bucket_seconds"], places), places) if any(one["bucket_seconds"]) else ""
        table.add_row(
            name,
            f"{one['utilisation']:.0%}",
            f"{one['rows_per_second']:,.0f}",
            f"{one['imbalance']:.0%}" if one["bucket_map"] else "-",
            size(one["exchange_bytes"]),
            size(one["state_bytes"]),
            heat,
        )
    return table


def _heat(values: list[float], places: int) -> list[float]:
    """The seconds of buckets, neighbours together."""
    each = max(1, -(-len(values) // places))
    return [sum(values[at : at + each]) for at in range(0, len(values), each)]


def _executors(said: dict[str, Any]) -> RenderableType:
    table = _table("executor", "cores", "CPU", "memory", "")
    elastic = said.get("elastic", {})
    notes = dict.fromkeys(elastic.get("rehearsing", ()), "rehearses")
    notes |= dict.fromkeys(elastic.get("leaving", ()), "leaves")
    for name, one in said["executors"].items():
        cpu = _UNKNOWN if one["cpu"] is None else f"{one['cpu']:.0%}"
        memory = f"{one['memory_bytes'] / 1e6:,.0f} MB" if one["memory_bytes"] else _UNKNOWN
        table.add_row(name, str(one["cores"]), cpu, memory, notes.get(name, ""))
    for name in said["spare"]:
        table.add_row(name, "", "", "", "spare")
    return table


def _decisions(said: dict[str, Any]) -> RenderableType:
    lines = [Text(f"under way: {line}", style="yellow") for line in said["orders"]]
    lines += [Text(line, style="red") for line in said["deaths"]]
    if said["resting"]:
        lines.append(Text(f"nothing is changed: {said['resting']}", style="dim"))
    if not said["decisions"]:
        return Group(*lines, Text("nothing was decided so far", style="dim"))
    table = _table("ago", "decided", "why", "outcome")
    for one in said["decisions"]:
        outcome = one["outcome"] + (f" ({one['why']})" if one.get("why") else "")
        table.add_row(clock(one["seconds_ago"]), one["what"], one["reason"], outcome)
    return Group(*lines, Text(""), table)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        justify: JustifyMethod = "left" if title in _LEFT else "right"
        table.add_column(title, justify=justify, no_wrap=title not in _BROKEN, overflow="fold")
    return table
