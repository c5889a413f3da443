"""Simulates the same run with one parameter varied: threshold, state size, costs, semantics or checkpoint interval.

Receives a run; returns rows of plain values, for charts and JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.ha.cost import PRESETS, RESOURCES, CostWeights
from penstock.ha.schemes import Scheme, Semantics
from penstock.simulate.failures import FailureResult, FailureRun, simulate_failures

Row = dict[str, Any]
THRESHOLDS = (0.5, 1.5, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 8.0, 10.0, 15.0, 20.0, 25.0, 30.0)
STATES = (1e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9)
INTERVALS = (1, 2, 5, 10, 20, 30, 60)
#: a resource is saved when it takes at most this share of what active replication takes
SAVED = 0.95


def sweep_thresholds(run: FailureRun, thresholds: Sequence[float] = THRESHOLDS) -> list[Row]:
    """Simulate every threshold: overhead, and time in each scheme."""
    return [
        _row(_threshold(run, threshold), threshold_seconds=threshold, costs=_name(run))
        for threshold in thresholds
    ]


def sweep_costs(run: FailureRun, thresholds: Sequence[float] = THRESHOLDS) -> list[Row]:
    """Simulate every threshold with every preset of weights."""
    return [
        row
        for weights in PRESETS.values()
        for row in sweep_thresholds(replace(run, settings=replace(run.settings, weights=weights)), thresholds)
    ]


def sweep_semantics(run: FailureRun, thresholds: Sequence[float] = THRESHOLDS) -> list[Row]:
    """Simulate every threshold with precise and gap recovery."""
    return [
        {"semantics": str(semantics), **row}
        for semantics in (Semantics.precise, Semantics.gap)
        for row in sweep_thresholds(
            replace(run, settings=replace(run.settings, semantics=semantics)), thresholds
        )
    ]


def sweep_state_sizes(
    run: FailureRun, states: Sequence[float] = STATES, most_seconds: float = 60.0
) -> list[Row]:
    """Find, for every state size, the least threshold that saves each resource; None if none does."""
    rows: list[Row] = []
    for state_bytes in states:
        least: dict[str, float | None] = dict.fromkeys(RESOURCES)
        threshold = 0.5
        while threshold <= most_seconds and None in least.values():
            summary = _threshold(replace(run, state_bytes=state_bytes), threshold).summarize()
            for name, share in summary["resource_shares"].items():
                if least[name] is None and share <= SAVED:
                    least[name] = threshold
            threshold += 0.5 if threshold < 10 else 1.0
        estimates = {
            str(scheme): float(
                simulate_failures(
                    replace(run, state_bytes=state_bytes, constant=scheme)
                ).series.estimated_seconds[-1]
            )
            for scheme in run.settings.schemes
        }
        rows.append(
            {
                "state_bytes": state_bytes,
                "least_threshold_seconds": least,
                "estimated_seconds": estimates,
            }
        )
    return rows


def sweep_intervals(
    run: FailureRun, schemes: Sequence[Scheme], intervals: Sequence[int] = INTERVALS
) -> list[Row]:
    """Simulate constant schemes with every checkpoint interval: recovery time and overhead."""
    rows = []
    for scheme in schemes:
        for every in intervals:
            settings = replace(run.settings, checkpoint_choices=(every,))
            done = simulate_failures(replace(run, settings=settings, constant=scheme))
            seconds = sorted((one.seconds, one.estimated_seconds) for one in done.recoveries) or [(0.0, 0.0)]
            rows.append(
                {
                    "scheme": str(scheme),
                    "checkpoint_every": every,
                    "median_seconds": seconds[len(seconds) // 2][0],
                    "worst_seconds": seconds[-1][0],
                    "estimated_seconds": seconds[-1][1],
                    "overhead": {
                        name: float(done.series.overhead[place].mean())
                        for place, name in enumerate(RESOURCES)
                    },
                }
            )
    return rows


def simulate_constant_schemes(run: FailureRun) -> list[Row]:
    """Simulate every scheme without the controller, on the same load and the same failures."""
    return [
        _row(simulate_failures(replace(run, constant=scheme)), scheme=str(scheme))
        for scheme in run.settings.schemes
    ]


def _threshold(run: FailureRun, threshold: float) -> FailureResult:
    return simulate_failures(replace(run, settings=replace(run.settings, threshold_seconds=threshold)))


def _row(done: FailureResult, **more: object) -> Row:
    return {**more, **{name: value for name, value in done.summarize().items() if name not in more}}


def _name(run: FailureRun) -> str:
    weights: CostWeights = run.settings.weights
    return next((name for name, preset in PRESETS.items() if preset == weights), "own weights")
