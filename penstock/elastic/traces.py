"""Loads to try the loop on: events a second over time, and how they spread over the buckets. Seeded.

Receives a name or a file and its parameters; hands a rate for every period, and the share of each bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from penstock.elastic.measurements import Floats
from penstock.words.errors import UserError
from penstock.words.load_file import load_points

NAMES = ("steady", "sine", "spike", "step", "ramp")


@dataclass(frozen=True)
class Trace:
    """The middle rate, the form around it, and noise on it.

    sine: `swing` (0..1) around the rate, `cycles` times in all. spike: `factor` times the rate, reached within
    `rise_seconds` from `at_share` of the time on, for `for_share` of it. step: the same and for good. ramp: from the
    rate to `factor` times it in the first half, and back in the second.
    """

    name: str = "steady"
    rate: float = 100_000.0
    noise: float = 0.0
    swing: float = 0.5
    cycles: float = 1.0
    factor: float = 3.0
    rise_seconds: float = 30.0
    at_share: float = 0.25
    for_share: float = 0.25
    #: of a file: instants in seconds, and the rates from each on
    points: tuple[tuple[float, float], ...] = ()

    def rates(self, seconds: float, period: float, seed: int) -> Floats:
        """The rate of every period of a run of so many seconds."""
        at: Floats = (np.arange(max(round(seconds / period), 1), dtype=np.float64) + 0.5) * period
        rates = self._form(at, seconds) * self.rate
        if self.noise:
            rates = rates * (1 + self.noise * np.random.default_rng([seed, 1]).standard_normal(at.size))
        return np.maximum(rates, 0.0)

    def _form(self, at: Floats, seconds: float) -> Floats:
        if self.points:
            instants, rates = np.array(self.points).T
            told: Floats = np.interp(at, instants, rates) / self.rate
            return told
        if self.name == "sine":
            # begins at the valley
            wave: Floats = 1 - self.swing * np.cos(2 * np.pi * self.cycles * at / seconds)
            return wave
        if self.name in ("spike", "step"):
            up = self.at_share * seconds
            ends = seconds * 2 if self.name == "step" else up + self.for_share * seconds
            risen = np.interp(at, [up, up + self.rise_seconds, ends, ends + self.rise_seconds], [0, 1, 1, 0])
            return 1 + (self.factor - 1) * risen
        if self.name == "ramp":
            return np.interp(at, [0, seconds / 2, seconds], [1, self.factor, 1])
        return np.ones(at.size)


def trace_of(text: str, beginning: Trace | None = None) -> Trace:
    """A trace by its name, or from a CSV file of `time,rate`, in seconds and events a second."""
    beginning = beginning or Trace()
    if text in NAMES:
        return replace(beginning, name=text)
    path = Path(text)
    points = tuple(load_points(path, NAMES))
    # the middle rate of a file is its mean, so that what is sized by it fits
    mean = float(np.mean([rate for _, rate in points]))
    return replace(beginning, name=path.name, points=points, rate=max(mean, 1e-9))


#: how the buckets' shares look at a share (0..1) of the run
Spread = Callable[[float], Floats]
SPREADS = ("even", "zipf", "moving-mean", "moving-deviation", "hot-key")


def spread_of(name: str, buckets: int, seed: int, periods: int = 5) -> Spread:
    """Shares of the buckets over time.

    zipf: a few buckets have much. moving-mean: even at first, then a normal distribution whose mean moves to
    another place in each of the periods. moving-deviation: one that gets narrower. hot-key: one bucket has a fifth.
    """
    if name not in SPREADS:
        raise UserError("NO_SUCH_SPREAD", f"there is no spread {name!r}", hint=f"Use {', '.join(SPREADS)}.")
    random = np.random.default_rng([seed, 2])
    # keys are hashed: each bucket gets a few more or fewer of them
    hashed = random.gamma(200.0, size=buckets)
    if name == "zipf":
        hashed = random.permutation(hashed * np.arange(1, buckets + 1) ** -0.8)
    if name == "hot-key":
        hashed[buckets // 3] = hashed.sum() / 4
    even = hashed / hashed.sum()
    if not name.startswith("moving"):
        return lambda _: even
    parts = [even, *(_bell(even, at, name) for at in range(1, periods))]
    return lambda share: parts[min(int(share * periods), periods - 1)]


def _bell(even: Floats, period: int, name: str) -> Floats:
    place = np.arange(even.size) / even.size
    if name == "moving-mean":
        middle, wide = 0.2 * period, 0.16
    else:
        middle, wide = 0.5, (0.4, 0.3, 0.2, 0.12)[(period - 1) % 4]
    apart = np.abs(place - middle)
    shares: Floats = even * np.exp(-((np.minimum(apart, 1 - apart) / wide) ** 2) / 2)
    shares /= shares.sum()
    return shares
