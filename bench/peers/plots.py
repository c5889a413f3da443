"""Plots as SVG texts: bars beside each other on a logarithmic scale, and lines over two logarithmic axes.

Receives figures; hands text. The same figures give the same text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_INK, _GRID, _OURS, _THEIRS, _LIMIT = "#333", "#ddd", "#0b6e99", "#9aa5ad", "#d9b46c"
_COLOURS = (_OURS, "#c0504d", "#6a994e", "#7d5ba6", "#b07d2b")
_FONT = 'font-family="sans-serif" font-size="12"'


def bars(title: str, unit: str, values: Mapping[str, float], ours: str, limits: Sequence[str] = ()) -> str:
    """A bar for each name, the greatest first; `ours` and the `limits` in colours of their own."""
    ordered = sorted(values.items(), key=lambda item: -item[1])
    least, most = min(values.values()), max(values.values())
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most * 1.0001))
    low = low - 1 if high == low else low
    left, wide, step, top = 250, 420, 24, 40
    height = top + step * len(ordered) + 30

    def across(value: float) -> float:
        return left + wide * (math.log10(value) - low) / (high - low)

    parts = [f'<text x="10" y="20" font-weight="bold" fill="{_INK}">{escape(title)}</text>']
    for power in range(low, high + 1):
        x = across(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{top - 6}" x2="{x:.1f}" y2="{height - 24}" stroke="{_GRID}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" fill="{_INK}">{short(10.0**power)}</text>'
        )
    for at, (name, value) in enumerate(ordered):
        y = top + step * at
        colour = _OURS if name == ours else _LIMIT if name in limits else _THEIRS
        parts.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end" fill="{_INK}">{escape(name)}</text>'
        )
        long = max(1.0, across(value) - left)
        parts.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="{step - 7}" fill="{colour}"/>')
        parts.append(
            f'<text x="{across(value) + 6:.1f}" y="{y + 13}" fill="{_INK}">{short(value)} {escape(unit)}</text>'
        )
    return _svg(left + wide + 130, height, parts)


def curves(title: str, across: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line for each name over two logarithmic axes."""
    points = [point for line in lines.values() for point in line]
    left, top, wide, tall = 70, 40, 460, 260
    bounds = []
    for axis in (0, 1):
        logs = [math.log10(max(point[axis], 1e-9)) for point in points]
        low, high = min(logs), max(logs)
        rest = 0.05 if high > low else 0.5
        bounds.append((low - rest * max(1, high - low), high + rest * max(1, high - low)))

    def at(point: tuple[float, float]) -> tuple[float, float]:
        parts = [
            (math.log10(max(value, 1e-9)) - low) / (high - low)
            for value, (low, high) in zip(point, bounds, strict=True)
        ]
        return left + wide * parts[0], top + tall * (1 - parts[1])

    drawn = [f'<text x="10" y="20" font-weight="bold" fill="{_INK}">{escape(title)}</text>']
    for value in _ticks(*bounds[0]):
        x = at((value, 10 ** bounds[1][0]))[0]
        drawn.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + tall}" stroke="{_GRID}"/>')
        drawn.append(
            f'<text x="{x:.1f}" y="{top + tall + 16}" text-anchor="middle" fill="{_INK}">{short(value)}</text>'
        )
    for value in _ticks(*bounds[1]):
        y = at((10 ** bounds[0][0], value))[1]
        drawn.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + wide}" y2="{y:.1f}" stroke="{_GRID}"/>')
        drawn.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{_INK}">{short(value)}</text>'
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [at(point) for point in sorted(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        drawn.append(
            f'<text x="{left + wide + 10}" y="{top + 14 + 18 * number}" fill="{colour}">{escape(name)}</text>'
        )
    drawn.append(
        f'<text x="{left + wide / 2}" y="{top + tall + 34}" text-anchor="middle" fill="{_INK}">{escape(across)}</text>'
    )
    drawn.append(f'<text x="10" y="{top - 6}" fill="{_INK}">{escape(up)}</text>')
    return _svg(left + wide + 170, top + tall + 46, drawn)


def short(value: float) -> str:
    """A figure with three digits and a letter for thousands, millions and thousandths."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _ticks(low: float, high: float) -> list[float]:
    """Round values between two powers of ten: as few as tell the scale, three at least where there are so many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    found: list[float] = []
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), [n / 10 for n in range(10, 100)]):
        found = [
            step * 10.0**p for p in powers for step in steps if low <= math.log10(step * 10.0**p) <= high
        ]
        if len(found) > 2:
            break
    return found if len(found) < 12 else found[:: len(found) // 5]


def _svg(wide: float, tall: float, parts: Sequence[str]) -> str:
    size = f'width="{wide:.0f}" height="{tall:.0f}" viewBox="0 0 {wide:.0f} {tall:.0f}"'
    body = "\n".join(parts)
    white = f'<rect width="{wide:.0f}" height="{tall:.0f}" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_FONT}>\n{white}\n{body}\n</svg>\n'
