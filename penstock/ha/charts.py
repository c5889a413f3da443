"""Charts as one SVG: curves over a number or over time, stacked shares, and lanes of what was so when. Pure.

Receives charts of plain numbers; hands SVG text with no outside references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from penstock.ha.loads import Floats
from penstock.words import axis

WIDE = 720.0
_LEFT, _RIGHT, _TOP, _FOOT = 122.0, 22.0, 40.0, 24.0
_HEAD, _LEGEND, _AXIS = 22.0, 20.0, 40.0
_INK, _SOFT, _GRID, _BASE = "#4a5568", "#718096", "#e2e8f0", "#a0aec0"
#: a curve has about this many points at most; of each stretch its least and its greatest are drawn
_POINTS = 700
_LETTER = 6.1


@dataclass(frozen=True)
class Curve:
    """A line through points; what is not a number is left out."""

    name: str
    values: Sequence[float]
    colour: str
    dashed: bool = False
    dots: bool = False
    steps: bool = False


@dataclass(frozen=True)
class Curves:
    """Curves over a common axis of numbers, or of seconds shown as time of day."""

    title: str
    at: Sequence[float]
    curves: Sequence[Curve]
    x_title: str = ""
    levels: Sequence[tuple[str, float]] = ()
    dots: Sequence[tuple[float, float, str, str]] = ()
    percent: bool = False
    clock: bool = False
    #: points lie the same way apart, each with its number below it
    even: bool = False
    high: float = 130.0


@dataclass(frozen=True)
class Lanes:
    """What was so when: a lane for each name, filled while it was."""

    title: str
    at: Sequence[float]
    #: place of the lane at every instant
    places: Sequence[float]
    names: Sequence[str]
    colours: Sequence[str]
    marks: Sequence[tuple[float, str]] = ()
    mark_name: str = ""
    high: float = 132.0


@dataclass(frozen=True)
class Shares:
    """Bars of parts that make a whole, one for each place."""

    title: str
    labels: Sequence[str]
    parts: Sequence[tuple[str, str, Sequence[float]]]
    x_title: str = ""
    legend: bool = True
    high: float = 150.0


Chart = Curves | Lanes | Shares


def sheet(title: str, charts: Sequence[Chart]) -> str:
    """The charts below each other."""
    parts: list[str] = []
    y = _TOP
    for chart in charts:
        drawn, y = _drawn(chart, y)
        parts += drawn
    width, height = _LEFT + WIDE + _RIGHT, y + _FOOT - 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="11">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            _text(_LEFT, 24, title, colour="#1a202c", size=15, bold=True),
            *parts,
            "</svg>\n",
        ]
    )


def _drawn(chart: Chart, y: float) -> tuple[list[str], float]:
    """A chart whose head begins at y, and where the next may begin."""
    parts = [_text(_LEFT, y + 14, chart.title, bold=True)]
    top = y + _HEAD
    names = _named(chart)
    if names:
        lines = _wrapped(names)
        for number, line in enumerate(lines):
            parts += _legend(line, top + 8 + 15 * number)
        top += _LEGEND + 15 * (len(lines) - 1)
    if isinstance(chart, Curves):
        parts += _curves(chart, top)
    elif isinstance(chart, Lanes):
        parts += _lanes(chart, top)
    else:
        parts += _shares(chart, top)
    foot = _AXIS if getattr(chart, "x_title", "") else _AXIS - 14
    return parts, top + chart.high + foot


def _named(chart: Chart) -> list[tuple[str, str, str]]:
    """(kind, name, colour) of everything that needs a word."""
    if isinstance(chart, Curves):
        lines = [("dashed" if c.dashed else "line", c.name, c.colour) for c in chart.curves if c.name]
        dots = [("dot", name, colour) for name, colour in dict.fromkeys((d[2], d[3]) for d in chart.dots)]
        return lines + dots if len(lines) + len(dots) > 1 else []
    if isinstance(chart, Shares):
        return [("box", name, colour) for name, colour, _ in chart.parts] if chart.legend else []
    marks = dict.fromkeys(colour for _, colour in chart.marks)
    return [("dot", chart.mark_name, colour) for colour in marks] if chart.mark_name else []


def _wrapped(names: list[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    """The names of a legend in as many lines as they need."""
    lines: list[list[tuple[str, str, str]]] = [[]]
    room = WIDE
    for name in names:
        if lines[-1] and room < _name_wide(name[1]):
            lines.append([])
            room = WIDE
        lines[-1].append(name)
        room -= _name_wide(name[1])
    return lines


def _name_wide(name: str) -> float:
    return 38 + _LETTER * len(name)


def _legend(names: list[tuple[str, str, str]], y: float) -> list[str]:
    parts, x = [], _LEFT
    for kind, name, colour in names:
        if kind == "box":
            parts.append(f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="12" height="10" fill="{colour}"/>')
        elif kind == "dot":
            parts.append(f'<circle cx="{x + 6:.1f}" cy="{y - 3:.1f}" r="3.5" fill="{colour}"/>')
        else:
            dash = ' stroke-dasharray="5 3"' if kind == "dashed" else ""
            parts.append(
                f'<line x1="{x:.1f}" y1="{y - 3:.1f}" x2="{x + 16:.1f}" y2="{y - 3:.1f}" stroke="{colour}" '
                f'stroke-width="2"{dash}/>'
            )
        parts.append(_text(x + 20, y, name))
        x += _name_wide(name)
    return parts


def _curves(chart: Curves, top: float) -> list[str]:
    at = np.asarray(chart.at, dtype=np.float64)
    curves = [(curve, np.asarray(curve.values, dtype=np.float64)) for curve in chart.curves]
    seen = [v for _, values in curves for v in values[np.isfinite(values)].tolist()]
    seen += [level for _, level in chart.levels] + [dot[1] for dot in chart.dots]
    ticks = axis.ticks(max([*seen, 1e-9]))
    most = ticks[-1]
    parts = []
    for tick in ticks:
        told = f"{tick:.0%}" if chart.percent else axis.number(tick)
        level = top + chart.high * (1 - tick / most)
        parts.append(_across(level, _BASE if tick == 0 else _GRID))
        parts.append(_text(_LEFT - 8, level + 4, told, anchor="end", colour=_SOFT))
    scale = _Scale(chart.at, chart.even)
    parts += _x_axis(scale, chart, top)
    for name, value in chart.levels:
        level = top + chart.high * (1 - value / most)
        parts.append(_across(level, "#c53030", dashed=True))
        parts.append(_text(_LEFT + WIDE - 4, level - 3, name, anchor="end", colour="#c53030", size=10))
    for curve, values in curves:
        places = scale.x(at)
        heights = top + chart.high * (1 - np.clip(values, 0, most) / most)
        dash = ' stroke-dasharray="5 3"' if curve.dashed else ""
        parts.append(
            f'<path d="{_path(places, heights, curve.steps)}" fill="none" stroke="{curve.colour}" '
            f'stroke-width="1.6" stroke-linejoin="round"{dash}/>'
        )
        if curve.dots:
            parts += [_dot(x, h, curve.colour, 2.6) for x, h in zip(places, heights, strict=True) if h == h]
    for where, value, _, colour in chart.dots:
        x = float(scale.x([where])[0])
        parts.append(_dot(x, top + chart.high * (1 - value / most), colour, 3.2))
    return parts


class _Scale:
    """Where a number lies across the chart."""

    def __init__(self, at: Sequence[float], even: bool) -> None:
        self._known = np.asarray(at, dtype=np.float64)
        self._places = np.linspace(0.0, 1.0, self._known.size)
        if not even:
            first, last = self._known[0], self._known[-1]
            self._places = (self._known - first) / max(float(last - first), 1e-9)

    def x(self, at: Sequence[float] | Floats) -> Floats:
        shares: Floats = np.interp(at, self._known, self._places).astype(np.float64)
        return _LEFT + WIDE * shares


def _x_axis(scale: _Scale, chart: Curves, top: float) -> list[str]:
    foot = top + chart.high
    if chart.clock:
        ticks = [(at, axis.clock(at)) for at in axis.instants(float(chart.at[-1]))]
    elif chart.even:
        ticks = [(at, axis.number(at)) for at in chart.at]
    else:
        ticks = [
            (at, axis.number(at))
            for at in axis.ticks(float(chart.at[-1]))
            if chart.at[0] <= at <= chart.at[-1]
        ]
    parts = []
    for at, told in ticks:
        x = float(scale.x([at])[0])
        parts.append(
            f'<line x1="{x:.1f}" y1="{foot:.1f}" x2="{x:.1f}" y2="{foot + 4:.1f}" stroke="{_BASE}"/>'
        )
        parts.append(_text(x, foot + 15, told, anchor="middle", colour=_SOFT))
    if chart.x_title:
        parts.append(_text(_LEFT + WIDE, foot + 29, chart.x_title, anchor="end", colour=_SOFT))
    return parts


def _path(places: Floats, heights: Floats, steps: bool) -> str:
    kept = _thinned(heights)
    path, before = "", math.nan
    for x, y in zip(places[kept].tolist(), heights[kept].tolist(), strict=True):
        if y != y:
            before = math.nan
            continue
        if before != before:
            path += f"M{x:.1f},{y:.1f}"
        elif steps:
            path += f"H{x:.1f}" + (f"V{y:.1f}" if abs(y - before) > 0.05 else "")
        else:
            path += f"L{x:.1f},{y:.1f}"
        before = y
    return path


def _thinned(values: Floats) -> npt.NDArray[np.int64]:
    """Fewer points of the same look: of every stretch the least and the greatest, in their order."""
    stretch = math.ceil(2 * values.size / _POINTS)
    if stretch <= 2:
        return np.arange(values.size)
    kept: list[int] = []
    for begin in range(0, values.size, stretch):
        part = values[begin : begin + stretch]
        kept += sorted({begin + int(part.argmin()), begin + int(part.argmax())})
    return np.array(kept)


def _lanes(chart: Lanes, top: float) -> list[str]:
    last = float(chart.at[-1]) or 1.0
    lane = chart.high / len(chart.names)
    parts = []
    for place, name in enumerate(chart.names):
        y = top + place * lane
        if place % 2 == 0:
            parts.append(f'<rect x="{_LEFT}" y="{y:.1f}" width="{WIDE}" height="{lane:.1f}" fill="#f7fafc"/>')
        parts.append(_text(_LEFT - 8, y + lane / 2 + 4, name, anchor="end", colour=_SOFT, size=10))
    places = np.asarray(chart.places).astype(int)
    begins = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
        x = _LEFT + WIDE * chart.at[begin] / last
        until = _LEFT + WIDE * (chart.at[end] if end < len(places) else last) / last
        y = top + places[begin] * lane
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 3:.1f}" width="{max(until - x, 1.0):.1f}" height="{lane - 6:.1f}" '
            f'fill="{chart.colours[places[begin]]}" fill-opacity="0.85"/>'
        )
    for at, colour in chart.marks:
        here = places[min(int(np.searchsorted(chart.at, at, side="right")) - 1, len(places) - 1)]
        parts.append(_dot(_LEFT + WIDE * at / last, top + (here + 0.5) * lane, colour, 3.2))
    frame = Curves("", [0.0, last], (), clock=True, high=chart.high)
    return parts + _x_axis(_Scale(frame.at, even=False), frame, top)


def _shares(chart: Shares, top: float) -> list[str]:
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = top + chart.high * (1 - tick)
        parts.append(_across(level, _BASE if tick == 0 else _GRID))
        parts.append(_text(_LEFT - 8, level + 4, f"{tick:.0%}", anchor="end", colour=_SOFT))
    wide = WIDE / len(chart.labels)
    for place, label in enumerate(chart.labels):
        x, foot = _LEFT + place * wide, top + chart.high
        for _, colour, values in chart.parts:
            high = chart.high * values[place]
            foot -= high
            if high > 0.05:
                parts.append(
                    f'<rect x="{x + wide * 0.12:.1f}" y="{foot:.1f}" width="{wide * 0.76:.1f}" '
                    f'height="{high:.1f}" fill="{colour}"/>'
                )
        parts.append(_text(x + wide / 2, top + chart.high + 15, label, anchor="middle", colour=_SOFT))
    if chart.x_title:
        parts.append(_text(_LEFT + WIDE, top + chart.high + 29, chart.x_title, anchor="end", colour=_SOFT))
    return parts


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    colour: str = _INK,
    size: int = 11,
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"{weight}>'
        f"{escape(text)}</text>"
    )


def _across(y: float, colour: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + WIDE}" y2="{y:.1f}" stroke="{colour}"{dash}/>'


def _dot(x: float, y: float, colour: str, radius: float) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" stroke="white" stroke-width="0.8"/>'
    )
