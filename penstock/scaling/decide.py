"""Decides what to change, after StreamCloud's elastic manager. Pure.

`decide` takes a `Situation` (history, settings, costs, the past) and returns one `Decision`. A `Manager` calls it, or
decides otherwise.

In this order: scale out a fleet that is too small to the target utilisation, in one step; move buckets off slow
workers; balance buckets; scale in a fleet that is too large. Each only if it gains more within the horizon than it
costs.

Invariants:
- Nothing is decided in the cool-down or beyond the budget (`limit_decision`, for every manager).
- A change that did not help is not repeated in the same circumstances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from penstock.scaling.balance import balance_slices
from penstock.scaling.cost import Costs, move_gain, needed_executors, provision_gain
from penstock.scaling.decisions import (
    Decision,
    Decommission,
    Move,
    Nothing,
    Provision,
    kind_of,
)
from penstock.scaling.evaluate import Assessment, Condition, Evaluation, build_slices, evaluate
from penstock.scaling.history import History
from penstock.scaling.measurements import Floats, Snapshot, slice_executors
from penstock.scaling.record import Record
from penstock.scaling.settings import ElasticSettings

#: a fleet is not scaled in if this much more load would need all of it
_SAFETY_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Situation:
    """Everything a manager can know."""

    snapshot: Snapshot
    history: History
    settings: ElasticSettings
    costs: Costs = field(default_factory=Costs)
    past: Record = field(default_factory=Record)

    @property
    def cooling_seconds(self) -> float:
        """The rest of the cool-down."""
        last = self.past.last_change_at
        return 0.0 if last is None else max(last + self.settings.cool_down_seconds - self.snapshot.at, 0.0)

    @property
    def room(self) -> int:
        """How many more executors the budget allows."""
        return max(self.settings.most_executors - self.snapshot.fleet.size, 0)


def decide(now: Situation) -> Decision:
    """The decision of the default manager."""
    if now.cooling_seconds > 0:
        return Nothing(f"cooling down for another {now.cooling_seconds:.0f} s")
    evaluation = evaluate(now.history, now.settings)
    blocked: Nothing | None = None
    for wish in (_restore_minimum, _grow, _avoid_slow_workers, _balance, _shrink):
        wanted = wish(now, evaluation)
        if wanted is None:
            continue
        decision = limit_decision(wanted, now)
        if not isinstance(decision, Nothing):
            return decision
        blocked = blocked or decision
    return blocked or Nothing(evaluation.fleet.reason, evaluation.fleet.figures)


def limit_decision(decision: Decision, now: Situation) -> Decision:
    """Limit a manager's decision to the cool-down, the budget, the largest step and what is worth trying."""
    if isinstance(decision, Nothing):
        return decision
    if now.cooling_seconds > 0:
        return Nothing(f"cooling down for another {now.cooling_seconds:.0f} s", decision.inputs)
    fleet, settings = now.snapshot.fleet, now.settings
    if isinstance(decision, Provision):
        if decision.count < 1:
            return Nothing(f"{decision.reason}; {decision.count} executors are not a change", decision.inputs)
        count = min(decision.count, now.room, settings.largest_step)
        if count < 1:
            most = settings.most_executors
            return Nothing(f"{decision.reason}; the budget of {most} executors is used up", decision.inputs)
        decision = replace(decision, count=count)
    elif isinstance(decision, Decommission):
        known = [name for name in decision.executors if name in fleet.ids]
        count = min(len(known), settings.largest_step, fleet.size - settings.least_executors)
        if count < 1:
            return Nothing(f"{decision.reason}; the fleet has its minimum size", decision.inputs)
        decision = replace(decision, executors=tuple(known[:count]))
    elif isinstance(decision, Move):
        decision = replace(decision, buckets=_select_possible(decision, now.snapshot))
        if not decision.buckets:
            return Nothing(f"{decision.reason}; no bucket can move", decision.inputs)
    else:
        raise TypeError(f"{decision!r} is not a decision")
    before = now.past.find_failed_attempt(decision, now.snapshot.at, settings)
    if before is not None:
        return Nothing(f"{kind_of(decision)} {before.outcome} last time: {before.why}", decision.inputs)
    return decision


