"""Draws charts below each other as one SVG, without external references. Pure: equal numbers give equal text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from penstock.simulate import axis
from penstock.simulate.axis import Floats, Numbers, Scale
from penstock.simulate.chart import Bars, Chart, Curve, Curves, Lanes, Mark, Shares
from penstock.simulate.svg import draw_dot, draw_line, draw_rectangle, draw_text

_WIDE, _RIGHT, _TOP, _FOOT = 720.0, 22.0, 40.0, 12.0
_HEAD, _LEGEND_LINE, _AXIS, _AXIS_TITLE = 22.0, 15.0, 26.0, 14.0
_SOFT, _GRID, _BASE, _BAND = "#718096", "#e2e8f0", "#a0aec0", "#f7fafc"
_OURS, _THEIRS, _LIMIT = "#0b6e99", "#9aa5ad", "#d9b46c"
_COLOURS = (_OURS, "#c0504d", "#6a994e", "#7d5ba6", "#b07d2b")
#: a curve has about this many points at most; of each stretch the least and the greatest are drawn
_POINTS = 700
_LETTER = 6.1


@dataclass(frozen=True)
class _Area:
    """Where a chart's numbers are drawn."""

    left: float
    top: float
    high: float

    @property
    def right(self) -> float:
        return self.left + _WIDE

    @property
    def foot(self) -> float:
        return self.top + self.high

    def x(self, scale: Scale, values: Numbers) -> Floats:
        return self.left + _WIDE * scale.place(values)

    def y(self, scale: Scale, values: Numbers) -> Floats:
        return self.foot - self.high * scale.place(values)


def draw_sheet(title: str, charts: Sequence[Chart], marks: Sequence[Mark] = ()) -> str:
    """Draw the charts below each other; marks go through all of them, which must then share one time axis."""
    left = max(_left_margin(chart) for chart in charts)
    y = _TOP + (24 if marks else 0)
    first, foot, parts = y + _HEAD, y, []
    for chart in charts:
        drawn, foot = _draw_chart(chart, left, y)
        y = foot + _AXIS + (_AXIS_TITLE if getattr(chart, "x_title", "") else 0)
        parts += drawn
    width, height = left + _WIDE + _RIGHT, y + _FOOT
    marked = _draw_marks(marks, charts, left, first, foot)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="11">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            draw_text(left, 24, title, colour="#1a202c", size=15, bold=True),
            *marked,
            *parts,
            "</svg>\n",
        ]
    )


def bars(title: str, unit: str, values: Mapping[str, float], ours: str, limits: Sequence[str] = ()) -> str:
    """Draw a sheet with one bar for each name; `ours` and the `limits` in colours of their own."""
    colours = {name: _OURS if name == ours else _LIMIT if name in limits else _THEIRS for name in values}
    return draw_sheet(title, [Bars("", unit, values, colours)])


