"""Formats numbers for people: bytes, counts, seconds, sparklines; makes texts safe to print."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


#: what a terminal executes instead of showing it, and what changes the direction of the text around it
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    """A text whose control characters are escaped as in JSON, except tabs and newlines: what senders of events or of
    requests put into it does nothing to the terminal that shows it. JSON stays the same JSON."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def size(count: float) -> str:
    """`3.2 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def seconds(amount: float) -> str:
    """`430 ms`, `1.6 s`, `3 min 20 s`."""
    if amount < 1:
        return f"{amount * 1000:.0f} ms"
    if amount < 120:
        return f"{amount:.1f} s"
    return f"{int(amount) // 60} min {int(amount) % 60} s"


def clock(amount: float) -> str:
    """`0:42`, `1:02:03`."""
    whole = int(amount)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as bars between 0 and the largest of them."""
    shown = list(values)[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(value / most * len(_BARS)), len(_BARS) - 1)] for value in shown)


def amount(count: int, unit: str) -> str:
    """An amount of a log: bytes as a size, records as events."""
    return size(count) if unit == "bytes" else f"{count:,} events"
