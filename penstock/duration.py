"""Parses durations such as ``"30s"``, ``"5 minutes"`` or ``1.5`` seconds into whole microseconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from penstock.errors import UserError

Duration = str | int | float | timedelta

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_WORDS = {
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
}
#: sums of times and durations must fit in 64 bits
LONGEST = 2**58
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def microseconds(duration: Duration) -> int:
    """The microseconds of a duration. A bare number means seconds; parts add up (``"1h 30m"``)."""
    micros = _microseconds(duration)
    if abs(micros) > LONGEST:
        raise UserError(
            "BAD_DURATION", f"{duration!r} is too long", hint="The longest is about nine thousand years."
        )
    return micros


def _microseconds(duration: Duration) -> int:
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1e6)
    if isinstance(duration, int | float) and math.isfinite(duration):
        return round(duration * 1e6)
    if not isinstance(duration, str):
        raise UserError("BAD_DURATION", f"{duration!r} is not a duration", hint='Write for example "30s".')
    text, at, total = duration.strip().lower(), 0, 0.0
    while at < len(text):
        part = _PART.match(text, at)
        unit = part and _unit(part.group(2))
        if not part or not unit:
            raise UserError(
                "BAD_DURATION",
                f"{duration!r} is not a duration",
                hint='Write a number and a unit, such as "30s", "500ms", "5 minutes" or "1h 30m".',
            )
        total += float(part.group(1)) * _UNITS[unit]
        at = part.end()
    if not text:
        raise UserError("BAD_DURATION", "a duration is empty", hint='Write for example "30s".')
    return round(total)


def _unit(word: str) -> str | None:
    if word in _UNITS:
        return word
    return _WORDS.get(word) or _WORDS.get(word.rstrip("s"))


def spelled(micros: int) -> str:
    """The shortest exact spelling of a duration: ``90_000_000`` is ``"90s"``."""
    for unit in ("d", "h", "m", "s", "ms"):
        if micros and micros % _UNITS[unit] == 0:
            return f"{micros // _UNITS[unit]}{unit}"
    return f"{micros}us"
