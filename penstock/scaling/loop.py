"""The elastic loop: one period's measurements and events in, instructions out. Pure; engine and simulator run it.

Receives a `Snapshot` and the events of a period; returns a new `Loop` and the period's `Instruction`s.

Invariants:
- At most one order that changes the fleet is open, and no other beside it.
- An executor that arrives when none is expected is released.
- A manager that raises decides nothing.
- Nothing is decided while the engine is cold, or while another executor is expected in the place of one that died.
- Every order ends in the record: watched and then judged, failed, or undone.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np

from penstock.moved import former_names
from penstock.scaling.balance import balance_slices, offload_slices
from penstock.scaling.cost import Costs
from penstock.scaling.decide import DefaultManager, Manager, Situation, limit_decision
from penstock.scaling.decisions import Decision, Decommission, Move, Moves, Nothing, Provision
from penstock.scaling.evaluate import build_slices
from penstock.scaling.history import History
from penstock.scaling.measurements import Snapshot
from penstock.scaling.progress import Death, add_deaths
from penstock.scaling.realise import (
    Arrived,
    Event,
    Instruction,
    KeepSpare,
    Lost,
    Order,
    OrderPhase,
    Passed,
    abandon_order,
    open_order,
    set_moves,
    step,
)
from penstock.scaling.record import Outcome, Record, judge
from penstock.scaling.settings import ElasticSettings


@former_names(begun="start")
@dataclass(frozen=True, eq=False)
class Loop:
    """The state of the loop between two periods."""

    settings: ElasticSettings
    history: History
    manager: Manager = field(default_factory=DefaultManager)
    costs: Costs = field(default_factory=Costs)
    record: Record = field(default_factory=Record)
    orders: tuple[Order, ...] = ()
    #: why nothing was done, when that was the newest decision
    resting: str = ""
    spare: int = 0
    #: the executors that failed last
    deaths: tuple[Death, ...] = ()
    #: the last error that the manager raised
    failure: Exception | None = None

    @classmethod
    def start(
        cls,
        settings: ElasticSettings,
        manager: Manager | None = None,
        costs: Costs | None = None,
        record: Record | None = None,
    ) -> Loop:
        """Start a loop without measurements, optionally with the record of earlier ones."""
        history = History(settings.window_seconds, settings.patience_seconds)
        return cls(settings, history, manager or DefaultManager(), costs or Costs(), record or Record())

    def turn(self, snapshot: Snapshot, events: Sequence[Event] = ()) -> tuple[Loop, tuple[Instruction, ...]]:
        """Process one period."""
        deaths = add_deaths(self.deaths, events, snapshot.at)
        loop = replace(self, history=self.history.add(snapshot), deaths=deaths)
        strays = _find_strays(loop.orders, events, snapshot)
        instructions: list[Instruction] = []
        orders = []
        # failures first: the other events of the period were planned without them
        ordered = sorted(events, key=lambda event: not isinstance(event, Lost))
        for order in loop.orders:
            for event in (*ordered, Passed()):
                order, more = step(order, event, snapshot.at, loop.settings)
                instructions += more
            order, more = _plan_moves(order, loop)
            instructions += more
            orders.append(order)
        if strays:
            late = Decommission(strays, "they arrived when none was expected any more")
            order, more = _plan_moves(open_order(len(loop.record.entries), late, snapshot.at)[0], loop)
            loop = replace(loop, record=loop.record.add(late, snapshot.at))
            instructions += more
            orders.append(order)
        loop = replace(loop, orders=tuple(order for order in orders if not order.has_ended))
        for order in orders:
            if order.has_ended:
                loop = replace(loop, record=_record_end(loop.record, order, snapshot))
        loop = replace(loop, record=_judge_watched(loop.record, loop.history, loop.settings))
        if loop.orders:
            loop = replace(loop, resting="")
        else:
            loop, first = _decide(loop, snapshot)
            instructions += first
        expected = snapshot.fleet.size + sum(_count_missing(order) for order in loop.orders)
        spare = max(min(loop.settings.spare_executors, loop.settings.most_executors - expected), 0)
        if spare != loop.spare and not loop.settings.dry_run:
            loop = replace(loop, spare=spare)
            instructions.append(KeepSpare(spare))
        return loop, tuple(instructions)


def _count_missing(order: Order) -> int:
    """Count the executors that were requested and have not arrived."""
    return (
        order.wanted - len(order.executors) if order.phase in (OrderPhase.requested, OrderPhase.coming) else 0
    )


def _plan_moves(order: Order, loop: Loop) -> tuple[Order, tuple[Instruction, ...]]:
    """Plan an order's moves if it needs any; abandon it if too few executors would stay to take the buckets."""
    snapshot = loop.history.latest
    if not order.needs_moves or snapshot is None:
        return order, ()
    if isinstance(order.decision, Decommission) or order.phase == OrderPhase.undoing:
        stay = sum(name not in order.executors for name in snapshot.fleet.ids)
        if stay < loop.settings.least_executors:
            return abandon_order(order, f"only {stay} other executors are left", snapshot.at), ()
    return set_moves(order, choose_moves(order, loop.history, loop.settings), snapshot.at)


