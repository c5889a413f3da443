"""Loads to try the controller on: events a second, and the state that follows them. Seeded.

Receives the name of a load or a CSV file; hands a rate and a state size for every period.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.words.load_file import load_points, not_a_trace

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
    points = load_points(path, NAMES)
    if points[-1][0] > _LONGEST:
        raise not_a_trace(path, "it is longer than a month")
    if not any(rate for _, rate in points):
        raise not_a_trace(path, "no event ever comes")
    instants, rates = np.array(points).T
    return instants, rates
