"""What to do about it: the deciding stage, after StreamCloud's elastic manager. Pure.

Receives a `Situation` (history, settings, costs, the past); hands one `Decision`.

In this order: too small a fleet grows to the target utilisation in one step; a slow worker's buckets go elsewhere;
buckets are balanced; too large a fleet shrinks. Each only if it gains more within the horizon than it costs.

Invariants:
- Nothing is decided in the cool-down, and nothing that would leave the budget (`restrained`, for every manager).
- What did not help is not decided again while circumstances are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.scaling.balance import balanced
from penstock.scaling.cost import Costs, move_gain, needed_executors, provision_gain
from penstock.scaling.decisions import (
    Decision,
    Decommission,
    Move,
    Nothing,
    Provision,
    kind_of,
)
from penstock.scaling.evaluate import Condition, Evaluation, Judged, evaluate, slices_of
from penstock.scaling.history import History
from penstock.scaling.measurements import Floats, Snapshot, slice_executors
from penstock.scaling.record import Record
from penstock.scaling.settings import ElasticSettings

#: a fleet is not made smaller if this much more load would need all of it
_DOUBT = 0.1


@dataclass(frozen=True, eq=False)
class Situation:
    """Everything a manager may know."""

    snapshot: Snapshot
    history: History
    settings: ElasticSettings
    costs: Costs = field(default_factory=Costs)
    past: Record = field(default_factory=Record)

    @property
    def cooling_seconds(self) -> float:
        """How much of the cool-down is left."""
        last = self.past.last_change_at
        return 0.0 if last is None else max(last + self.settings.cool_down_seconds - self.snapshot.at, 0.0)

    @property
    def room(self) -> int:
        """How many executors the budget still has."""
        return max(self.settings.most_executors - self.snapshot.fleet.size, 0)


def decide(now: Situation) -> Decision:
    """The decision of the default manager."""
    if now.cooling_seconds > 0:
        return Nothing(f"cooling down for another {now.cooling_seconds:.0f} s")
    evaluation = evaluate(now.history, now.settings)
    blocked: Nothing | None = None
    for wish in (_least, _grow, _leave_slow, _even_out, _shrink):
        wanted = wish(now, evaluation)
        if wanted is None:
            continue
        decision = restrained(wanted, now)
        if not isinstance(decision, Nothing):
            return decision
        blocked = blocked or decision
    return blocked or Nothing(evaluation.fleet.reason, evaluation.fleet.figures)


def restrained(decision: Decision, now: Situation) -> Decision:
    """A decision held to cool-down, budget, largest step and experience, whoever made it."""
    if isinstance(decision, Nothing):
        return decision
    if now.cooling_seconds > 0:
        return Nothing(f"cooling down for another {now.cooling_seconds:.0f} s", decision.inputs)
    fleet, settings = now.snapshot.fleet, now.settings
    if isinstance(decision, Provision):
        if decision.count < 1:
            return Nothing(f"{decision.reason}; {decision.count} executors are none", decision.inputs)
        count = min(decision.count, now.room, settings.largest_step)
        if count < 1:
            most = settings.most_executors
            return Nothing(f"{decision.reason}; the budget of {most} executors is used up", decision.inputs)
        decision = replace(decision, count=count)
    elif isinstance(decision, Decommission):
        known = [name for name in decision.executors if name in fleet.ids]
        count = min(len(known), settings.largest_step, fleet.size - settings.least_executors)
        if count < 1:
            return Nothing(f"{decision.reason}; the fleet has its least size", decision.inputs)
        decision = replace(decision, executors=tuple(known[:count]))
    elif isinstance(decision, Move):
        decision = replace(decision, buckets=_possible(decision, now.snapshot))
        if not decision.buckets:
            return Nothing(f"{decision.reason}; no bucket can go elsewhere", decision.inputs)
    else:
        raise TypeError(f"{decision!r} is not a decision")
    before = now.past.in_vain(decision, now.snapshot.at, settings)
    if before is not None:
        return Nothing(f"{kind_of(decision)} {before.outcome} last time: {before.why}", decision.inputs)
    return decision


def _possible(move: Move, snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    one = snapshot.sub_queries.get(move.sub_query)
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


def _least(now: Situation, _: Evaluation) -> Decision | None:
    """Executors that have died are replaced up to the least size."""
    size, least = now.snapshot.fleet.size, now.settings.least_executors
    if size >= least:
        return None
    return Provision(
        least - size, f"{size} executors are fewer than the least, {least}", {"executors": float(size)}
    )


def _grow(now: Situation, evaluation: Evaluation) -> Decision | None:
    judged, fleet = evaluation.fleet, now.snapshot.fleet
    if judged.condition != Condition.over:
        return None
    load, waiting = judged.figures["load_cores"], judged.figures["waiting_core_seconds"]
    needed = needed_executors(load, waiting, fleet.cores_each, now.settings)
    useful = useful_executors(now.snapshot)
    inputs = dict(judged.figures) | {"needed_executors": float(needed)}
    if needed > fleet.size and (stuck := _too_heavy(now)) is not None:
        return Nothing(f"{judged.reason}; {stuck}", inputs)
    if min(needed, useful) <= fleet.size:
        if needed <= fleet.size:
            return None  # enough of them, unevenly used: balancing's business
        return Nothing(f"{judged.reason}; there are only buckets for {useful} executors", inputs)
    gain = provision_gain(load + waiting / now.settings.drain_seconds, fleet.all_cores, now.settings)
    cost = now.costs.start_seconds + now.costs.pause_seconds
    inputs |= {"gain_seconds": gain, "cost_seconds": cost}
    if gain <= cost:
        return Nothing(f"{judged.reason}; but it would cost {cost:.0f} s to gain {gain:.0f} s", inputs)
    return Provision(min(needed, useful) - fleet.size, judged.reason, inputs)


def _too_heavy(now: Situation) -> str | None:
    """Why no executor could help: one bucket alone is more than a slice can do, and all wait for it."""
    for name, one in now.snapshot.sub_queries.items():
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
    """More than these would have no bucket of any sub-query."""
    most = max((one.bucket_map.size for one in snapshot.sub_queries.values()), default=0)
    return max(int(most // snapshot.fleet.cores_each), 1) if most else 1_000_000


def _shrink(now: Situation, evaluation: Evaluation) -> Decision | None:
    judged, fleet, settings = evaluation.fleet, now.snapshot.fleet, now.settings
    if judged.condition != Condition.under:
        return None
    load = judged.figures["load_cores"]
    needed = needed_executors(load, 0.0, fleet.cores_each, settings)
    if needed_executors(load * (1 + _DOUBT), 0.0, fleet.cores_each, settings) >= fleet.size:
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
    inputs = dict(judged.figures) | {
        "needed_executors": float(needed),
        "gain_seconds": gain,
        "cost_seconds": cost,
    }
    if gain <= cost:
        return Nothing(f"{judged.reason}; but it would cost {cost:.0f} s to gain {gain:.0f} s", inputs)
    return Decommission(tuple(fleet.ids[at] for at in leaving), judged.reason, inputs)


def executor_loads(now: Situation) -> tuple[Floats, Floats]:
    """The load in cores and the bytes of state of each executor, over all sub-queries."""
    ids = now.snapshot.fleet.ids
    load, held = np.zeros(len(ids)), np.zeros(len(ids))
    for name, one in now.snapshot.sub_queries.items():
        if not one.bucket_map.size:
            continue
        owner = slice_executors(one.placement, ids)[one.bucket_map]
        here = owner >= 0
        smoothed = now.history.smoothed[name]
        load += np.bincount(owner[here], smoothed.bucket_load[here], minlength=len(ids))
        held += np.bincount(owner[here], smoothed.bucket_bytes[here], minlength=len(ids))
    return load, held


def _leave_slow(now: Situation, evaluation: Evaluation) -> Decision | None:
    return _moved(now, evaluation.of(Condition.slow_worker))


def _even_out(now: Situation, evaluation: Evaluation) -> Decision | None:
    return _moved(now, evaluation.of(Condition.imbalanced))


def _moved(now: Situation, judged: list[tuple[str, Judged]]) -> Decision | None:
    """The first move that is worth it."""
    refused: Nothing | None = None
    for name, found in judged:
        one, settings = now.snapshot.sub_queries[name], now.settings
        slices = slices_of(one, now.history.smoothed[name], now.snapshot.fleet.ids, settings)
        moves = balanced(slices, settings.minimum_improvement)
        after = slices.moved(moves)
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
