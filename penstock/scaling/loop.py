"""The loop: one period's measurements and events in, instructions out. Pure; the engine and the simulator turn it.

Receives a `Snapshot` and what happened; hands a new `Loop` and the `Instruction`s of the period.

Invariants:
- At most one order that changes the fleet is open, and no other beside it.
- An executor that comes when nobody waits for it is let go.
- A manager that raises has decided nothing.
- Nothing is decided while the engine is cold, or while another executor is expected in the place of one that died.
- Every order ends in the record: watched and then judged, failed, or undone.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np

from penstock.scaling.balance import balanced, offloaded
from penstock.scaling.cost import Costs
from penstock.scaling.decide import Situation, restrained
from penstock.scaling.decisions import Decision, Decommission, Move, Moves, Nothing, Provision
from penstock.scaling.evaluate import slices_of
from penstock.scaling.history import History
from penstock.scaling.manager import DefaultManager, Manager
from penstock.scaling.measurements import Snapshot
from penstock.scaling.progress import Death, with_deaths
from penstock.scaling.realise import (
    Arrived,
    Event,
    Instruction,
    KeepSpare,
    Lost,
    Order,
    Passed,
    Stage,
    abandoned,
    opened,
    step,
    with_moves,
)
from penstock.scaling.record import Outcome, Record, judge
from penstock.scaling.settings import ElasticSettings


@dataclass(frozen=True, eq=False)
class Loop:
    """All that the loop remembers between two periods."""

    settings: ElasticSettings
    history: History
    manager: Manager = field(default_factory=DefaultManager)
    costs: Costs = field(default_factory=Costs)
    record: Record = field(default_factory=Record)
    orders: tuple[Order, ...] = ()
    #: why nothing was done, when that was the newest decision
    resting: str = ""
    spare: int = 0
    #: the executors that died last
    deaths: tuple[Death, ...] = ()
    #: what the manager raised when it last did
    failure: Exception | None = None

    @classmethod
    def begun(
        cls,
        settings: ElasticSettings,
        manager: Manager | None = None,
        costs: Costs | None = None,
        record: Record | None = None,
    ) -> Loop:
        """A loop that has seen nothing yet, but may know what earlier ones have decided."""
        history = History(settings.window_seconds, settings.patience_seconds)
        return cls(settings, history, manager or DefaultManager(), costs or Costs(), record or Record())

    def turn(self, snapshot: Snapshot, events: Sequence[Event] = ()) -> tuple[Loop, tuple[Instruction, ...]]:
        """One period."""
        deaths = with_deaths(self.deaths, events, snapshot.at)
        loop = replace(self, history=self.history.add(snapshot), deaths=deaths)
        strays = _strays(loop.orders, events, snapshot)
        instructions: list[Instruction] = []
        orders = []
        # a death first: what else was told of the same period was planned without it
        ordered = sorted(events, key=lambda event: not isinstance(event, Lost))
        for order in loop.orders:
            for event in (*ordered, Passed()):
                order, more = step(order, event, snapshot.at, loop.settings)
                instructions += more
            order, more = _with_plan(order, loop)
            instructions += more
            orders.append(order)
        if strays:
            late = Decommission(strays, "they came when nobody waited for them any more")
            order, more = _with_plan(opened(len(loop.record.entries), late, snapshot.at)[0], loop)
            loop = replace(loop, record=loop.record.added(late, snapshot.at))
            instructions += more
            orders.append(order)
        loop = replace(loop, orders=tuple(order for order in orders if not order.ended))
        for order in orders:
            if order.ended:
                loop = replace(loop, record=_over(loop.record, order, snapshot))
        loop = replace(loop, record=_watched(loop.record, loop.history, loop.settings))
        if loop.orders:
            loop = replace(loop, resting="")
        else:
            loop, first = _decided(loop, snapshot)
            instructions += first
        expected = snapshot.fleet.size + sum(_missing(order) for order in loop.orders)
        spare = max(min(loop.settings.spare_executors, loop.settings.most_executors - expected), 0)
        if spare != loop.spare and not loop.settings.dry_run:
            loop = replace(loop, spare=spare)
            instructions.append(KeepSpare(spare))
        return loop, tuple(instructions)


def _missing(order: Order) -> int:
    """Executors that were asked for and are not there."""
    return order.wanted - len(order.executors) if order.stage in (Stage.asked, Stage.coming) else 0


def _with_plan(order: Order, loop: Loop) -> tuple[Order, tuple[Instruction, ...]]:
    """The order with its moves if it needs any; given up if too few would stay to take the buckets."""
    snapshot = loop.history.latest
    if not order.needs_moves or snapshot is None:
        return order, ()
    if isinstance(order.decision, Decommission) or order.stage == Stage.undoing:
        stay = sum(name not in order.executors for name in snapshot.fleet.ids)
        if stay < loop.settings.least_executors:
            return abandoned(order, f"only {stay} others are left", snapshot.at), ()
    return with_moves(order, planned_moves(order, loop.history, loop.settings), snapshot.at)


def _strays(orders: Sequence[Order], events: Sequence[Event], snapshot: Snapshot) -> tuple[str, ...]:
    """Executors that come too late, or that nobody has asked for."""
    waiting = any(order.stage in (Stage.asked, Stage.coming) for order in orders)
    known = {name for order in orders for name in order.executors}
    stray = [e.executor for e in events if isinstance(e, Arrived) and e.executor not in known]
    return () if waiting else tuple(name for name in stray if name in snapshot.fleet.ids)


def _over(record: Record, order: Order, snapshot: Snapshot) -> Record:
    if order.stage == Stage.done:
        outcome = Outcome.watched
    else:
        outcome = (
            Outcome.undone if order.planned else Outcome.failed
        )  # of what was never begun nothing is undone
    return record.over(order.number, outcome, snapshot.at, order.why, snapshot.backlog_seconds)


def _watched(record: Record, history: History, settings: ElasticSettings) -> Record:
    for entry in record.watched():
        found = judge(entry, history, settings)
        if found is not None and history.latest is not None:
            record = record.judged(entry.number, found[0], history.latest.at, found[1])
    return record


def _decided(loop: Loop, snapshot: Snapshot) -> tuple[Loop, list[Instruction]]:
    if not snapshot.warm:
        return replace(loop, resting="the engine has just begun: how fast it is will be known soon"), []
    if (missing := _missed(loop, snapshot.at)) is not None:
        return replace(loop, resting=missing), []
    now = Situation(snapshot, loop.history, loop.settings, loop.costs, loop.record)
    if now.cooling_seconds > 0:
        return replace(loop, resting=f"cooling down for another {now.cooling_seconds:.0f} s"), []
    try:
        wanted = loop.manager.decide(now)
        if not isinstance(wanted, Sequence):
            raise TypeError(f"decide hands a list of decisions, not {wanted!r}")
        decisions = [restrained(decision, now) for decision in wanted]
    except Exception as failure:  # the user's own code: whatever it raises, the engine goes on
        told = f"the manager raised {type(failure).__name__}: {failure}{_raised_at(failure)}"
        return replace(loop, resting=told, failure=failure), []
    chosen = _together([one for one in decisions if not isinstance(one, Nothing)])
    rest = [one.reason for one in decisions if isinstance(one, Nothing)]
    loop = replace(loop, resting="" if chosen else "; ".join(rest))
    instructions: list[Instruction] = []
    for decision in chosen:
        number = len(loop.record.entries)
        dry = loop.settings.dry_run
        loop = replace(loop, record=loop.record.added(decision, snapshot.at, dry_run=dry))
        if dry:
            continue
        order, more = opened(number, decision, snapshot.at)
        instructions += more
        order, more = _with_plan(order, loop)
        instructions += more
        if order.ended:
            loop = replace(loop, record=_over(loop.record, order, snapshot))
        else:
            loop = replace(loop, orders=(*loop.orders, order))
    return loop, instructions


def _raised_at(failure: Exception) -> str:
    """The line that raised it."""
    frames = traceback.extract_tb(failure.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _missed(loop: Loop, at: float) -> str | None:
    """Who died and is replaced without anybody deciding so; None when nobody is waited for, or any more. What is
    measured before the new one has the buckets back says nothing. But executors that die one after the other, as too
    small ones do, are not waited for longer than one."""
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
            return f"executor {one.by} has come in place of {one.executor}, which died"
        if one.replaced and not one.by and at - one.at < loop.settings.start_timeout_seconds:
            return f"another executor should come in place of {one.executor}, which died"
    return None


def _together(decisions: list[Decision]) -> list[Decision]:
    """Those that can be carried out at the same time: one that changes the fleet alone, else one a sub-query."""
    if decisions and isinstance(decisions[0], Provision | Decommission):
        return decisions[:1]
    chosen: dict[str, Decision] = {}
    for one in decisions:
        if not isinstance(one, Provision | Decommission | Nothing):
            chosen.setdefault(one.sub_query, one)
    return list(chosen.values())


def planned_moves(order: Order, history: History, settings: ElasticSettings) -> Mapping[str, Moves]:
    """Which buckets go where for an order, by the newest measurements."""
    decision, snapshot = order.decision, history.latest
    assert snapshot is not None
    ids = snapshot.fleet.ids
    if isinstance(decision, Move):
        one = snapshot.sub_queries.get(decision.sub_query)
        live = one.live if one else np.zeros(0, bool)
        possible = {b: ends for b, ends in decision.buckets.items() if ends[1] < live.size and live[ends[1]]}
        return {decision.sub_query: possible}
    moves: dict[str, Moves] = {}
    for name, one in snapshot.sub_queries.items():
        if not one.bucket_map.size:
            continue
        slices = slices_of(one, history.smoothed[name], ids, settings)
        if isinstance(decision, Decommission) or order.stage == Stage.undoing:
            places = [at for at, executor in enumerate(one.placement) if executor in order.executors]
            moves[name] = offloaded(slices, np.array(places, dtype=np.int64))
        elif isinstance(decision, Provision):
            moves[name] = balanced(slices)
    return moves
