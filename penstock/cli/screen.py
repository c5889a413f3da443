"""Draws the live screen of a run: figures above, the latest results below, never higher than the terminal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.engine.gauges import SHOWN_EPOCHS, Gauges
from penstock.formatting import amount, clock, printable, seconds, size, sparkline

#: columns that the title of a result shows instead
INSTANTS = ("as_of", "window_start", "window_end")
_HEAD_LINES = 8
_RESULT_FRAME_LINES = 2


@dataclass(frozen=True)
class Facts:
    """What the screen shows besides the gauges."""

    name: str
    phase: str
    elapsed_seconds: float
    for_seconds: float | None
    backlog: dict[str, int]
    units: dict[str, str]
    target_seconds: float
    outputs: tuple[str, ...]


def draw_screen(gauges: Gauges, facts: Facts, width: int, height: int) -> RenderableType:
    """The whole screen, for a terminal of this size."""
    parts: list[RenderableType] = [_title(gauges, facts, width), _figures(gauges, facts, width), Text("")]
    shown = [(name, gauges.results[name]) for name in facts.outputs if name in gauges.results]
    room = height - _HEAD_LINES
    if not shown:
        awaited_event = "the first window to close" if gauges.epochs else "Spark to plan the first epoch"
        parts.append(Text(f"  waiting for {awaited_event}", style="dim"))
    elif len(shown) == 2 and sum(_width(*pair) for pair in shown) + 4 <= width:
        parts.append(_side_by_side(shown, room))
    else:
        for name, rows in shown:
            fits = min(room - _RESULT_FRAME_LINES, rows.height)
            if fits < 3 and fits < rows.height:
                break
            parts.append(result_table(name, rows, fits))
            room -= fits + _RESULT_FRAME_LINES
    parts.append(Text("Ctrl-C stops it; the next start continues from there", style="dim"))
    return Group(*parts)


def _title(gauges: Gauges, facts: Facts, width: int) -> RenderableType:
    left = Text.assemble(("penstock ", "bold"), (facts.name, "bold cyan"))
    until = f" of {clock(facts.for_seconds)}" if facts.for_seconds is not None else ""
    epoch = "-" if gauges.last_epoch is None else f"{gauges.last_epoch:,}"
    right = Text.assemble(
        f"epoch {epoch}   ", (facts.phase, "green"), f" {clock(facts.elapsed_seconds)}{until}"
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
    several = len(facts.backlog) > 1
    waiting = ", ".join(
        f"{name} {amount(count, facts.units[name])}" if several else amount(count, facts.units[name])
        for name, count in facts.backlog.items()
    )
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
    dropped = f"{gauges.late:,} late, {gauges.dead_letters:,} dead"
    grid.add_row("state", size(gauges.state_bytes), "", dropped)
    grid.add_row("backlog", waiting or "-", "", "")
    return grid


def _side_by_side(shown: list[tuple[str, pl.DataFrame]], room: int) -> RenderableType:
    pair = Table.grid(expand=True, padding=(0, 2))
    for name, rows in shown:
        pair.add_column(ratio=_width(name, rows))
    pair.add_row(
        *(result_table(name, rows, min(room - _RESULT_FRAME_LINES, rows.height)) for name, rows in shown)
    )
    return pair


def _width(title: str, rows: pl.DataFrame) -> int:
    """The width that a result needs."""
    shown = rows.drop(INSTANTS, strict=False)
    cells = [max(len(name), *(len(_cell(value)) for value in shown[name])) for name in shown.columns]
    return max(sum(cells) + 2 * len(cells), len(title) + len(_time_of(rows)))


def result_table(name: str, rows: pl.DataFrame, most: int) -> RenderableType:
    """The latest rows of an output as a table without frame, with their time in the title."""
    shown = rows.drop(INSTANTS, strict=False).head(most)
    table = Table(box=None, padding=(0, 1), title_justify="left", expand=True, header_style="dim")
    table.title = Text.assemble((name, "bold"), (_time_of(rows), "dim"))
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


def _time_of(rows: pl.DataFrame) -> str:
    """The event time of a result, in UTC, with the date unless that is today."""
    instants = [rows[n][0] for n in ("as_of", "window_end") if n in rows.columns and rows.height]
    if not instants or not isinstance(instants[0], datetime):
        return ""
    today = datetime.now(UTC).date() == instants[0].date()
    return f"  until {instants[0]:{'%H:%M:%S' if today else '%Y-%m-%d %H:%M:%S'}}Z"


def _cell(value: object) -> Text:
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(f"{value:.6g}" if isinstance(value, float) else printable(str(value)))
