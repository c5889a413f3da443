"""The numbers along a plot's axes: which are told, and how they are spelled."""

from __future__ import annotations

import math

_SECONDS = (10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 86400)
_MOST_INSTANTS = 12


def ticks(most: float) -> list[float]:
    """A few round numbers from 0 to at least `most`."""
    raw = most / 4
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= raw * 0.999)
    return [step * count for count in range(math.ceil(most / step - 1e-6) + 1)]


def instants(last: float) -> list[float]:
    """Round times from 0 to `last`, in seconds."""
    for step in _SECONDS:
        if last / step <= _MOST_INSTANTS:
            return [float(step * count) for count in range(int(last / step + 1e-6) + 1)]
    return [0.0, last]


def clock(instant: float) -> str:
    """Seconds as hours and minutes where they are whole minutes."""
    return f"{int(instant) // 3600}:{int(instant) // 60 % 60:02}" if instant % 60 == 0 else f"{instant:.0f} s"


def number(value: float) -> str:
    """A number with a letter for thousands, millions and thousands of millions."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
