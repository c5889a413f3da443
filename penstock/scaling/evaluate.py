"""Evaluates measurements: whether the fleet is too small or too large, and which stages have a problem. Pure.

Receives a `History` and the settings; returns an `Evaluation`. Decides nothing.

*Over*: the load was above the upper utilisation in every third of `patience_seconds`; or the backlog is more than
tolerated and cannot be drained in time. So noise that averages out has no effect, and a real surge does not wait.
*Under*: the load was below the lower utilisation in every third of `patience_seconds`, and the backlog is tolerated.
*Imbalanced*: the deviation is above the upper imbalance, or one slice is above the upper utilisation while the
stage as a whole is not: an epoch is as long as its busiest slice.
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
    """The condition of the fleet or a stage."""

    over = "over"
    under = "under"
    imbalanced = "imbalanced"
    slow_worker = "slow worker"
    steady = "steady"


@dataclass(frozen=True)
class Assessment:
    """A condition, the reason, and the values it is based on."""

    condition: Condition
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The fleet's condition, and the conditions of each stage."""

    fleet: Assessment
    stages: Mapping[str, tuple[Assessment, ...]]

    def of(self, condition: Condition) -> list[tuple[str, Assessment]]:
        """The stages in a condition."""
        return [
            (n, one) for n, assessed in self.stages.items() for one in assessed if one.condition == condition
        ]


def evaluate(history: History, settings: ElasticSettings) -> Evaluation:
    """Evaluate the fleet and every stage."""
    snapshot = history.latest
    if snapshot is None or not snapshot.fleet.ids:
        return Evaluation(Assessment(Condition.steady, "nothing has been measured yet"), {})
    fleet = _assess_fleet(history, settings)
    if history.covered_seconds < settings.window_seconds:
        return Evaluation(fleet, dict.fromkeys(snapshot.stages, (fleet,)))
    return Evaluation(
        fleet,
        {
            name: _assess_stage(one, history.smoothed[name], snapshot.fleet.ids, settings, fleet)
            for name, one in snapshot.stages.items()
        },
    )


def _assess_fleet(history: History, settings: ElasticSettings) -> Assessment:
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
        "waiting_core_seconds": history.waiting_core_seconds(),
    }
    upper, lower = settings.upper_utilisation, settings.lower_utilisation
    draining = (now + history.waiting_core_seconds() / settings.drain_seconds) / cores
    # a fleet sized during a rise is too small: wait for its end unless the backlog grows too much
    tolerated = settings.tolerated_backlog_seconds * (3 if history.is_rising() else 1)
    if behind > tolerated and draining > upper:
        return Assessment(
            Condition.over,
            f"{behind:.0f} s of work wait and {now / cores:.0%} of the fleet would be needed for the input alone",
            figures,
        )
    # decided, and reported, by the load over all of `patience_seconds`
    patient = figures | {"utilisation": long / cores, "newest_utilisation": window / cores}
    if history.is_complete and min([*thirds, window]) > upper * cores:
        return Assessment(
            Condition.over,
            f"utilisation {long / cores:.1%} is above {upper:.0%}",
            patient | {"load_cores": max(now, long)},
        )
    idle = behind <= settings.tolerated_backlog_seconds
    if history.is_complete and idle and max([*thirds, window]) < lower * cores:
        return Assessment(
            Condition.under,
            f"utilisation {long / cores:.1%} is below {lower:.0%}",
            patient | {"load_cores": max([*thirds[1:], window])},
        )
    return Assessment(Condition.steady, f"utilisation {window / cores:.0%}", figures)


def build_slices(
    one: Measured, smoothed: Smoothed, ids: tuple[str, ...], settings: ElasticSettings
) -> Slices:
    """Build the slices of a stage for balancing: a slow worker's time counts as less work, its slices as slower."""
    owner = slice_executors(one.placement, ids)
    speed = np.where(one.live & (owner >= 0), 1.0, 0.0)
    slow = np.where(smoothed.slowness >= settings.slow_factor, 1.0 / smoothed.slowness, 1.0)
    speed *= np.where(owner >= 0, slow[owner], 0.0) if ids else 0.0
    worked = speed[one.bucket_map]
    load = smoothed.bucket_load * np.where(worked > 0, worked, 1.0)
    return Slices(load, one.bucket_map, speed)


def _assess_stage(
    one: Measured, smoothed: Smoothed, ids: tuple[str, ...], settings: ElasticSettings, fleet: Assessment
) -> tuple[Assessment, ...]:
    if not one.bucket_map.size or not smoothed.settled:
        return (fleet,)
    slices = build_slices(one, smoothed, ids, settings)
    used = slices.utilisation()
    if not used.size:
        return (fleet,)
    mean, deviation, busiest = float(used.mean()), float(used.std()), float(used.max())
    figures = {"utilisation": mean, "imbalance": deviation, "busiest_slice": busiest}
    assessed = []
    slow = smoothed.find_slow(settings.slow_factor)
    if slow and busiest > mean + settings.upper_imbalance:
        worst = max(slow, key=lambda name: slow[name])
        reason = f"{worst} needs {slow[worst]:.1f} times the usual time an event"
        assessed.append(Assessment(Condition.slow_worker, reason, figures | {"slowness": slow[worst]}))
    if deviation > settings.upper_imbalance:
        reason = (
            f"the slices' utilisation deviates by {deviation:.1%}, more than {settings.upper_imbalance:.0%}"
        )
        assessed.append(Assessment(Condition.imbalanced, reason, figures))
    elif busiest > settings.upper_utilisation >= mean and busiest > mean + 2 * settings.upper_imbalance:
        reason = f"one slice is at {busiest:.0%} and all epochs wait for it; the mean is {mean:.0%}"
        assessed.append(Assessment(Condition.imbalanced, reason, figures))
    return tuple(assessed) or (fleet,)