def curves(title: str, across: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw a sheet with one line for each name over two logarithmic axes."""
    at = sorted({x for line in lines.values() for x, _ in line})
    drawn = [
        Curve(name, [dict(line).get(x, math.nan) for x in at], _COLOURS[number % len(_COLOURS)], dots=True)
        for number, (name, line) in enumerate(lines.items())
    ]
    return draw_sheet(title, [Curves(up, at, drawn, x_title=across, logarithmic=True, high=260)])


short = axis.shorten


# ---------------------------------------------------------------- the frame of a chart


def _left_margin(chart: Chart) -> float:
    """The space for the names at the left of a chart."""
    if isinstance(chart, Lanes | Bars):
        names = chart.names if isinstance(chart, Lanes) else chart.values
        return 16 + _LETTER * max(map(len, names))
    return 66.0


def _draw_chart(chart: Chart, left: float, y: float) -> tuple[list[str], float]:
    """Draw a chart whose head starts at y; returns also where it ends."""
    parts = [draw_text(left, y + 14, chart.title, bold=True)] if chart.title else []
    top = y + _HEAD
    for line in _wrap(_legend_of(chart)):
        parts += _draw_legend(line, left, top + 8)
        top += _LEGEND_LINE
    high = 24.0 * len(chart.values) if isinstance(chart, Bars) else chart.high
    area = _Area(left, top + (5 if top > y + _HEAD else 0), high)
    match chart:
        case Curves():
            parts += _draw_curves(chart, area)
        case Lanes():
            parts += _draw_lanes(chart, area)
        case Shares():
            parts += _draw_shares(chart, area)
        case Bars():
            parts += _draw_bars(chart, area)
    return parts, area.foot


def _legend_of(chart: Chart) -> list[tuple[str, str, str]]:
    """(kind, name, colour) of every entry of the legend; a single one needs no legend."""
    if isinstance(chart, Curves):
        lines = [("dashed" if c.dashed else "line", c.name, c.colour) for c in chart.curves if c.name]
        dots = [("dot", name, colour) for name, colour in dict.fromkeys((d[2], d[3]) for d in chart.dots)]
        return lines + dots if len(lines) + len(dots) > 1 else []
    if isinstance(chart, Shares):
        return [("box", name, colour) for name, colour, _ in chart.parts] if chart.legend else []
    return []


def _wrap(names: list[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    """Wrap the names of a legend into lines."""
    lines: list[list[tuple[str, str, str]]] = []
    room = 0.0
    for name in names:
        if not lines or room < _name_width(name[1]):
            lines.append([])
            room = _WIDE
        lines[-1].append(name)
        room -= _name_width(name[1])
    return lines


def _name_width(name: str) -> float:
    return 38 + _LETTER * len(name)


def _draw_legend(names: list[tuple[str, str, str]], x: float, y: float) -> list[str]:
    parts = []
    for kind, name, colour in names:
        if kind == "box":
            parts.append(draw_rectangle(x, y - 8, 12, 10, colour))
        elif kind == "dot":
            parts.append(draw_dot(x + 6, y - 3, colour, 3.5))
        elif kind == "mark":
            parts.append(draw_line(x + 8, y - 9, x + 8, y + 3, colour, width=2))
        else:
            parts.append(
                draw_line(x, y - 3, x + 16, y - 3, colour, width=2, dash="5 3" if kind == "dashed" else "")
            )
        parts.append(draw_text(x + 20, y, name))
        x += _name_width(name)
    return parts


def _draw_marks(
    marks: Sequence[Mark], charts: Sequence[Chart], left: float, top: float, foot: float
) -> list[str]:
    if not marks:
        return []
    counts: dict[tuple[str, str], int] = {}
    for mark in marks:
        counts[mark.kind, mark.colour] = counts.get((mark.kind, mark.colour), 0) + 1
    names = [
        ("mark", f"{kind}, {count} times" if count > 1 else kind, colour)
        for (kind, colour), count in counts.items()
    ]
    parts = _draw_legend(names, left, 50)
    timed = next(chart for chart in charts if isinstance(chart, Curves) and chart.clock)
    scale = axis.scale_time(float(timed.at[-1]))
    for mark in marks:
        x = left + _WIDE * float(scale.place([mark.at])[0])
        line = draw_line(x, top, x, foot, mark.colour, width=1.2, opacity=0.55)
        parts.append(f"<g><title>{escape(mark.text)}</title>{line}</g>")
    return parts


def _draw_x_axis(scale: Scale, area: _Area, title: str, grid: bool) -> list[str]:
    parts = []
    for at, shown in scale.ticks:
        x = float(area.x(scale, [at])[0])
        if grid:
            parts.append(draw_line(x, area.top, x, area.foot, _GRID, opacity=0.6))
        parts.append(draw_line(x, area.foot, x, area.foot + 4, _BASE))
        parts.append(draw_text(x, area.foot + 15, shown, anchor="middle", colour=_SOFT))
    if title:
        parts.append(draw_text(area.right, area.foot + 29, title, anchor="end", colour=_SOFT))
    return parts


def _draw_y_axis(scale: Scale, area: _Area) -> list[str]:
    parts = []
    for at, shown in scale.ticks:
        y = float(area.y(scale, [at])[0])
        parts.append(draw_line(area.left, y, area.right, y, _BASE if at == 0 else _GRID))
        parts.append(draw_text(area.left - 8, y + 4, shown, anchor="end", colour=_SOFT))
    return parts


# ---------------------------------------------------------------- kinds of charts


def _draw_curves(chart: Curves, area: _Area) -> list[str]:
    lines = [(curve, np.asarray(curve.values, dtype=np.float64)) for curve in chart.curves]
    numbers = [value for _, values in lines for value in values[np.isfinite(values)].tolist()]
    numbers += [level for _, level in chart.levels] + [dot[1] for dot in chart.dots]
    if chart.logarithmic:
        across = axis.scale_logarithmically([float(at) for at in chart.at])
        up = axis.scale_logarithmically(numbers)
    else:
        scale = axis.scale_evenly if chart.even else axis.scale_numbers
        across = axis.scale_time(float(chart.at[-1])) if chart.clock else scale(chart.at)
        up = axis.scale_values(numbers, percent=chart.percent, most=chart.most)
    parts = _draw_x_axis(across, area, chart.x_title, grid=chart.clock or chart.logarithmic)
    parts += _draw_y_axis(up, area)
    heights = [(level, float(area.y(up, [value])[0])) for level, value in chart.levels]
    parts += [draw_line(area.left, y, area.right, y, chart.level_colour, dash="4 3") for _, y in heights]
    xs = area.x(across, chart.at)
    for curve, values in lines:
        ys = area.y(up, values)
        dash = ' stroke-dasharray="5 3"' if curve.dashed else ""
        parts.append(
            f'<path d="{_path(xs, ys, curve.steps)}" fill="none" stroke="{curve.colour}" '
            f'stroke-width="{1.6 if values.size <= 4 * _POINTS else 1.0}" stroke-linejoin="round"{dash}/>'
        )
        if curve.dots:
            parts += [draw_dot(x, y, curve.colour, 2.6) for x, y in zip(xs, ys, strict=True) if y == y]
    for name, y in heights:
        # a white shadow first, so that it is readable where it crosses a line
        text = draw_text(area.right - 4, y - 3, name, anchor="end", colour=chart.level_colour, size=10)
        parts += [
            text.replace(f'fill="{chart.level_colour}"', 'fill="white" stroke="white" stroke-width="3"'),
            text,
        ]
    for where, value, _, colour in chart.dots:
        parts.append(draw_dot(float(area.x(across, [where])[0]), float(area.y(up, [value])[0]), colour, 3.2))
    return parts


def _path(xs: Floats, ys: Floats, steps: bool) -> str:
    chosen = _thin_out(ys)
    path, before = "", math.nan
    for x, y in zip(xs[chosen].tolist(), ys[chosen].tolist(), strict=True):
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


def _thin_out(values: Floats) -> npt.NDArray[np.int64]:
    """Thin out points: keep the least and the greatest of every stretch, in their order, and gaps."""
    stretch = math.ceil(2 * values.size / _POINTS)
    if stretch <= 2:
        return np.arange(values.size)
    chosen: list[int] = []
    for start in range(0, values.size, stretch):
        part = values[start : start + stretch]
        known = np.isfinite(part)
        places = {int(known.argmin())} if not known.all() else set()
        if known.any():
            places |= {int(np.nanargmin(part)), int(np.nanargmax(part))}
        chosen += sorted(start + place for place in places)
    return np.array(chosen)


def _draw_lanes(chart: Lanes, area: _Area) -> list[str]:
    scale = axis.scale_time(float(chart.at[-1]))
    lane = area.high / len(chart.names)
    parts = []
    for place, name in enumerate(chart.names):
        y = area.top + place * lane
        if place % 2 == 0:
            parts.append(draw_rectangle(area.left, y, _WIDE, lane, _BAND))
        parts.append(draw_text(area.left - 8, y + lane / 2 + 4, name, anchor="end", colour=_SOFT, size=10))
    parts += _draw_x_axis(scale, area, "", grid=True)
    places = np.asarray(chart.places).astype(int)
    starts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist()]
    xs = [*area.x(scale, chart.at).tolist(), area.right]
    for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
        y = area.top + places[start] * lane
        width = max(xs[end] - xs[start], 1.0)
        parts.append(
            draw_rectangle(xs[start], y + 3, width, lane - 6, chart.colours[places[start]], opacity=0.85)
        )
    for at, colour in chart.dots:
        here = places[min(int(np.searchsorted(chart.at, at, side="right")) - 1, len(places) - 1)]
        parts.append(draw_dot(float(area.x(scale, [at])[0]), area.top + (here + 0.5) * lane, colour, 3.2))
    return parts


def _draw_shares(chart: Shares, area: _Area) -> list[str]:
    parts = _draw_y_axis(axis.scale_values([], percent=True, most=1.0), area)
    wide = _WIDE / len(chart.labels)
    for place, label in enumerate(chart.labels):
        x, foot = area.left + place * wide, area.foot
        for _, colour, values in chart.parts:
            high = area.high * values[place]
            foot -= high
            if high > 0.05:
                parts.append(draw_rectangle(x + wide * 0.12, foot, wide * 0.76, high, colour))
        parts.append(draw_text(x + wide / 2, area.foot + 15, label, anchor="middle", colour=_SOFT))
    if chart.x_title:
        parts.append(draw_text(area.right, area.foot + 29, chart.x_title, anchor="end", colour=_SOFT))
    return parts


def _draw_bars(chart: Bars, area: _Area) -> list[str]:
    scale = axis.scale_decades([*chart.values.values()])
    room = 20 + _LETTER * (5 + len(chart.unit))
    share = 1 - room / _WIDE  # the number of the greatest bar is beside it
    parts = []
    for at, shown in scale.ticks:
        x = area.left + share * (float(area.x(scale, [at])[0]) - area.left)
        parts.append(draw_line(x, area.top - 6, x, area.foot, _GRID))
        parts.append(draw_text(x, area.foot + 15, shown, anchor="middle", colour=_SOFT))
    for place, (name, value) in enumerate(sorted(chart.values.items(), key=lambda item: -item[1])):
        y = area.top + 24 * place
        width = max(1.0, share * (float(area.x(scale, [value])[0]) - area.left))
        parts.append(draw_text(area.left - 8, y + 13, name, anchor="end"))
        parts.append(draw_rectangle(area.left, y, width, 17, chart.colours[name]))
        parts.append(draw_text(area.left + width + 6, y + 13, f"{axis.shorten(value)} {chart.unit}"))
    return parts
