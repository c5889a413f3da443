"""Computes event rates over time: constant, a sine, a spike or a step.

Receives a rate and its profile; returns the instant of the k-th event, and how many there were by an instant.

Invariants:
- Instants are whole microseconds since the log's own clock started, computed with integers only.
- `instants` never decreases, and `count(t)` counts exactly the events whose instant is at most t.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypedDict

import numpy as np

from penstock.errors import UserError
from penstock.logs.draw import Ints

Profile = Literal["constant", "sine", "spike", "step"]

_SECOND = 1_000_000
_PIECE = 100_000
_EVENT = 1_000_000
"""A millionth of an event is the unit in which rates are summed up."""


class Shape(TypedDict, total=False):
    """The parameters of the profiles, as keywords; their meaning and defaults are those of `Rate`."""

    period_seconds: float
    amplitude: float
    spike_factor: float
    step_factor: float
    at_seconds: float
    for_seconds: float


@dataclass(frozen=True)
class Rate:
    """Events a second over all partitions.

    sine: `amplitude` (0..1) around the rate, over `period_seconds`. spike: `spike_factor` times the rate
    from `at_seconds` for `for_seconds`. step: `step_factor` times the rate from `at_seconds` on.
    """

    per_second: float
    profile: Profile = "constant"
    period_seconds: float = 60.0
    amplitude: float = 0.5
    spike_factor: float = 5.0
    step_factor: float = 2.0
    at_seconds: float = 30.0
    for_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.profile not in ("constant", "sine", "spike", "step"):
            raise _rate_error(f"there is no profile {self.profile!r}", "Use constant, sine, spike or step.")
        factor = {"spike": self.spike_factor, "step": self.step_factor}.get(self.profile, 1)
        if self.per_second < 1e-3 or self.per_second * max(factor, 1) > 1e8:
            raise _rate_error(
                f"a rate of {self.per_second} is not possible", "Use 0.001 to 100 million a second."
            )
        if not 0 <= self.amplitude <= 1:
            raise _rate_error(f"an amplitude of {self.amplitude} is not possible", "Use 0 to 1.")
        if factor < 1e-3:
            raise _rate_error(f"a factor of {factor} is not possible", "Use at least 0.001.")
        lasting = (self.at_seconds, self.for_seconds)
        if not 1 <= self.period_seconds <= 1e6 or not all(0 <= seconds <= 1e5 for seconds in lasting):
            raise _rate_error("a duration of the profile is not possible", "A period has at least a second.")

    def curve(self) -> Curve:
        """The rate as a table: a prefix that happens once, then a cycle for ever."""
        at, length = round(self.at_seconds * _SECOND), round(self.for_seconds * _SECOND)
        normal = _millionths(1)
        if self.profile == "sine":
            period = round(self.period_seconds * _SECOND)
            edges = [period * i // 400 for i in range(401)]
            swing = [_half_wave(2 * i + 1, 400) for i in range(200)]
            amplitude = _millionths(self.amplitude)
            factors = [normal + amplitude * s // 1_000_000 for s in (*swing, *(-s for s in swing))]
            widths = [high - low for low, high in pairwise(edges)]
            return Curve(self.per_second, [], list(zip(widths, factors, strict=True)))
        if self.profile == "spike":
            return Curve(
                self.per_second,
                [(at, normal), (length, _millionths(self.spike_factor))],
                [(_SECOND, normal)],
            )
        if self.profile == "step":
            return Curve(self.per_second, [(at, normal)], [(_SECOND, _millionths(self.step_factor))])
        return Curve(self.per_second, [], [(_SECOND, normal)])


class Curve:
    """The count of events as a function of time, piecewise linear, and its inverse."""

    def __init__(self, per_second: float, once: list[tuple[int, int]], cycle: list[tuple[int, int]]) -> None:
        per_second_micro = round(per_second * _EVENT)
        self._once_at, self._once_sum = _accumulate(per_second_micro, once)
        self._cycle_at, self._cycle_sum = _accumulate(per_second_micro, cycle)

    def instants(self, events: Ints) -> Ints:
        """The instant of each event, by its number from 0."""
        target = events * _EVENT
        prefix, length = int(self._once_sum[-1]), int(self._cycle_sum[-1])
        if target.size and target[-1] < prefix:
            return _interpolate(target, self._once_sum, self._once_at, up=True)
        times, rest = np.divmod(target - prefix, length)
        late: Ints = _interpolate(rest, self._cycle_sum, self._cycle_at, up=True)
        late += self._once_at[-1] + times * self._cycle_at[-1]
        early = int(np.searchsorted(target, prefix))
        if early:
            late[:early] = _interpolate(target[:early], self._once_sum, self._once_at, up=True)
        return late

    def instant(self, event: int) -> int:
        """The instant of one event."""
        return int(self.instants(np.array([event], dtype=np.int64))[0])

    def count(self, instant: int) -> int:
        """How many events there are up to and at an instant."""
        if instant < 0:
            return 0
        if instant < self._once_at[-1]:
            reached = _interpolate(np.array([instant]), self._once_at, self._once_sum)
            return int(reached[0]) // _EVENT + 1
        times, rest = divmod(instant - int(self._once_at[-1]), int(self._cycle_at[-1]))
        reached = _interpolate(np.array([rest]), self._cycle_at, self._cycle_sum)
        total = int(self._once_sum[-1]) + times * int(self._cycle_sum[-1]) + int(reached[0])
        return total // _EVENT + 1


def _accumulate(per_second_micro: int, pieces: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Accumulate microseconds and millionths of events at the edges of the pieces, in steps of up to 0.1 s."""
    at, done, ats, sums = 0, 0, [0], [0]
    for width, factor in pieces:
        for left in range(0, width, _PIECE):
            step = min(_PIECE, width - left)
            at += step
            done += per_second_micro * factor * step
            ats.append(at)
            sums.append(done // (1_000_000 * _SECOND))
    return np.array(ats, dtype=np.int64), np.array(sums, dtype=np.int64)


def _interpolate(values: Ints, edges: Ints, heights: Ints, up: bool = False) -> Ints:
    """Interpolate linearly between the edges, rounded down to counts and `up` to instants, so that they agree."""
    index = np.searchsorted(edges, values, side="right") - 1
    index = np.minimum(index, len(edges) - 2)
    low, base = edges.take(index), heights.take(index)
    product, run = (values - low) * (heights.take(index + 1) - base), edges.take(index + 1) - low
    result: Ints = base - (-product // run) if up else base + product // run
    return result


def _half_wave(numerator: int, denominator: int) -> int:
    """sin(pi * x) in millionths at x = numerator / denominator in 0..1, by Bhaskara's fraction."""
    bow = 4 * numerator * (denominator - numerator)
    whole = denominator * denominator
    return 4_000_000 * bow // (5 * whole - bow)


def _millionths(factor: float) -> int:
    return round(factor * 1_000_000)


def _rate_error(primary: str, hint: str) -> UserError:
    return UserError("BAD_GENERATED_LOG", primary, hint=hint)
