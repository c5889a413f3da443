"""Loads to try the controller on: events a second, and the state that follows them. Seeded.

Receives the name of a load or a CSV file; hands a rate and a state size for every period.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.words.errors import UserError

Floats = npt.NDArray[np.float64]
NAMES = ("steady", "day", "spikes", "walk")
#: the longest file that is replayed, in seconds
_LONGEST = 31 * 86_400.0


def rates_of(trace: str, seconds: float, period: float, mean_rate: float, seed: int) -> Floats:
    """The rate of every period. day: a valley at night, noise on it. spikes: quiet, with sudden bursts that die down.
    walk: a random walk that is drawn back to the mean. A file's own length and rates are taken instead."""
    if trace not in NAMES:
        instants, read = _file(Path(trace))
        at = np.arange(0.0, instants[-1], period)
        return np.asarray(np.interp(at, instants, read), dtype=np.float64)
    at = np.arange(max(round(seconds / period), 1)) * period
    random = np.random.default_rng([seed, NAMES.index(trace)])
    if trace == "steady":
        form = np.ones(at.size)
    elif trace == "day":
        form = 1.0 - 0.7 * np.cos(2 * np.pi * at / max(seconds, period))
        form = form * (1 + 0.03 * random.standard_normal(at.size))
    elif trace == "spikes":
        form = 0.6 + 0.02 * random.standard_normal(at.size)
        for begin in random.uniform(0.05, 0.95, max(round(seconds / 1800), 3)) * seconds:
            since = at - begin
            height, lasts = random.uniform(0.8, 2.5), random.uniform(120, 900)
            form += height * np.clip(since / 60.0, 0, 1) * np.exp(-np.clip(since - 60, 0, None) / lasts)
    else:
        form, level = np.empty(at.size), 0.0
        drawn, pushed = period / 3600.0, 0.6 * np.sqrt(2 * period / 3600.0)
        for place, push in enumerate(random.standard_normal(at.size)):
            level += -drawn * level + pushed * push
            form[place] = np.exp(level)
    rates: Floats = np.maximum(form, 0.02).astype(np.float64)
    return rates * (mean_rate / float(rates.mean()))


def states_of(
    rates: Floats, period: float, mean_bytes: float, window_seconds: float, growth: float = 1.0
) -> Floats:
    """State that follows the load as that of a sliding window does; it may grow, or shrink, on top of that."""
    window = max(min(round(window_seconds / period), rates.size), 1)
    padded = np.concatenate([np.full(window - 1, rates[0]), rates])
    followed = np.convolve(padded, np.ones(window) / window, mode="valid")
    drift = np.linspace(1.0, growth, rates.size)
    shaped: Floats = followed * drift
    return shaped * (mean_bytes / max(float(followed.mean()), 1e-9))


def _file(path: Path) -> tuple[Floats, Floats]:
    if not path.is_file():
        raise UserError(
            "NO_SUCH_TRACE",
            f"{str(path)!r} is neither a load nor a file",
            hint=f"Use one of {', '.join(NAMES)}, or a CSV file with the columns time and rate.",
        )
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = [row for row in csv.reader(file) if row and not row[0].lstrip().startswith("#")]
    if rows and [cell.strip().lower() for cell in rows[0][:2]] == ["time", "rate"]:
        del rows[0]
    points: list[tuple[float, float]] = []
    for number, row in enumerate(rows, 1):
        try:
            at, rate = float(row[0]), float(row[1])
        except (ValueError, IndexError):
            raise _bad(path, f"row {number} is not two numbers: {','.join(row)[:80]!r}") from None
        if not (np.isfinite(at) and np.isfinite(rate)) or rate < 0:
            raise _bad(path, f"row {number} has a time or a rate that cannot be")
        if points and at <= points[-1][0]:
            raise _bad(path, f"row {number} is not later than the row before it")
        points.append((at, rate))
    if len(points) < 2:
        raise _bad(path, f"it has {len(points)} rows")
    if points[-1][0] - points[0][0] > _LONGEST:
        raise _bad(path, "it is longer than a month")
    if not any(rate for _, rate in points):
        raise _bad(path, "no event ever comes")
    instants, rates = np.array(points).T
    return instants - instants[0], rates


def _bad(path: Path, why: str) -> UserError:
    return UserError(
        "BAD_TRACE",
        f"{path} is not a load",
        detail=f"{why}.",
        hint="Write lines of time,rate: seconds, ascending, and events a second; at least two.",
    )
