"""`penstock status`: shows a running engine or an HA unit, once or every second."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.ha import status as unit_status
from penstock.cli.jobs import State as RunningState
from penstock.cli.unit_tables import describe_count, job_lines
from penstock.engine.job_client import running_state
from penstock.engine.status import DeliveryStatus, ElasticStatus, EngineStatus, PeriodStatus, RecoveryStatus
from penstock.formatting import clock, seconds, size, sparkline
from penstock.scaling.decisions import describe
from penstock.server.status_client import request_metrics, request_status
from penstock.state.directory import SHARED

#: how often --watch requests the status
_WATCH_SECONDS = 1.0
#: characters of the sparkline of work by bucket, on a wide terminal and on a narrow one
_WIDE_SPARKLINE, _NARROW_SPARKLINE = 32, 12
#: columns of a wide terminal
_WIDE = 110
#: measurements older than this are shown with their age
_OLD_SECONDS = 5.0
#: a sink that lacks rows for so long is shown as behind
_LAG_SECONDS = 1.0
_UNKNOWN = "–"
_LEFT = ("stage", "executor", "buckets", "decision", "why", "outcome", "")
#: columns whose texts may wrap; the others never do
_WRAPPED = ("stage", "decision", "why", "outcome")


def status(
    state: RunningState = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update every second until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print all metrics for Prometheus.")] = False,
) -> None:
    """Show a running engine or HA unit.

    Of an engine: stages, executors, backlog, scaling decisions. Of a unit: its engines and past recoveries.
    """
    place, console = running_state(state, "status"), Console(highlight=False)
    if (place / SHARED / "unit.json").exists():
        unit_status(place, as_json, metrics)
        return
    if metrics:
        console.print(Text(request_metrics(place)), soft_wrap=True, end="")
        return
    if as_json:
        console.print_json(json.dumps(request_status(place).to_json()))
        return
    if not watch:
        request_status(place)  # the first request starts the period that the second one reports
        time.sleep(_WATCH_SECONDS)
        console.print(draw_status(request_status(place), console.width))
        return
    try:
        while not console.is_interactive:  # a pipe or a dumb terminal, where nothing can be drawn over
            time.sleep(_WATCH_SECONDS)
            console.print(draw_status(request_status(place), console.width))
        with Live(
            draw_status(request_status(place), console.width), console=console, auto_refresh=False
        ) as live:
            while True:
                time.sleep(_WATCH_SECONDS)
                live.update(draw_status(request_status(place), console.width), refresh=True)
    except KeyboardInterrupt:
        return


def draw_status(status: EngineStatus, width: int = 80) -> RenderableType:
    """A status as tables, for a terminal of this width."""
    epoch = f"epoch {status.epoch:,}" if status.epoch >= 0 else "no epoch yet"
    head = Text.assemble(
        ("penstock ", "bold"),
        (status.name, "bold cyan"),
        f"  {epoch}  {status.master}  pid {status.pid}",
    )
    parts: list[RenderableType] = [head]
    if (period := status.measured) is not None:
        places = _WIDE_SPARKLINE if width >= _WIDE else _NARROW_SPARKLINE
        parts += [_describe_epochs(period, status.backlog), Text(""), _stages(period, places), Text("")]
        parts.append(_executors(period, status.elastic))
    parts += [
        Text(f"the wall clock is {seconds(behind)} behind the events of {stream}: set it", style="bold red")
        for stream, behind in status.clock_behind_seconds.items()
    ]
    if (outage := status.outage) is not None:
        text = f"waits to {outage.step} for {seconds(outage.seconds)}, {outage.failures} failures: {outage.error}"
        parts.append(Text(text, style="bold red"))
    parts += [
        Text(_describe_lag(one), style="bold red" if one.error else "yellow") for one in _lagging(status)
    ]
    if status.recovery is not None:
        parts.append(Text(_describe_recovery(status.recovery), style="dim"))
        parts += [Text(f"  {line}", style="dim") for line in job_lines(status.recovery.jobs)]
    if status.elastic is not None:
        parts += [Text(""), _decisions(status.elastic)]
    return Group(*parts)


def _lagging(status: EngineStatus) -> list[DeliveryStatus]:
    """The sinks that are away, or more than a moment behind."""
    return [one for one in status.deliveries if one.error or one.seconds >= _LAG_SECONDS]


def _describe_lag(one: DeliveryStatus) -> str:
    text = f"job {one.job}: {one.sink} lacks {one.epochs:,} epochs after {one.cursor}, for {seconds(one.seconds)}"
    if not one.error:
        return text
    return f"{text}: {one.error}" if one.silent_seconds else f"{text}; {one.failures} failures: {one.error}"


def _describe_recovery(recovery: RecoveryStatus) -> str:
    """What the last recovery repeated or lost of the epochs that were not durable."""
    counts = [f"{describe_count(name)} {value:,.0f}" for name, value in recovery.counts.items()]
    text = ", ".join(counts) or "nothing lost or repeated so far"
    return f"recovered ({recovery.semantics}): {text}{'' if recovery.is_over else ', still under way'}"


def _describe_epochs(period: PeriodStatus, backlog: Mapping[str, int]) -> RenderableType:
    took = f"epochs of {seconds(period.epoch_seconds)}" if period.epoch_seconds else "no recent epoch"
    waiting = ", ".join(f"{name} {units:,}" for name, units in backlog.items() if units)
    known = period.backlog_seconds
    work = "how long that takes is not known yet" if known is None else f"{seconds(known)} of work"
    behind = f"; waiting: {waiting} ({work})" if waiting else ""
    ago = period.measured_seconds_ago
    old = f"; measured {seconds(ago)} ago" if ago > _OLD_SECONDS else ""
    rates = f"{period.input_rate:,.0f} events/s arrive, {period.processing_rate:,.0f} are executed"
    return Text(f"{took}, target {seconds(period.epoch_target_seconds)}; {rates}{behind}{old}", style="dim")


def _stages(period: PeriodStatus, places: int) -> RenderableType:
    table = _table("stage", "used", "rows/s", "imbalance", "sent/s", "state", "buckets")
    for name, one in period.stages.items():
        bars = sparkline(_group_buckets(one.bucket_seconds, places), places)
        table.add_row(
            name,
            f"{one.utilisation:.0%}",
            f"{one.rows_per_second:,.0f}",
            f"{one.imbalance:.0%}" if one.bucket_map else "-",
            size(one.exchange_bytes),
            size(one.state_bytes),
            bars if any(one.bucket_seconds) else "",
        )
    return table


def _group_buckets(values: Sequence[float], places: int) -> list[float]:
    """The seconds of buckets, summed over neighbours so that they fit."""
    each = max(1, -(-len(values) // places))
    return [sum(values[at : at + each]) for at in range(0, len(values), each)]


def _executors(period: PeriodStatus, elastic: ElasticStatus | None) -> RenderableType:
    table = _table("executor", "cores", "CPU", "memory", "")
    notes: dict[str, str] = {}
    if elastic is not None:
        notes |= dict.fromkeys(elastic.rehearsing, "rehearses")
        notes |= dict.fromkeys(elastic.leaving, "leaves")
    for name, one in period.executors.items():
        cpu = _UNKNOWN if one.cpu is None else f"{one.cpu:.0%}"
        memory = f"{one.memory_bytes / 1e6:,.0f} MB" if one.memory_bytes else _UNKNOWN
        table.add_row(name, str(one.cores), cpu, memory, notes.get(name, ""))
    for name in period.spare:
        table.add_row(name, "", "", "", "spare")
    return table


def _decisions(elastic: ElasticStatus) -> RenderableType:
    lines = [Text(f"under way: {line}", style="yellow") for line in elastic.orders]
    lines += [Text(line, style="red") for line in elastic.deaths]
    if elastic.resting:
        lines.append(Text(f"no decisions now: {elastic.resting}", style="dim"))
    if not elastic.decisions:
        return Group(*lines, Text("no decisions so far", style="dim"))
    table = _table("ago", "decision", "why", "outcome")
    for one in elastic.decisions:
        entry, decision = one.entry, one.entry.decision
        outcome = f"{entry.outcome} ({entry.why})" if entry.why else str(entry.outcome)
        table.add_row(clock(one.seconds_ago), describe(decision), decision.reason, outcome)
    return Group(*lines, Text(""), table)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        justify: JustifyMethod = "left" if title in _LEFT else "right"
        table.add_column(title, justify=justify, no_wrap=title not in _WRAPPED, overflow="fold")
    return table
