"""Computes the axes of a chart: the position of a number, and the round numbers for the ticks. Pure.

Receives the range of the numbers; returns a `Scale`, which turns numbers into shares (0..1) of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = Sequence[float] | Floats

_SECONDS = (10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 86400)
_MOST_INSTANTS = 12
#: the smallest number that a logarithmic axis shows
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Scale:
    """An axis: known numbers with their shares, linear in between, and the ticks with their labels."""

    known: Floats
    shares: Floats
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def place(self, values: Numbers) -> Floats:
        """The share of the axis of each value; a value outside lies at the end, NaN stays NaN."""
        numbers = np.asarray(values, dtype=np.float64)
        if self.logarithmic:
            numbers = np.log10(np.maximum(numbers, _LEAST))
        shares: Floats = np.interp(numbers, self.known, self.shares)
        return shares


def scale_values(values: Sequence[float], *, percent: bool = False, most: float | None = None) -> Scale:
    """From 0 to a round number that is at least the greatest value; `most` fixes what the axis must reach."""
    greatest = most or max([*values, _LEAST])
    ticks = round_numbers(greatest)
    if most is None and not percent and greatest > 0.97 * ticks[-1]:
        ticks.append(ticks[-1] + ticks[1])  # a line along the upper edge would look like the edge
    shown = tuple((tick, f"{tick:.0%}" if percent else show_number(tick)) for tick in ticks)
    return Scale(np.array([0.0, max(ticks[-1], greatest)]), np.array([0.0, 1.0]), shown)


def scale_numbers(numbers: Numbers) -> Scale:
    """From the first number to the last."""
    first, last = float(numbers[0]), float(numbers[-1])
    shown = tuple((tick, show_number(tick)) for tick in round_numbers(last) if first <= tick <= last)
    return Scale(np.array([first, max(last, first + _LEAST)]), np.array([0.0, 1.0]), shown)


def scale_evenly(numbers: Numbers) -> Scale:
    """The numbers at equal distances, each shown."""
    known = np.asarray(numbers, dtype=np.float64)
    shown = tuple((float(number), show_number(number)) for number in known.tolist())
    return Scale(known, np.linspace(0.0, 1.0, known.size), shown)


def scale_time(last: float) -> Scale:
    """Seconds from 0 to `last`, shown as hours and minutes."""
    shown = tuple((at, show_time(at)) for at in round_times(last))
    return Scale(np.array([0.0, last or 1.0]), np.array([0.0, 1.0]), shown)


def scale_logarithmically(values: Sequence[float]) -> Scale:
    """A little below the least value to a little above the greatest."""
    logs = [math.log10(max(value, _LEAST)) for value in values]
    low, high = min(logs), max(logs)
    margin = 0.05 * max(1.0, high - low) if high > low else 0.5
    return _logarithmic(low - margin, high + margin, None)


def scale_decades(values: Sequence[float]) -> Scale:
    """Whole powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values) * 1.0001))
    low = low - 1 if high == low else low
    return _logarithmic(low, high, [10.0**power for power in range(low, high + 1)])


def _logarithmic(low: float, high: float, ticks: Sequence[float] | None) -> Scale:
    chosen = _round_between(low, high) if ticks is None else ticks
    shown = tuple((tick, shorten(tick)) for tick in chosen)
    return Scale(np.array([low, high]), np.array([0.0, 1.0]), shown, logarithmic=True)


# ---------------------------------------------------------------- round numbers, and how they are shown


def round_numbers(most: float) -> list[float]:
    """Choose a few round numbers from 0 to at least `most`."""
    raw = most / 4
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= raw * 0.999)
    return [step * count for count in range(math.ceil(most / step - 1e-6) + 1)]


def round_times(last: float) -> list[float]:
    """Choose round times from 0 to `last`, in seconds."""
    for step in _SECONDS:
        if last / step <= _MOST_INSTANTS:
            return [float(step * count) for count in range(int(last / step + 1e-6) + 1)]
    return [0.0, last]


def _round_between(low: float, high: float) -> list[float]:
    """Choose round values between two powers of ten: few, but at least three where there are so many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    found: list[float] = []
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), [n / 10 for n in range(10, 100)]):
        found = [
            step * 10.0**p for p in powers for step in steps if low <= math.log10(step * 10.0**p) <= high
        ]
        if len(found) > 2:
            break
    return found if len(found) < 12 else found[:: len(found) // 5]


def show_time(instant: float) -> str:
    """Seconds as hours and minutes where they are whole minutes."""
    return f"{int(instant) // 3600}:{int(instant) // 60 % 60:02}" if instant % 60 == 0 else f"{instant:.0f} s"


def show_number(value: float) -> str:
    """A number with a letter for thousands, millions and thousands of millions."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def shorten(value: float) -> str:
    """A number of three digits with a letter for thousands, millions and thousands of millions."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
