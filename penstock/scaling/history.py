"""Folds snapshots into a history of measurements. Pure.

Receives one `Snapshot` after another; returns means over the window and over `patience_seconds`, and smoothed loads of
buckets.

Invariants:
- `History.add` returns a new history. Measurements of a cold engine are dropped with the next snapshot.
- *Load* is in cores: the task seconds a second that the present input needs, whatever the fleet is. Unlike a
  utilisation it does not stop at 1 when the fleet is too small, and does not change with the fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.moved import former_names
from penstock.scaling.measurements import Floats, Measured, Snapshot, slice_executors

#: when more than this share of the work has shifted to other buckets, the means forget faster
SHIFTED = 0.1


@dataclass(frozen=True)
class Sample:
    """One period of the whole engine."""

    at: float
    period_seconds: float
    #: cores that the input of the period needs
    load: float
    #: core seconds in the backlog
    waiting: float


@former_names(slow="find_slow")
@dataclass(frozen=True, eq=False)
class Smoothed:
    """Moving averages of a stage with a half-life of half the window, shorter when keys have shifted."""

    #: cores each bucket keeps busy
    bucket_load: Floats
    bucket_bytes: Floats
    #: the executors of `slowness`
    executors: tuple[str, ...]
    #: each executor's task seconds an event, as a multiple of the usual
    slowness: Floats
    #: task seconds an event when events were last processed
    cost_seconds: float
    #: whether the newest period is like the mean: moves are planned only then
    settled: bool = True

    def find_slow(self, factor: float) -> dict[str, float]:
        """Find the executors that need at least `factor` times the usual."""
        return {
            self.executors[at]: float(self.slowness[at]) for at in np.flatnonzero(self.slowness >= factor)
        }


@former_names(rising="is_rising", waiting="waiting_core_seconds", whole="is_complete")
@dataclass(frozen=True, eq=False)
class History:
    """The measurements so far; starts empty."""

    window_seconds: float
    patience_seconds: float
    latest: Snapshot | None = None
    samples: tuple[Sample, ...] = ()
    smoothed: Mapping[str, Smoothed] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> History:
        """The history with one more period."""
        if self.latest is not None and not self.latest.warm:
            return History(self.window_seconds, self.patience_seconds).add(snapshot)
        since = snapshot.at - self.patience_seconds - 1e-6
        first = next(
            (at for at, one in enumerate(self.samples) if one.at - one.period_seconds >= since), None
        )
        kept = self.samples[first:] if first is not None else ()
        smoothed = {
            name: _smooth(
                self.smoothed.get(name), one, self._newest_weight(snapshot.period_seconds), snapshot
            )
            for name, one in snapshot.stages.items()
        }
        samples = (*kept, _take_sample(snapshot, smoothed))
        return History(self.window_seconds, self.patience_seconds, snapshot, samples, smoothed)

    def _newest_weight(self, period_seconds: float) -> float:
        """The weight of the newest period in a smoothed value."""
        return 1.0 - float(0.5 ** (2 * period_seconds / self.window_seconds))

    @property
    def is_complete(self) -> bool:
        """Whether the history covers `patience_seconds`."""
        if not self.samples:
            return False
        first = self.samples[0]
        return self.covered_seconds >= self.patience_seconds - first.period_seconds

    @property
    def covered_seconds(self) -> float:
        """How far back it reaches."""
        if not self.samples:
            return 0.0
        return self.samples[-1].at - self.samples[0].at + self.samples[0].period_seconds

    def load(self, seconds: float) -> float:
        """Mean load of the last `seconds`, at least of the newest period."""
        if not self.samples:
            return 0.0
        since = self.samples[-1].at - seconds + 1e-6
        total, count = 0.0, 0
        for one in reversed(self.samples):
            if count and one.at <= since:
                break
            total, count = total + one.load, count + 1
        return total / count

    def newest_load(self) -> float:
        """Mean load of the two newest periods: early to see a rise, at the price of some noise."""
        newest = [one.load for one in self.samples[-2:]]
        return sum(newest) / max(len(newest), 1)

    def load_thirds(self) -> tuple[float, ...]:
        """Mean load of each third of the patience, oldest first."""
        loads = [one.load for one in self.samples]
        edges = [len(loads) * part // 3 for part in range(4)]
        parts = [loads[low:high] for low, high in pairwise(edges)]
        return tuple(sum(part) / len(part) for part in parts if part)

    def is_rising(self) -> bool:
        """Whether the load has grown by more than a tenth in the newest period: a bad moment to size a fleet."""
        return len(self.samples) > 1 and self.samples[-1].load > 1.1 * self.samples[-2].load

    def waiting_core_seconds(self) -> float:
        """Core seconds in the backlog now."""
        return self.samples[-1].waiting if self.samples else 0.0


def _take_sample(snapshot: Snapshot, smoothed: Mapping[str, Smoothed]) -> Sample:
    costs = [(one, smoothed[name].cost_seconds) for name, one in snapshot.stages.items()]
    load = sum(one.input_rate * cost + one.fixed_seconds / one.period_seconds for one, cost in costs)
    waiting = sum(one.backlog_events * cost for one, cost in costs)
    return Sample(snapshot.at, snapshot.period_seconds, load, waiting)


def _smooth(before: Smoothed | None, one: Measured, fresh: float, snapshot: Snapshot) -> Smoothed:
    load = one.bucket_seconds / one.period_seconds
    ids = snapshot.fleet.ids
    slowness = _slowness(one, ids)
    # the cost of a stage that processes nothing is not known: keep the last one
    cost = one.cost_seconds if one.processing_rate > 0 else before.cost_seconds if before else 0.0
    if before is None or before.bucket_load.size != load.size:
        return Smoothed(load, one.bucket_bytes, ids, slowness, cost)
    earlier = before.slowness
    if before.executors is not ids and before.executors != ids:
        known = dict(zip(before.executors, before.slowness, strict=True))
        earlier = np.array([known.get(name, 1.0) for name in ids])
    apart = _shifted_share(load, before.bucket_load)
    if apart > SHIFTED:
        fresh = max(fresh, 0.7)
    return Smoothed(
        before.bucket_load + fresh * (load - before.bucket_load),
        one.bucket_bytes,
        ids,
        earlier + fresh * (slowness - earlier),
        cost,
        apart <= SHIFTED,
    )


def _shifted_share(load: Floats, usual: Floats) -> float:
    """The share of the work that is in other buckets than usual: 0 none, 1 all of it."""
    total, before = float(load.sum()), float(usual.sum())
    if total <= 0 or before <= 0:
        return 0.0
    return float(np.abs(load / total - usual / before).sum()) / 2


def _slowness(one: Measured, ids: tuple[str, ...]) -> Floats:
    """Each executor's task seconds an event over the usual ones; 1 where unknown."""
    slowness = np.ones(len(ids))
    owner = slice_executors(one.placement, ids)[one.bucket_map] if one.bucket_map.size else np.zeros(0, int)
    here = owner >= 0
    seconds = np.bincount(owner[here], one.bucket_seconds[here], minlength=len(ids))
    events = np.bincount(owner[here], one.bucket_events[here], minlength=len(ids))
    worked = np.flatnonzero((events > 0) & (seconds > 0))
    if worked.size < 2:
        return slowness
    cost = seconds[worked] / events[worked]
    # of two executors, the faster one is the reference
    middle = worked.size // 2 if worked.size > 2 else 0
    usual = np.partition(cost, middle)[middle]
    slowness[worked] = cost / usual
    return slowness
