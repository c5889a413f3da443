"""What the measurements mean: whether the fleet is too small or too large, and which sub-query is in trouble. Pure.

Receives a `History` and the settings; hands an `Evaluation`. Decides nothing.

*Over*: the load has been above the upper utilisation in every third of the patience; or work has piled up beyond what
is tolerated and cannot be drained in time. So noise that averages out does nothing, and a real surge does not wait.
*Under*: the load was below the lower utilisation in every third of the patience, and no more waits than is tolerated.
*Imbalanced*: the deviation is above the upper imbalance, or one slice is above the upper utilisation while the
sub-query as a whole is not: an epoch is as long as its busiest slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from penstock.scaling.balance import Slices
from penstock.scaling.history import History, Smoothed
from penstock.scaling.measurements import Measured, slice_executors
from penstock.scaling.settings import ElasticSettings


class Condition(StrEnum):
    """What state the fleet or a sub-query is in."""

    over = "over"
    under = "under"
    imbalanced = "imbalanced"
    slow_worker = "slow worker"
    steady = "steady"


@dataclass(frozen=True)
class Judged:
    """A condition, why, and the figures it rests on."""

    condition: Condition
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The fleet's condition, and the conditions of each sub-query."""

    fleet: Judged
    sub_queries: Mapping[str, tuple[Judged, ...]]

    def of(self, condition: Condition) -> list[tuple[str, Judged]]:
        """The sub-queries in a condition."""
        return [
            (n, one) for n, judged in self.sub_queries.items() for one in judged if one.condition == condition
        ]


def evaluate(history: History, settings: ElasticSettings) -> Evaluation:
    """Judge the fleet and every sub-query."""
    snapshot = history.latest
    if snapshot is None or not snapshot.fleet.ids:
        return Evaluation(Judged(Condition.steady, "nothing has been measured yet"), {})
    fleet = _fleet(history, settings)
    if history.covered_seconds < settings.window_seconds:
        return Evaluation(fleet, dict.fromkeys(snapshot.sub_queries, (fleet,)))
    return Evaluation(
        fleet,
        {
            name: _sub_query(one, history.smoothed[name], snapshot.fleet.ids, settings, fleet)
            for name, one in snapshot.sub_queries.items()
        },
    )


def _fleet(history: History, settings: ElasticSettings) -> Judged:
    snapshot = history.latest
    assert snapshot is not None
    cores = max(snapshot.fleet.all_cores, 1)
    window, newest = history.load(settings.window_seconds), history.newest_load()
    long, thirds = history.load(settings.patience_seconds), history.load_thirds()
    now, behind = max(window, newest), snapshot.backlog_seconds
    figures = {
        "utilisation": window / cores,
        "load_cores": now,
        "cores": float(cores),
        "executors": float(snapshot.fleet.size),
        "backlog_seconds": behind,
        "waiting_core_seconds": history.waiting(),
    }
    upper, lower = settings.upper_utilisation, settings.lower_utilisation
    draining = (now + history.waiting() / settings.drain_seconds) / cores
    # a fleet sized in the middle of a rise is too small: wait for its end unless too much piles up
    tolerated = settings.tolerated_backlog_seconds * (3 if history.rising() else 1)
    if behind > tolerated and draining > upper:
        return Judged(
            Condition.over,
            f"{behind:.0f} s of work wait and {now / cores:.0%} of the fleet would be needed for the input alone",
            figures,
        )
    # decided by the whole patience, and so told
    patient = figures | {"utilisation": long / cores, "newest_utilisation": window / cores}
    if history.whole and min([*thirds, window]) > upper * cores:
        return Judged(
            Condition.over,
            f"utilisation {long / cores:.1%} is above {upper:.0%}",
            patient | {"load_cores": max(now, long)},
        )
    idle = behind <= settings.tolerated_backlog_seconds
    if history.whole and idle and max([*thirds, window]) < lower * cores:
        return Judged(
            Condition.under,
            f"utilisation {long / cores:.1%} is below {lower:.0%}",
            patient | {"load_cores": max([*thirds[1:], window])},
        )
    return Judged(Condition.steady, f"utilisation {window / cores:.0%}", figures)


def slices_of(one: Measured, smoothed: Smoothed, ids: tuple[str, ...], settings: ElasticSettings) -> Slices:
    """A sub-query as balancing sees it: a slow worker's time counts as less work, and its slices as slower."""
    owner = slice_executors(one.placement, ids)
    speed = np.where(one.live & (owner >= 0), 1.0, 0.0)
    slow = np.where(smoothed.slowness >= settings.slow_factor, 1.0 / smoothed.slowness, 1.0)
    speed *= np.where(owner >= 0, slow[owner], 0.0) if ids else 0.0
    worked = speed[one.bucket_map]
    load = smoothed.bucket_load * np.where(worked > 0, worked, 1.0)
    return Slices(load, one.bucket_map, speed)


def _sub_query(
    one: Measured, smoothed: Smoothed, ids: tuple[str, ...], settings: ElasticSettings, fleet: Judged
) -> tuple[Judged, ...]:
    if not one.bucket_map.size or not smoothed.settled:
        return (fleet,)
    slices = slices_of(one, smoothed, ids, settings)
    used = slices.utilisation()
    if not used.size:
        return (fleet,)
    mean, deviation, busiest = float(used.mean()), float(used.std()), float(used.max())
    figures = {"utilisation": mean, "imbalance": deviation, "busiest_slice": busiest}
    judged = []
    slow = smoothed.slow(settings.slow_factor)
    if slow and busiest > mean + settings.upper_imbalance:
        worst = max(slow, key=lambda name: slow[name])
        reason = f"{worst} needs {slow[worst]:.1f} times the usual time an event"
        judged.append(Judged(Condition.slow_worker, reason, figures | {"slowness": slow[worst]}))
    if deviation > settings.upper_imbalance:
        reason = (
            f"the slices' utilisation deviates by {deviation:.1%}, more than {settings.upper_imbalance:.0%}"
        )
        judged.append(Judged(Condition.imbalanced, reason, figures))
    elif busiest > settings.upper_utilisation >= mean and busiest > mean + 2 * settings.upper_imbalance:
        reason = f"one slice is at {busiest:.0%} and all epochs wait for it; the mean is {mean:.0%}"
        judged.append(Judged(Condition.imbalanced, reason, figures))
    return tuple(judged) or (fleet,)