def _find_strays(orders: Sequence[Order], events: Sequence[Event], snapshot: Snapshot) -> tuple[str, ...]:
    """Find executors that arrived too late, or that nobody requested."""
    waiting = any(order.phase in (OrderPhase.requested, OrderPhase.coming) for order in orders)
    known = {name for order in orders for name in order.executors}
    stray = [e.executor for e in events if isinstance(e, Arrived) and e.executor not in known]
    return () if waiting else tuple(name for name in stray if name in snapshot.fleet.ids)


def _record_end(record: Record, order: Order, snapshot: Snapshot) -> Record:
    if order.phase == OrderPhase.done:
        outcome = Outcome.watched
    else:
        outcome = (
            Outcome.undone if order.planned else Outcome.failed
        )  # an order that never started is not undone
    return record.set_end(order.number, outcome, snapshot.at, order.why, snapshot.backlog_seconds)


def _judge_watched(record: Record, history: History, settings: ElasticSettings) -> Record:
    for entry in record.find_watched():
        found = judge(entry, history, settings)
        if found is not None and history.latest is not None:
            record = record.set_judgement(entry.number, found[0], history.latest.at, found[1])
    return record


def _decide(loop: Loop, snapshot: Snapshot) -> tuple[Loop, list[Instruction]]:
    if not snapshot.warm:
        return replace(loop, resting="the engine has just started: its throughput will be known soon"), []
    if (missing := _find_pending_replacement(loop, snapshot.at)) is not None:
        return replace(loop, resting=missing), []
    now = Situation(snapshot, loop.history, loop.settings, loop.costs, loop.record)
    if now.cooling_seconds > 0:
        return replace(loop, resting=f"cooling down for another {now.cooling_seconds:.0f} s"), []
    try:
        wanted = loop.manager.decide(now)
        if not isinstance(wanted, Sequence):
            raise TypeError(f"decide must return a list of decisions, not {wanted!r}")
        decisions = [limit_decision(decision, now) for decision in wanted]
    except Exception as failure:  # the user's own code: whatever it raises, the engine continues
        reason = f"the manager raised {type(failure).__name__}: {failure}{_locate_failure(failure)}"
        return replace(loop, resting=reason, failure=failure), []
    chosen = _select_compatible([one for one in decisions if not isinstance(one, Nothing)])
    rest = [one.reason for one in decisions if isinstance(one, Nothing)]
    loop = replace(loop, resting="" if chosen else "; ".join(rest))
    instructions: list[Instruction] = []
    for decision in chosen:
        number = len(loop.record.entries)
        dry = loop.settings.dry_run
        loop = replace(loop, record=loop.record.add(decision, snapshot.at, dry_run=dry))
        if dry:
            continue
        order, more = open_order(number, decision, snapshot.at)
        instructions += more
        order, more = _plan_moves(order, loop)
        instructions += more
        if order.has_ended:
            loop = replace(loop, record=_record_end(loop.record, order, snapshot))
        else:
            loop = replace(loop, orders=(*loop.orders, order))
    return loop, instructions


def _locate_failure(failure: Exception) -> str:
    """Locate the line that raised an error."""
    frames = traceback.extract_tb(failure.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _find_pending_replacement(loop: Loop, at: float) -> str | None:
    """Describe the failed executor whose replacement, which comes without a decision, is awaited; None when there is
    none. Measurements from before the replacement has its buckets do not count. But executors that fail one after the
    other, as too small ones do, are awaited no longer than one."""
    settings = loop.settings
    longest = settings.start_timeout_seconds + settings.window_seconds
    first = at
    for one in reversed(loop.deaths):
        if first - max(one.at, one.by_at) > longest:
            break
        first = one.at
    if at - first > longest:
        return None
    for one in loop.deaths:
        if one.by and at - one.by_at < loop.settings.window_seconds:
            return f"executor {one.by} has replaced {one.executor}, which failed"
        if one.replaced and not one.by and at - one.at < loop.settings.start_timeout_seconds:
            return f"another executor should replace {one.executor}, which failed"
    return None


def _select_compatible(decisions: list[Decision]) -> list[Decision]:
    """Select decisions that can be executed together: one that changes the fleet alone, else one for each stage."""
    if decisions and isinstance(decisions[0], Provision | Decommission):
        return decisions[:1]
    chosen: dict[str, Decision] = {}
    for one in decisions:
        if not isinstance(one, Provision | Decommission | Nothing):
            chosen.setdefault(one.stage, one)
    return list(chosen.values())


def choose_moves(order: Order, history: History, settings: ElasticSettings) -> Mapping[str, Moves]:
    """Choose an order's bucket moves from the newest measurements."""
    decision, snapshot = order.decision, history.latest
    assert snapshot is not None
    ids = snapshot.fleet.ids
    if isinstance(decision, Move):
        one = snapshot.stages.get(decision.stage)
        live = one.live if one else np.zeros(0, bool)
        possible = {b: ends for b, ends in decision.buckets.items() if ends[1] < live.size and live[ends[1]]}
        return {decision.stage: possible}
    moves: dict[str, Moves] = {}
    for name, one in snapshot.stages.items():
        if not one.bucket_map.size:
            continue
        slices = build_slices(one, history.smoothed[name], ids, settings)
        if isinstance(decision, Decommission) or order.phase == OrderPhase.undoing:
            places = [at for at, executor in enumerate(one.placement) if executor in order.executors]
            moves[name] = offload_slices(slices, np.array(places, dtype=np.int64))
        elif isinstance(decision, Provision):
            moves[name] = balance_slices(slices)
    return moves
