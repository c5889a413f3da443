"""Which buckets go where: the greedy rule, for balancing, for new executors and for those that leave. Pure.

Receives the load of each bucket and its slice, and what each slice can do; hands moves.

The rule: take the most and the least utilised slice; give the least one the bucket of the most one that lowers the
deviation most; again, until a step gains too little. The seed gives the heaviest bucket; where that is more than the
difference of the two slices it would only swap them, and the seed's rule stops. This one goes on.

Invariants:
- Every bucket has exactly one slice before and after, and is moved at most once; no move ends where it began.
- The deviation of the slices' utilisation never grows by a step.
- Slices of speed 0 are left alone by `balanced` (they get nothing, and have nothing or are emptied by `offloaded`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.scaling.decisions import Moves
from penstock.scaling.measurements import Floats, Ints


@dataclass(frozen=True, eq=False)
class Slices:
    """What slices have and can: the load of each bucket in cores, its slice, and each slice's speed."""

    bucket_load: Floats
    bucket_map: Ints
    #: cores of a usual executor that each slice is worth; 0: it must not get anything
    speed: Floats

    def utilisation(self) -> Floats:
        """Of each slice that has an executor."""
        return self.all_utilisation()[self.speed > 0]

    def all_utilisation(self) -> Floats:
        """Of every slice; of those without executor nought."""
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

    def moved(self, moves: Moves) -> Slices:
        """After moves."""
        after = self.bucket_map.copy()
        for bucket, (_, to) in moves.items():
            after[bucket] = to
        return Slices(self.bucket_load, after, self.speed)


def balanced(
    slices: Slices, minimum_improvement: float = 0.0, most_moves: int | None = None
) -> dict[int, tuple[int, int]]:
    """Moves that even out the slices.

    A step is made while it takes at least `minimum_improvement` of the deviation, shared out over the slices: one
    step touches two of them, so of a thousand slices it can never take 5 %.
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
        # never let the taker become busier than the giver was: an epoch is as long as its busiest slice
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
    return _differences(slices.bucket_map, after)


def offloaded(slices: Slices, leaving: Ints) -> dict[int, tuple[int, int]]:
    """Moves that empty the leaving slices: heaviest bucket first, each to the slice least utilised by then."""
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
    return _differences(slices.bucket_map, after)


def _differences(before: Ints, after: Ints) -> dict[int, tuple[int, int]]:
    changed = np.flatnonzero(before != after)
    return {int(bucket): (int(before[bucket]), int(after[bucket])) for bucket in changed}
