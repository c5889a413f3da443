"""The live screen: figures above, the latest answers below, fitted to the terminal. Pure.

Receives gauges and a few facts; hands something rich can draw, never higher than the terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.service.figures import amount, clock, seconds, size, sparkline
from penstock.service.gauges import SHOWN_EPOCHS, Gauges

#: answers stand side by side from this width on
WIDE = 100
_HEAD_LINES = 8
_ANSWER_FRAME_LINES = 2


@dataclass(frozen=True)
class Facts:
    """What the screen shows beside the gauges."""

    name: str
    phase: str
    passed_seconds: float
    for_seconds: float | None
    backlog: dict[str, int]
    units: dict[str, str]
    target_seconds: float
    outputs: tuple[str, ...]


def screen(gauges: Gauges, facts: Facts, width: int, height: int) -> RenderableType:
    """Everything, for a terminal of this size."""
    parts: list[RenderableType] = [_title(gauges, facts, width), _figures(gauges, facts, width), Text("")]
    shown = [(name, gauges.answers[name]) for name in facts.outputs if name in gauges.answers]
    room = height - _HEAD_LINES
    if not shown:
        parts.append(Text("  the first answers come with the first closed window", style="dim"))
    elif width >= WIDE and len(shown) > 1:
        parts.append(_side_by_side(shown[:2], room))
    else:
        for name, rows in shown:
            fits = min(room - _ANSWER_FRAME_LINES, rows.height)
            if fits < 3 and fits < rows.height:
                break
            parts.append(answer(name, rows, fits))
            room -= fits + _ANSWER_FRAME_LINES
    parts.append(Text("Ctrl-C ends it; starting again goes on from there", style="dim"))
    return Group(*parts)


def _title(gauges: Gauges, facts: Facts, width: int) -> RenderableType:
    left = Text.assemble(("penstock ", "bold"), (facts.name, "bold cyan"))
    until = f" of {clock(facts.for_seconds)}" if facts.for_seconds is not None else ""
    epoch = "-" if gauges.last_epoch is None else f"{gauges.last_epoch:,}"
    right = Text.assemble(
        f"epoch {epoch}   ", (facts.phase, "green"), f" {clock(facts.passed_seconds)}{until}"
    )
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(left, right)
    return line


def _figures(gauges: Gauges, facts: Facts, width: int) -> RenderableType:
    bars = min(max(width - 54, 10), SHOWN_EPOCHS)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, width=8)
    grid.add_column(justify="right", no_wrap=True, min_width=16)
    grid.add_column(no_wrap=True, style="cyan", width=bars)
    grid.add_column(no_wrap=True, style="dim")
    latency = gauges.latency(recent=True)
    lengths = gauges.epoch_seconds()
    waiting = ", ".join(amount(count, facts.units[name]) for name, count in facts.backlog.items())
    grid.add_row(
        "rate",
        f"{gauges.rate():,.0f}/s",
        sparkline(gauges.epoch_events(), bars),
        f"{gauges.events:,} events",
    )
    if latency is not None:
        grid.add_row("latency", f"p50 {seconds(latency.p50)}", f"p99 {seconds(latency.p99)}", "to the sink")
    else:
        grid.add_row("latency", "-", "", "a replay of old events" if gauges.events else "")
    grid.add_row(
        "epochs",
        seconds(lengths[-1]) if lengths else "-",
        sparkline(lengths, bars),
        f"at most {seconds(facts.target_seconds)}",
    )
    aside = f"{gauges.late:,} late, {gauges.bad:,} dead"
    grid.add_row("state", size(gauges.state_bytes), "", aside)
    grid.add_row("backlog", waiting or "-", "", "")
    return grid


def _side_by_side(shown: list[tuple[str, pl.DataFrame]], room: int) -> RenderableType:
    pair = Table.grid(expand=True, padding=(0, 2))
    for _ in shown:
        pair.add_column(ratio=1)
    pair.add_row(*(answer(name, rows, min(room - _ANSWER_FRAME_LINES, rows.height)) for name, rows in shown))
    return pair


def answer(name: str, rows: pl.DataFrame, most: int) -> RenderableType:
    """An output's latest rows as a table without frame; its instant stands in the title."""
    instants = [n for n in ("as_of", "window_end") if n in rows.columns]
    when = f"  until {rows[instants[0]][0]:%H:%M:%S}" if instants and rows.height else ""
    shown = rows.drop("as_of", "window_start", "window_end", strict=False).head(most)
    table = Table(box=None, padding=(0, 1), title_justify="left", expand=True, header_style="dim")
    table.title = Text.assemble((name, "bold"), (when, "dim"))
    for column, dtype in shown.schema.items():
        number = dtype.is_numeric()
        table.add_column(
            escape("#" if column == "rank" else column),
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=None if number else 1,
        )
    for row in shown.iter_rows():
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> Text:
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(f"{value:.6g}" if isinstance(value, float) else str(value))
