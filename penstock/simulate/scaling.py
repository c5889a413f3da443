"""Simulates the elastic loop on the model of a cluster: a day of load in seconds. Deterministic for a seed.

Receives a trace, the settings, the model's settings and a manager; returns series and a summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from penstock.errors import UserError
from penstock.moved import former_names, former_parameters
from penstock.scaling.cost import needed_executors
from penstock.scaling.decide import Manager
from penstock.scaling.decisions import Move, kind_of
from penstock.scaling.loop import Loop
from penstock.scaling.record import Entry, Outcome, Record
from penstock.scaling.settings import ElasticSettings
from penstock.simulate.axis import Floats
from penstock.simulate.cluster_model import STAGE, ModelCluster, ModelSettings
from penstock.simulate.loads import Trace, find_spread

#: receives the share of the run that is over
Report = Callable[[float], None]


@dataclass(frozen=True)
class ScalingRun:
    """The parameters of a run."""

    trace: Trace = field(default_factory=Trace)
    settings: ElasticSettings = field(default_factory=ElasticSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    hours: float = 1.0
    period_seconds: float = 5.0
    seed: int = 1
    spread: str = "even"
    #: executors at the start; None: as many as the first rates need
    start: int | None = None
    #: whether the loop is on; off, the fleet and the bucket map stay as they are
    elastic: bool = True


@dataclass(frozen=True, eq=False)
class ScalingSeries:
    """The values of every period."""

    at: Floats
    rate: Floats
    processed: Floats
    #: active executors
    executors: Floats
    spare: Floats
    utilisation: Floats
    imbalance: Floats
    backlog_seconds: Floats


@former_names(figures="summarize")
@dataclass(frozen=True, eq=False)
class ScalingResult:
    """The result of a run."""

    run: ScalingRun
    series: ScalingSeries
    record: Record
    lost_executors: int
    #: whether orders are still under way
    unfinished: bool

    @property
    def changes(self) -> list[Entry]:
        """Decisions that were started."""
        return [entry for entry in self.record.entries if entry.outcome != Outcome.dry_run]

    def summarize(self) -> dict[str, float]:
        """Summarize the run."""
        series, period = self.series, self.run.period_seconds
        kinds = Counter(kind_of(entry.decision) for entry in self.changes)
        outcomes = Counter(str(entry.outcome) for entry in self.changes)
        moves = [len(e.decision.buckets) for e in self.changes if isinstance(e.decision, Move)]
        behind = series.backlog_seconds
        return {
            "hours": self.run.hours,
            "mean_rate": float(series.rate.mean()),
            "most_rate": float(series.rate.max()),
            "least_executors": float(series.executors.min()),
            "most_executors": float(series.executors.max()),
            "executor_hours": float((series.executors + series.spare).sum() * period / 3600),
            "mean_utilisation": float(series.utilisation.mean()),
            "mean_imbalance": float(series.imbalance.mean()),
            "worst_backlog_seconds": float(behind.max()),
            "behind_share": float((behind > self.run.settings.tolerated_backlog_seconds).mean()),
            "last_backlog_seconds": float(behind[-1]),
            "provisions": float(kinds["provision"]),
            "decommissions": float(kinds["decommission"]),
            "moves": float(kinds["move"]),
            "moved_buckets": float(sum(moves)),
            "helped": float(outcomes["helped"]),
            "did_not_help": float(outcomes["did not help"]),
            "failed": float(outcomes["failed"]),
            "undone": float(outcomes["undone"]),
            "lost_executors": float(self.lost_executors),
        }


@former_parameters(tell="report")
def simulate_scaling(
    run: ScalingRun, manager: Manager | None = None, report: Report | None = None
) -> ScalingResult:
    """Run the loop over the whole trace."""
    seconds, period = run.hours * 3600, run.period_seconds
    rates = run.trace.rates(seconds, period, run.seed)
    spread = find_spread(run.spread, run.model.buckets, run.seed)
    cluster = ModelCluster(run.model, choose_start_size(run, rates), run.seed)
    loop = Loop.start(run.settings, manager, run.model.costs)
    rows = np.zeros((8, rates.size))
    for at, rate in enumerate(rates):
        snapshot = cluster.advance(period, float(rate), spread(at / rates.size))
        one = snapshot.stages[STAGE]
        rows[:, at] = (
            snapshot.at,
            rate,
            one.processing_rate,
            snapshot.fleet.size,
            len(snapshot.fleet.spare),
            one.utilisation,
            one.imbalance,
            one.backlog_seconds,
        )
        if run.elastic:
            loop, instructions = loop.turn(snapshot, cluster.take_events())
            if loop.failure is not None:
                raise UserError("MANAGER_FAILED", loop.resting, where=f"period {at}") from loop.failure
            for instruction in instructions:
                cluster.execute(instruction)
        if report is not None and at % 64 == 0:
            report(at / rates.size)
    return ScalingResult(run, ScalingSeries(*rows), loop.record, cluster.lost, bool(loop.orders))


def choose_start_size(run: ScalingRun, rates: Floats) -> int:
    """Choose the number of executors at the start: as given, or what the first minutes' load needs."""
    if run.start is not None:
        return run.start
    first = float(rates[: max(int(120 / run.period_seconds), 1)].mean())
    needed = needed_executors(first / run.model.core_rate, 0.0, run.model.cores, run.settings)
    return min(max(needed, run.settings.least_executors), run.settings.most_executors)
