"""Assigns buckets to slices by a greedy rule: to balance, for new executors and for those that leave. Pure.

Receives the load of each bucket and its slice, and the speed of each slice; returns moves.

The rule: take the most and the least utilised slice; move the bucket from the first to the second that lowers the
deviation most; repeat until a step gains too little. Always moving the heaviest bucket would stop early: where it is
larger than the difference of the two slices, the move would only swap them.

Invariants:
- Every bucket has exactly one slice before and after, and is moved at most once; no move ends where it started.
- No step increases the deviation of the slices' utilisation.
- `balance_slices` ignores slices of speed 0 (they receive nothing; `offload_slices` empties them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.scaling.decisions import Moves
from penstock.scaling.measurements import Floats, Ints


@dataclass(frozen=True, eq=False)
class Slices:
    """The load of each bucket in cores, its slice, and each slice's speed."""

    bucket_load: Floats
    bucket_map: Ints
    #: each slice's speed in cores of a usual executor; 0: it must not receive anything
    speed: Floats

    def utilisation(self) -> Floats:
        """The utilisation of each slice that has an executor."""
        return self.all_utilisation()[self.speed > 0]

    def all_utilisation(self) -> Floats:
        """The utilisation of every slice; 0 for those without an executor."""
        load = np.bincount(self.bucket_map, self.bucket_load, minlength=self.speed.size)
        return np.divide(load, self.speed, out=np.zeros(self.speed.size), where=self.speed > 0)

    def deviation(self) -> float:
        """Standard deviation of the utilisation."""
        used = self.utilisation()
        return float(used.std()) if used.size else 0.0

    def mean(self) -> float:
        """The mean utilisation."""
        used = self.utilisation()
        return float(used.mean()) if used.size else 0.0

    def busiest(self) -> float:
        """The highest utilisation."""
        used = self.utilisation()
        return float(used.max()) if used.size else 0.0

    def apply_moves(self, moves: Moves) -> Slices:
        """The slices after moves."""
        after = self.bucket_map.copy()
        for bucket, (_, to) in moves.items():
            after[bucket] = to
        return Slices(self.bucket_load, after, self.speed)


def balance_slices(
    slices: Slices, minimum_improvement: float = 0.0, most_moves: int | None = None
) -> dict[int, tuple[int, int]]:
    """Choose moves that balance the slices.

    A step must lower the deviation by at least `minimum_improvement` divided by the number of slices: one step
    changes two slices, so with a thousand slices it can never lower it by 5 %.
    """
    live = np.flatnonzero(slices.speed > 0)
    if live.size < 2:
        return {}
    after, used = slices.bucket_map.copy(), slices.all_utilisation()
    squares, total, count = float((used[live] ** 2).sum()), float(used[live].sum()), live.size
    least_gain = max(minimum_improvement / count, 1e-6)
    dead = slices.speed <= 0
    for _ in range(most_moves if most_moves is not None else 4 * after.size):
        most_at = int(np.argmax(np.where(dead, -np.inf, used)))
        least_at = int(np.argmin(np.where(dead, np.inf, used)))
        buckets = np.flatnonzero(after == most_at)
        if not buckets.size or most_at == least_at:
            break
        load = slices.bucket_load[buckets]
        gives, takes = (
            used[most_at] - load / slices.speed[most_at],
            used[least_at] + load / slices.speed[least_at],
        )
        changed = gives**2 + takes**2 - used[most_at] ** 2 - used[least_at] ** 2
        sums = total + gives + takes - used[most_at] - used[least_at]
        variance = (squares + changed) / count - (sums / count) ** 2
        # the target must not become busier than the source was: an epoch is as long as its busiest slice
        variance = np.where((takes < used[most_at]) & (load > 0), variance, np.inf)
        best = int(np.argmin(variance))
        before = max(squares / count - (total / count) ** 2, 0.0)
        if not variance[best] < before or np.sqrt(max(variance[best], 0.0)) > (1 - least_gain) * np.sqrt(
            before
        ):
            break
        squares, total = squares + float(changed[best]), float(sums[best])
        used[most_at], used[least_at] = gives[best], takes[best]
        after[buckets[best]] = least_at
    return _diff_maps(slices.bucket_map, after)


def offload_slices(slices: Slices, leaving: Ints) -> dict[int, tuple[int, int]]:
    """Choose moves that empty the leaving slices: heaviest bucket first, each to the least utilised slice."""
    after, speed = slices.bucket_map.copy(), slices.speed.copy()
    speed[leaving] = 0.0
    if not (speed > 0).any():
        return {}
    used = Slices(slices.bucket_load, after, speed).all_utilisation()
    used[speed <= 0] = np.inf
    orphans = np.flatnonzero(np.isin(after, leaving))
    for bucket in orphans[np.argsort(-slices.bucket_load[orphans], kind="stable")]:
        at = int(np.argmin(used))
        used[at] += max(slices.bucket_load[bucket], 1e-12) / speed[at]
        after[bucket] = at
    return _diff_maps(slices.bucket_map, after)


def _diff_maps(before: Ints, after: Ints) -> dict[int, tuple[int, int]]:
    changed = np.flatnonzero(before != after)
    return {int(bucket): (int(before[bucket]), int(after[bucket])) for bucket in changed}
