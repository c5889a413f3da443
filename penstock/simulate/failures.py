"""Simulates the fault-tolerance controller on the model of an engine that fails. Deterministic for a seed.

Receives a load, settings and failures; returns series, recoveries, decisions and a summary.

Does not simulate a failure during another recovery, or before the new secondary is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.errors import UserError
from penstock.ha.controller import decide, initial_state
from penstock.ha.cost import RESOURCES, overhead
from penstock.ha.decision import Decision
from penstock.ha.estimate import Estimate, estimate
from penstock.ha.history import Load, Measured, Recovered, outlook
from penstock.ha.schemes import Scheme, Step
from penstock.ha.settings import ControllerSettings
from penstock.simulate.axis import Floats
from penstock.simulate.engine_model import EngineModel, Recovery, Truth
from penstock.simulate.loads import draw_rates, follow_rates

ORDER = tuple(Scheme)


@dataclass(frozen=True)
class FailureRun:
    """The parameters of a run."""

    trace: str = "day"
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    truth: Truth = field(default_factory=Truth)
    hours: float = 24.0
    period_seconds: float = 10.0
    mean_rate: float = 100_000.0
    state_bytes: float = 50e6
    #: how far back the state reaches, and by which factor it grows until the end
    window_seconds: float = 600.0
    growth: float = 1.0
    kills: int = 20
    #: failures are at least this far apart, so that a new secondary is up
    kill_gap_seconds: float = 180.0
    seed: int = 1
    #: stay in this scheme, without the controller
    constant: Scheme | None = None


@dataclass(frozen=True, eq=False)
class FailureSeries:
    """The values of every period."""

    at: Floats
    rate: Floats
    state_bytes: Floats
    #: index of the scheme in `ORDER`
    scheme: Floats
    checkpoint_every: Floats
    estimated_seconds: Floats
    cost: Floats
    #: the cost of constant active replication
    active_cost: Floats
    #: (resource, period), in multiples of the primary's
    overhead: Floats
    active_overhead: Floats


@dataclass(frozen=True, eq=False)
class FailureResult:
    """The result of a run."""

    run: FailureRun
    series: FailureSeries
    recoveries: tuple[Recovery, ...]
    #: those that changed something
    decisions: tuple[Decision, ...]
    #: periods in which no scheme was within the threshold
    unsuited: int

    def time_shares(self) -> dict[str, float]:
        """The share of the time spent in each scheme."""
        counts = Counter(self.series.scheme.astype(int).tolist())
        return {str(scheme): counts[place] / self.series.at.size for place, scheme in enumerate(ORDER)}

    def summarize(self) -> dict[str, Any]:
        """Summarize the run. Shares are of what constant active replication takes."""
        series, recoveries = self.series, self.recoveries
        cost, active = float(series.cost.mean()), float(series.active_cost.mean())
        ratios = [r.estimated_seconds / r.seconds for r in recoveries if r.seconds > 0]
        return {
            "hours": round(series.at.size * self.run.period_seconds / 3600, 4),
            "threshold_seconds": self.run.settings.threshold_seconds,
            "recoveries": len(recoveries),
            "kept": sum(recovery.within_threshold for recovery in recoveries),
            "worst_recovery_seconds": max((r.seconds for r in recoveries), default=0.0),
            "least_estimate_over_measured": min(ratios, default=1.0),
            "switches": sum(decision.switched for decision in self.decisions),
            "unsuited_share": self.unsuited / series.at.size,
            "cost": cost,
            "cost_share": cost / active,
            "cost_share_with_primary": (1 + cost) / (1 + active),
            "resource_shares": {
                name: float(series.overhead[row].mean() / max(series.active_overhead[row].mean(), 1e-12))
                for row, name in enumerate(RESOURCES)
            },
            "time_shares": self.time_shares(),
        }


def simulate_failures(run: FailureRun) -> FailureResult:
    """Run the controller over the whole load."""
    return _Simulation(run).run_all()


class _Simulation:
    """One run. The scheme that protects may lag behind the decided one: a better secondary must start first."""

    def __init__(self, run: FailureRun) -> None:
        self.run = run
        period = run.period_seconds
        if not period > 0 or not run.hours > 0:
            raise UserError("BAD_SIMULATION", "a run needs a length and a period above 0")
        self.rates = draw_rates(run.trace, run.hours * 3600, period, run.mean_rate, run.seed)
        self.states = follow_rates(self.rates, period, run.state_bytes, run.window_seconds, run.growth)
        self.kills = list(_draw_kills(run, self.rates.size * period))
        self.model = EngineModel(run.truth, run.seed)
        self.state = initial_state(run.settings, 0.0)
        if run.constant is not None:
            self.state = replace(self.state, scheme=run.constant)
        self.measured, _ = self.model.start_secondary(self.state.scheme)
        #: the scheme that protects, its interval, and when the decided scheme replaces it
        self.scheme, self.every = self.state.scheme, self.state.checkpoint_every
        self.ready_at = 0.0
        self.recoveries: list[Recovery] = []
        self.decisions: list[Decision] = []
        self.unsuited = 0

    def run_all(self) -> FailureResult:
        """Simulate all periods."""
        run, settings = self.run, self.run.settings
        plain, taken_of, active_of = (np.zeros((rows, self.rates.size)) for rows in (8, 4, 4))
        first = min(settings.checkpoint_choices)
        cpu = run.truth.manifest_cpu_seconds
        for place in range(self.rates.size):
            at = place * run.period_seconds
            load = self.model.load(at, float(self.rates[place]), float(self.states[place]))
            self.measured.append(self.model.measure_load(load))
            estimated = self._advance(at, load)
            while self.kills and self.kills[0] < at + run.period_seconds:
                self._kill_primary(self.kills.pop(0), load)
            # the decided scheme is paid for at once, also while its secondary starts
            taken = overhead(self.state.scheme, load, self.state.checkpoint_every, cpu)
            active = overhead(Scheme.active_replication, load, first, cpu)
            taken_of[:, place], active_of[:, place] = taken, active
            plain[:, place] = (
                at,
                load.events_per_second,
                load.state_bytes,
                ORDER.index(self.scheme),
                self.every,
                estimated,
                settings.weights.cost(taken),
                settings.weights.cost(active),
            )
        at_of, rate, state, scheme, every, estimated_of, cost, active_cost = plain
        series = FailureSeries(
            at_of, rate, state, scheme, every, estimated_of, cost, active_cost, taken_of, active_of
        )
        return FailureResult(run, series, tuple(self.recoveries), tuple(self.decisions), self.unsuited)

    def _advance(self, at: float, load: Load) -> float:
        """Measure, decide, start a switch. Returns the estimate of the scheme that protects now."""
        if at >= self.ready_at:
            self.scheme, self.every = self.state.scheme, self.state.checkpoint_every
        if self.run.constant is None:
            before = self.state.scheme
            self.state, decision = decide(self.state, self.measured, self.run.settings, at)
            self.unsuited += not decision.suits
            if decision.changed:
                self.decisions.append(decision)
            if decision.switched:
                self.ready_at = at + self.model.switch_seconds(before, decision.chosen, load)
                if self.ready_at <= at:
                    self.scheme = self.state.scheme
            if not decision.switched and at >= self.ready_at:
                self.every = self.state.checkpoint_every
        else:
            self.state = replace(self.state, history=self.state.history.fold(self.measured))
        self.measured = []
        return self._estimate().seconds

    def _estimate(self) -> Estimate:
        history, settings = self.state.history, self.run.settings
        ahead = outlook(history.loads, settings.ahead_seconds)
        return estimate(self.scheme, self.every, settings.semantics, history, ahead, settings.margin)

    def _kill_primary(self, at: float, load: Load) -> None:
        """Kill the primary; the secondary is promoted and a new secondary starts."""
        settings, estimated = self.run.settings, self._estimate()
        took = self.model.recover(self.scheme, self.every, settings.semantics, load)
        seconds = sum(took.values())
        self.recoveries.append(
            Recovery(
                at,
                self.scheme,
                self.every,
                seconds,
                estimated.seconds,
                took,
                within_threshold=seconds <= settings.threshold_seconds,
            )
        )
        self.measured.append(Recovered(self.scheme, estimated.step_seconds, seconds))
        # the lease expires in every scheme, also where no result waits for it
        durations = {Step.detect.value: self.model.truth.lease_seconds, **took}
        for step in (Step.detect, Step.wire, Step.deliver):
            if step.value in durations:
                self.measured.append(Measured(step.value, durations[step.value]))
        more, _ = self.model.start_secondary(self.scheme)
        self.measured += more


def _draw_kills(run: FailureRun, seconds: float) -> Iterator[float]:
    """Draw the times of the kills: at random, but never during another recovery."""
    room = seconds - run.kills * run.kill_gap_seconds
    if run.kills < 0 or (run.kills and room <= 0):
        raise UserError(
            "TOO_MANY_KILLS",
            f"{run.kills} kills at least {run.kill_gap_seconds:g} s apart do not fit into {seconds:,.0f} s",
            hint="Take fewer kills or a longer load.",
        )
    drawn = np.sort(np.random.default_rng([run.seed, 7]).uniform(0.0, max(room, 0.0), run.kills))
    for count, at in enumerate(drawn):
        yield float(at) + (count + 0.5) * run.kill_gap_seconds