def _select_possible(move: Move, snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    one = snapshot.stages.get(move.stage)
    if one is None:
        return {}
    live = one.live
    return {
        bucket: (old, new)
        for bucket, (old, new) in move.buckets.items()
        if 0 <= bucket < one.bucket_map.size
        and one.bucket_map[bucket] == old != new
        and 0 <= new < live.size
        and live[new]
    }


def _restore_minimum(now: Situation, _: Evaluation) -> Decision | None:
    """Replace executors that failed, up to the minimum size."""
    size, least = now.snapshot.fleet.size, now.settings.least_executors
    if size >= least:
        return None
    return Provision(
        least - size, f"{size} executors are fewer than the minimum, {least}", {"executors": float(size)}
    )


def _grow(now: Situation, evaluation: Evaluation) -> Decision | None:
    assessed, fleet = evaluation.fleet, now.snapshot.fleet
    if assessed.condition != Condition.over:
        return None
    load, waiting = assessed.figures["load_cores"], assessed.figures["waiting_core_seconds"]
    needed = needed_executors(load, waiting, fleet.cores_each, now.settings)
    useful = useful_executors(now.snapshot)
    inputs = dict(assessed.figures) | {"needed_executors": float(needed)}
    if needed > fleet.size and (stuck := _find_bottleneck(now)) is not None:
        return Nothing(f"{assessed.reason}; {stuck}", inputs)
    if min(needed, useful) <= fleet.size:
        if needed <= fleet.size:
            return None  # enough executors, unevenly used: left to balancing
        return Nothing(f"{assessed.reason}; there are only buckets for {useful} executors", inputs)
    gain = provision_gain(load + waiting / now.settings.drain_seconds, fleet.all_cores, now.settings)
    cost = now.costs.start_seconds + now.costs.pause_seconds
    inputs |= {"gain_seconds": gain, "cost_seconds": cost}
    if gain <= cost:
        return Nothing(f"{assessed.reason}; but it would cost {cost:.0f} s to gain {gain:.0f} s", inputs)
    return Provision(min(needed, useful) - fleet.size, assessed.reason, inputs)


def _find_bottleneck(now: Situation) -> str | None:
    """Find a bucket that alone overloads its slice, so that more executors cannot help."""
    for name, one in now.snapshot.stages.items():
        load = now.history.smoothed[name].bucket_load
        total = float(load.sum())
        if total <= 0 or one.backlog_seconds <= now.settings.tolerated_backlog_seconds:
            continue
        heaviest = int(load.argmax())
        needs = float(load[heaviest]) / total * one.input_rate * now.history.smoothed[name].cost_seconds
        there = float(load[one.bucket_map == one.bucket_map[heaviest]].sum())
        if needs >= now.settings.upper_utilisation and load[heaviest] >= 0.8 * there:
            return (
                f"but bucket {heaviest} of {name} alone needs {needs:.1f} cores: more executors cannot help"
            )
    return None


def useful_executors(snapshot: Snapshot) -> int:
    """The most executors that could have a bucket of some stage."""
    most = max((one.bucket_map.size for one in snapshot.stages.values()), default=0)
    return max(int(most // snapshot.fleet.cores_each), 1) if most else 1_000_000


def _shrink(now: Situation, evaluation: Evaluation) -> Decision | None:
    assessed, fleet, settings = evaluation.fleet, now.snapshot.fleet, now.settings
    if assessed.condition != Condition.under:
        return None
    load = assessed.figures["load_cores"]
    needed = needed_executors(load, 0.0, fleet.cores_each, settings)
    if needed_executors(load * (1 + _SAFETY_SHARE), 0.0, fleet.cores_each, settings) >= fleet.size:
        return None  # a little more of the same load would need all of them
    count = min(fleet.size - max(needed, settings.least_executors), settings.largest_step)
    if count < 1:
        return None
    loads, held = executor_loads(now)
    order = np.argsort(loads, kind="stable")
    leaving = order[:count]
    moving = now.costs.move_seconds(float(held[leaving].sum()), fleet.size - count)
    cost = count * now.costs.start_seconds + (fleet.size - count) * now.costs.pause_seconds + moving
    gain = count * settings.horizon_seconds
    inputs = dict(assessed.figures) | {
        "needed_executors": float(needed),
        "gain_seconds": gain,
        "cost_seconds": cost,
    }
    if gain <= cost:
        return Nothing(f"{assessed.reason}; but it would cost {cost:.0f} s to gain {gain:.0f} s", inputs)
    return Decommission(tuple(fleet.ids[at] for at in leaving), assessed.reason, inputs)


def executor_loads(now: Situation) -> tuple[Floats, Floats]:
    """The load in cores and the bytes of state of each executor, over all stages."""
    ids = now.snapshot.fleet.ids
    load, held = np.zeros(len(ids)), np.zeros(len(ids))
    for name, one in now.snapshot.stages.items():
        if not one.bucket_map.size:
            continue
        owner = slice_executors(one.placement, ids)[one.bucket_map]
        here = owner >= 0
        smoothed = now.history.smoothed[name]
        load += np.bincount(owner[here], smoothed.bucket_load[here], minlength=len(ids))
        held += np.bincount(owner[here], smoothed.bucket_bytes[here], minlength=len(ids))
    return load, held


def _avoid_slow_workers(now: Situation, evaluation: Evaluation) -> Decision | None:
    return _choose_move(now, evaluation.of(Condition.slow_worker))


def _balance(now: Situation, evaluation: Evaluation) -> Decision | None:
    return _choose_move(now, evaluation.of(Condition.imbalanced))


def _choose_move(now: Situation, assessed: list[tuple[str, Assessment]]) -> Decision | None:
    """Choose the first move whose gain exceeds its cost."""
    refused: Nothing | None = None
    for name, found in assessed:
        one, settings = now.snapshot.stages[name], now.settings
        slices = build_slices(one, now.history.smoothed[name], now.snapshot.fleet.ids, settings)
        moves = balance_slices(slices, settings.minimum_improvement)
        after = slices.apply_moves(moves)
        before = slices.deviation()
        gain = move_gain(slices.busiest(), after.busiest(), settings)
        state = float(one.bucket_bytes[list(moves)].sum()) if moves else 0.0
        cost = now.costs.move_seconds(state, len({to for _, to in moves.values()}))
        inputs = dict(found.figures) | {
            "imbalance_after": after.deviation(),
            "moved_bytes": state,
            "gain_seconds": gain,
            "cost_seconds": cost,
        }
        if before - after.deviation() < max(settings.minimum_improvement * before, 1e-9):
            refused = refused or Nothing(f"{found.reason}; no move of buckets would lower it enough", inputs)
        elif gain <= cost:
            refused = refused or Nothing(
                f"{found.reason}; but it would cost {cost:.0f} s to gain {gain:.0f} s", inputs
            )
        else:
            return Move(name, moves, found.reason, inputs)
    return refused


class Manager(Protocol):
    """The user's own decisions, in every period. They are limited by the cool-down, the budget and the largest step.

    A manager that adds one executor whenever more than five seconds of work wait:

        class Simple:
            def decide(self, now):
                if now.snapshot.backlog_seconds > 5:
                    return [Provision(1, "work waits")]
                return []

    `simulate_scaling(..., manager=Simple())` tries it on a day of load.
    """

    def decide(self, now: Situation) -> Sequence[Decision]:
        """Decide what to change now; an empty list is fine. Several are executed together if they do not conflict."""


class DefaultManager:
    """StreamCloud's rules, as `decide` implements them."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        """One decision at a time."""
        return [decide(now)]
