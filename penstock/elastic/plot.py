"""Lines over time as one SVG: panels below each other with a common time axis, and marks through all of them. Pure.

Receives `Panel`s of numbers and `Mark`s; hands SVG text with no outside references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from penstock.elastic.measurements import Floats
from penstock.words import axis

WIDE, HIGH, GAP = 760, 118, 26
LEFT, RIGHT, TOP, BOTTOM = 66, 20, 86, 44
#: a line has about this many points at most; of each stretch its least and its greatest are drawn
POINTS = 700


@dataclass(frozen=True, eq=False)
class Line:
    """One line: its name, its values, its colour."""

    name: str
    values: Floats
    colour: str
    dashed: bool = False
    #: stays until it changes, instead of going straight to the next value
    steps: bool = False


@dataclass(frozen=True)
class Panel:
    """A chart: its title with the unit, its lines, and levels drawn across it."""

    title: str
    lines: Sequence[Line]
    levels: Sequence[tuple[str, float]] = ()
    percent: bool = False
    most: float | None = None


@dataclass(frozen=True)
class Mark:
    """Something that happened at an instant."""

    at: float
    kind: str
    colour: str
    text: str


def plotted(title: str, at: Floats, panels: Sequence[Panel], marks: Sequence[Mark] = ()) -> str:
    """The panels as one picture."""
    height = TOP + len(panels) * (HIGH + GAP) - GAP + BOTTOM
    width = LEFT + WIDE + RIGHT
    first, last = 0.0, float(at[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600" fill="#1a202c">{escape(title)}</text>',
        *_legend(marks),
    ]
    foot = height - BOTTOM
    for instant in axis.instants(last):
        x = _x(instant, first, last)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{foot}" stroke="#edf2f7"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{foot + 18}" text-anchor="middle" fill="#718096">{axis.clock(instant)}</text>'
        )
    parts.append(
        f'<text x="{LEFT + WIDE}" y="{foot + 34}" text-anchor="end" fill="#718096">time, {_time_unit(last)}</text>'
    )
    for mark in marks:
        x = _x(mark.at, first, last)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{foot}" stroke="{mark.colour}" stroke-width="1.2" '
            f'stroke-opacity="0.55"><title>{escape(mark.text)}</title></line>'
        )
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (HIGH + GAP), at, first, last)
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, y: int, at: Floats, first: float, last: float) -> list[str]:
    most = panel.most or max(
        [float(line.values.max(initial=0.0)) for line in panel.lines]
        + [level for _, level in panel.levels]
        + [1e-9]
    )
    ticks = axis.ticks(most)
    if panel.most is None and most > 0.97 * ticks[-1]:
        ticks.append(ticks[-1] + ticks[1])  # a line along the upper edge would be taken for the edge
    top = max(ticks[-1], most)
    parts = [
        f'<text x="{LEFT}" y="{y - 6}" fill="#4a5568" font-weight="600">{escape(panel.title)}</text>',
        *_names(panel.lines, y - 6),
    ]
    for tick in ticks:
        level = y + HIGH - HIGH * tick / top
        parts.append(
            f'<line x1="{LEFT}" y1="{level:.1f}" x2="{LEFT + WIDE}" y2="{level:.1f}" '
            f'stroke="{"#a0aec0" if tick == 0 else "#e2e8f0"}"/>'
        )
        told = f"{tick:.0%}" if panel.percent else axis.number(tick)
        parts.append(
            f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end" fill="#718096">{told}</text>'
        )
    for _, value in panel.levels:
        level = y + HIGH - HIGH * value / top
        parts.append(
            f'<line x1="{LEFT}" y1="{level:.1f}" x2="{LEFT + WIDE}" y2="{level:.1f}" stroke="#a0aec0" '
            f'stroke-dasharray="2 3"/>'
        )
    for line in panel.lines:
        dashed = ' stroke-dasharray="5 3"' if line.dashed else ""
        parts.append(
            f'<path d="{_path(line, at, first, last, y, top)}" fill="none" stroke="{line.colour}" '
            f'stroke-width="{1.5 if at.size <= 2 * POINTS else 1.0}" stroke-linejoin="round"{dashed}/>'
        )
    for name, value in panel.levels:
        # a white shadow first, so that it can be read where it crosses a line
        text = (
            f'<text x="{LEFT + WIDE - 4}" y="{y + HIGH - HIGH * value / top - 3:.1f}" text-anchor="end" '
            f'font-size="10"'
        )
        parts.append(f'{text} fill="white" stroke="white" stroke-width="3">{escape(name)}</text>')
        parts.append(f'{text} fill="#4a5568">{escape(name)}</text>')
    return parts


def _names(lines: Sequence[Line], y: int) -> list[str]:
    """What the lines are called, right above the panel; one alone needs no name."""
    parts, right = [], LEFT + WIDE
    for line in reversed(lines if len(lines) > 1 else ()):
        dashed = ' stroke-dasharray="5 3"' if line.dashed else ""
        parts.append(f'<text x="{right}" y="{y}" text-anchor="end" fill="#4a5568">{escape(line.name)}</text>')
        right -= 7 * len(line.name) + 6
        parts.append(
            f'<line x1="{right - 18}" y1="{y - 4}" x2="{right}" y2="{y - 4}" stroke="{line.colour}" '
            f'stroke-width="2"{dashed}/>'
        )
        right -= 34
    return parts


def _legend(marks: Sequence[Mark]) -> list[str]:
    parts, x = [], LEFT
    for kind, colour in dict.fromkeys((mark.kind, mark.colour) for mark in marks):
        count = sum(mark.kind == kind for mark in marks)
        told = f"{kind}, {count} times" if count > 1 else kind
        parts.append(f'<line x1="{x}" y1="40" x2="{x}" y2="52" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 7}" y="50" fill="#4a5568">{escape(told)}</text>')
        x += 7 * len(told) + 26
    return parts


def _path(line: Line, at: Floats, first: float, last: float, y: int, top: float) -> str:
    instants, values = _thinned(at, line.values)
    xs = LEFT + WIDE * (instants - first) / max(last - first, 1e-9)
    ys = y + HIGH - HIGH * np.clip(values, 0.0, top) / top
    path, before = "", None
    for px, py in zip(xs, ys, strict=True):
        if before is None:
            path = f"M{px:.1f},{py:.1f}"
        elif line.steps:
            path += f"H{px:.1f}" + (f"V{py:.1f}" if abs(py - before) > 0.05 else "")
        else:
            path += f"L{px:.1f},{py:.1f}"
        before = py
    return path


def _thinned(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Fewer points of the same look: of every stretch the least and the greatest, in their order."""
    stretch = math.ceil(2 * at.size / POINTS)
    if stretch <= 2:
        return at, values
    kept: list[int] = []
    for begin in range(0, at.size, stretch):
        part = values[begin : begin + stretch]
        kept += sorted({begin + int(part.argmin()), begin + int(part.argmax())})
    chosen = np.array(kept)
    return at[chosen], values[chosen]


def _x(instant: float, first: float, last: float) -> float:
    return LEFT + WIDE * (instant - first) / max(last - first, 1e-9)


def _time_unit(last: float) -> str:
    return "hours:minutes" if last > 120 else "seconds"
