"""Draws the loads of a simulation: events a second over time, state that follows them, shares of buckets. Seeded.

Receives a name or a CSV file of `time,rate`, and its parameters; returns a rate, a state size and shares of buckets for
every period.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from penstock.errors import UserError
from penstock.simulate.axis import Floats

#: forms with parameters
FORMS = ("steady", "sine", "spike", "step", "ramp")
#: loads that are drawn at random around a mean
DRAWN = ("steady", "day", "spikes", "walk")
#: the longest file that can be replayed, in seconds
_LONGEST_SECONDS = 31 * 86_400.0


@dataclass(frozen=True)
class Trace:
    """A mean rate, the form around it, and noise.

    sine: `swing` (0..1) around the rate, `cycles` times in all. spike: `factor` times the rate, reached within
    `rise_seconds` from `at_share` of the time on, for `for_share` of it. step: the same, but permanent. ramp: from the
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
    #: of a file: instants in seconds, and the rate at each
    points: tuple[tuple[float, float], ...] = ()

    def rates(self, seconds: float, period: float, seed: int) -> Floats:
        """The rate of every period of a run of `seconds`."""
        at: Floats = (np.arange(max(round(seconds / period), 1), dtype=np.float64) + 0.5) * period
        rates = self._draw_form(at, seconds) * self.rate
        if self.noise:
            rates = rates * (1 + self.noise * np.random.default_rng([seed, 1]).standard_normal(at.size))
        return np.maximum(rates, 0.0)

    def _draw_form(self, at: Floats, seconds: float) -> Floats:
        if self.points:
            instants, rates = np.array(self.points).T
            shares: Floats = np.interp(at, instants, rates) / self.rate
            return shares
        if self.name == "sine":
            # starts at the valley
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


def find_trace(text: str, first: Trace | None = None) -> Trace:
    """Find a trace by its name, or read it from a CSV file of `time,rate`, in seconds and events a second."""
    first = first or Trace()
    if text in FORMS:
        return replace(first, name=text)
    path = Path(text)
    points = tuple(read_points(path, FORMS))
    # the rate of a file is its mean, so that sizes derived from it fit
    mean = float(np.mean([rate for _, rate in points]))
    return replace(first, name=path.name, points=points, rate=max(mean, 1e-9))


# ---------------------------------------------------------------- drawn loads, and state


def draw_rates(trace: str, seconds: float, period: float, mean_rate: float, seed: int) -> Floats:
    """Draw the rate of every period. day: low at night, with noise. spikes: quiet, with sudden bursts that decay.
    walk: a mean-reverting random walk. The name of a file: its own length and rates."""
    if trace not in DRAWN:
        instants, read = _replay(Path(trace))
        at = np.arange(0.0, instants[-1], period)
        return np.asarray(np.interp(at, instants, read), dtype=np.float64)
    at = np.arange(max(round(seconds / period), 1)) * period
    random = np.random.default_rng([seed, DRAWN.index(trace)])
    if trace == "steady":
        form = np.ones(at.size)
    elif trace == "day":
        form = 1.0 - 0.7 * np.cos(2 * np.pi * at / max(seconds, period))
        form = form * (1 + 0.03 * random.standard_normal(at.size))
    elif trace == "spikes":
        form = 0.6 + 0.02 * random.standard_normal(at.size)
        for start in random.uniform(0.05, 0.95, max(round(seconds / 1800), 3)) * seconds:
            since = at - start
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


def follow_rates(
    rates: Floats, period: float, mean_bytes: float, window_seconds: float, growth: float = 1.0
) -> Floats:
    """Draw state sizes that follow the load as a sliding window's state does, and may grow or shrink besides."""
    window = max(min(round(window_seconds / period), rates.size), 1)
    padded = np.concatenate([np.full(window - 1, rates[0]), rates])
    followed = np.convolve(padded, np.ones(window) / window, mode="valid")
    drift = np.linspace(1.0, growth, rates.size)
    shaped: Floats = followed * drift
    return shaped * (mean_bytes / max(float(followed.mean()), 1e-9))


def _replay(path: Path) -> tuple[Floats, Floats]:
    points = read_points(path, DRAWN)
    if points[-1][0] > _LONGEST_SECONDS:
        raise bad_trace(path, "it is longer than a month")
    if not any(rate for _, rate in points):
        raise bad_trace(path, "it has no events")
    instants, rates = np.array(points).T
    return instants, rates


# ---------------------------------------------------------------- shares of buckets


#: the buckets' shares at a share (0..1) of the run
Spread = Callable[[float], Floats]
SPREADS = ("even", "zipf", "moving-mean", "moving-deviation", "hot-key")


def find_spread(name: str, buckets: int, seed: int, periods: int = 5) -> Spread:
    """Find the buckets' shares over time by name.

    zipf: a few buckets have most of the load. moving-mean: even at first, then a normal distribution whose mean moves
    in each of the periods. moving-deviation: one that gets narrower. hot-key: one bucket has a fifth.
    """
    if name not in SPREADS:
        raise UserError("NO_SUCH_SPREAD", f"there is no spread {name!r}", hint=f"Use {', '.join(SPREADS)}.")
    random = np.random.default_rng([seed, 2])
    # keys are hashed: each bucket has a few more or fewer of them
    hashed = random.gamma(200.0, size=buckets)
    if name == "zipf":
        hashed = random.permutation(hashed * np.arange(1, buckets + 1) ** -0.8)
    if name == "hot-key":
        hashed[buckets // 3] = hashed.sum() / 4
    even = hashed / hashed.sum()
    if not name.startswith("moving"):
        return lambda _: even
    parts = [even, *(_draw_bell(even, at, name) for at in range(1, periods))]
    return lambda share: parts[min(int(share * periods), periods - 1)]


def _draw_bell(even: Floats, period: int, name: str) -> Floats:
    place = np.arange(even.size) / even.size
    if name == "moving-mean":
        middle, wide = 0.2 * period, 0.16
    else:
        middle, wide = 0.5, (0.4, 0.3, 0.2, 0.12)[(period - 1) % 4]
    apart = np.abs(place - middle)
    shares: Floats = even * np.exp(-((np.minimum(apart, 1 - apart) / wide) ** 2) / 2)
    shares /= shares.sum()
    return shares


def read_points(path: Path, names: Sequence[str]) -> list[tuple[float, float]]:
    """The points of a file, ascending, or an error that names the wrong row; `names`: the traces that need no file.

    A point is an instant (seconds from the first) and events a second.
    """
    if not path.is_file():
        raise UserError(
            "NO_SUCH_TRACE",
            f"{str(path)!r} is neither a trace nor a file",
            hint=f"Use one of {', '.join(names)}, or a CSV file with the columns time and rate.",
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
            raise bad_trace(path, f"row {number} is not two numbers: {','.join(row)[:80]!r}") from None
        if not (math.isfinite(at) and math.isfinite(rate)) or rate < 0:
            raise bad_trace(
                path, f"row {number} has a rate or a time that is not possible: {','.join(row)[:80]!r}"
            )
        if points and at <= points[-1][0]:
            raise bad_trace(path, f"row {number} is not later than the row before it")
        points.append((at, rate))
    if len(points) < 2:
        raise bad_trace(path, f"it has {len(points)} rows")
    return [(at - points[0][0], rate) for at, rate in points]


def bad_trace(path: Path, why: str) -> UserError:
    """The error for a file that is not a load."""
    return UserError(
        "BAD_TRACE",
        f"{path} is not a trace",
        detail=f"{why}.",
        hint="Write lines of time,rate: seconds, ascending, and events a second; at least two.",
    )
