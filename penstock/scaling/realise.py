"""Executes a decision: a state machine without I/O. Events in, instructions out.

Receives a decision and the events since; returns the next `Instruction`s for a `Realiser` (the engine, or the
simulator's model), until the order is done or undone.

    provision:     requested ─▶ coming ─▶ arrived ─▶ moving ─▶ done
    decommission:                         arrived ─▶ moving ─▶ leaving ─▶ done
    move:                                 arrived ─▶ moving ─▶ done

A step that fails is retried; one that takes too long is awaited a few times more and then withdrawn, so that there is
never a second move beside the first. After too many tries the order continues with what it has, or is undone: a
provision through `undoing` (buckets leave the new executors, which are released), the others at once, since a bucket
map changes as a whole at an epoch boundary or not at all. `undoing` is repeated until it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from penstock.scaling.decisions import Decision, Decommission, Moves, Nothing, Provision
from penstock.scaling.settings import ElasticSettings


class OrderPhase(StrEnum):
    """The phases of an order."""

    requested = "requested"
    coming = "coming"
    arrived = "arrived"
    moving = "moving"
    leaving = "leaving"
    undoing = "undoing"
    done = "done"
    undone = "undone"


# ---------------------------------------------------------------- events, in the past tense


@dataclass(frozen=True)
class Granted:
    """The cluster will start so many executors, possibly fewer than requested."""

    count: int


@dataclass(frozen=True)
class Refused:
    """The cluster grants no more executors."""

    reason: str


@dataclass(frozen=True)
class Arrived:
    """An executor has started and has slices without buckets."""

    executor: str


@dataclass(frozen=True)
class Lost:
    """An executor has failed. `replaced`: a replacement is expected without a request."""

    executor: str
    replaced: bool = False


@dataclass(frozen=True)
class Replaced:
    """An executor has replaced one that failed."""

    executor: str


@dataclass(frozen=True)
class Moved:
    """The new bucket map of a stage is in use."""

    stage: str


@dataclass(frozen=True)
class MoveFailed:
    """The bucket map of a stage did not change."""

    stage: str
    reason: str


@dataclass(frozen=True)
class Left:
    """A released executor has ended."""

    executor: str


@dataclass(frozen=True)
class Passed:
    """Time has passed; nothing else has happened."""


Event = Granted | Refused | Arrived | Lost | Replaced | Moved | MoveFailed | Left | Passed

# ---------------------------------------------------------------- instructions, imperative


@dataclass(frozen=True)
class RequestExecutors:
    """Request more executors, spare ones first."""

    count: int


@dataclass(frozen=True)
class MoveBuckets:
    """Change a stage's bucket map at an epoch boundary."""

    stage: str
    moves: Moves


@dataclass(frozen=True)
class Withdraw:
    """Withdraw the pending changes of these stages' maps: a map that is not in use yet never will be."""

    stages: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """Release executors."""

    executors: tuple[str, ...]


@dataclass(frozen=True)
class KeepSpare:
    """Keep so many executors warm beside the active ones."""

    count: int


Instruction = RequestExecutors | MoveBuckets | Withdraw | Release | KeepSpare


class Realiser(Protocol):
    """Executes instructions: the engine, or the simulator's model.

    Guarantees: every instruction is followed by events with its result, or by none (which times out); an executor that
    has buckets again is not released. Does not guarantee any order between events.
    """

    def execute(self, instruction: Instruction) -> None:
        """Start executing an instruction; do not wait."""

    def take_events(self) -> Sequence[Event]:
        """Events since the last call."""


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Order:
    """A decision that is being executed."""

    number: int
    decision: Decision
    phase: OrderPhase
    since: float
    tries: int = 0
    #: executors that were granted, including those that arrived
    wanted: int = 0
    #: those that arrived, or those that are to leave
    executors: tuple[str, ...] = ()
    moves: Mapping[str, Moves] = field(default_factory=dict)
    #: stages whose map has not changed yet
    pending: frozenset[str] = frozenset()
    #: whether the moves of this phase are planned
    planned: bool = False
    why: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the order is done or undone."""
        return self.phase in (OrderPhase.done, OrderPhase.undone)

    @property
    def needs_moves(self) -> bool:
        """Whether its moves must be chosen (`set_moves`)."""
        return self.phase == OrderPhase.arrived or (self.phase == OrderPhase.undoing and not self.planned)


Transition = tuple[Order, tuple[Instruction, ...]]


def open_order(number: int, decision: Decision, at: float) -> Transition:
    """Open the order of a decision; returns it with its first instructions."""
    if isinstance(decision, Nothing):
        return Order(number, decision, OrderPhase.done, at), ()
    if isinstance(decision, Provision):
        return Order(number, decision, OrderPhase.requested, at, wanted=decision.count), (
            RequestExecutors(decision.count),
        )
    leaving = decision.executors if isinstance(decision, Decommission) else ()
    order = Order(number, decision, OrderPhase.arrived, at, executors=leaving)
    return order, ()


def set_moves(order: Order, moves: Mapping[str, Moves], at: float) -> Transition:
    """Set the moves of the order's phase, chosen from the newest measurements."""
    moves = {name: one for name, one in moves.items() if one}
    phase = OrderPhase.undoing if order.phase == OrderPhase.undoing else OrderPhase.moving
    order = replace(order, phase=phase, since=at, moves=moves, pending=frozenset(moves), planned=True)
    return _finish_moves(order, at) if not order.pending else (order, _move_instructions(order))


def abandon_order(order: Order, why: str, at: float) -> Order:
    """Abandon an order as it is: its executors stay active."""
    return replace(order, phase=OrderPhase.undone, since=at, executors=(), pending=frozenset(), why=why)


def step(order: Order, event: Event, at: float, settings: ElasticSettings) -> Transition:
    """Advance an order by an event."""
    if order.has_ended:
        return order, ()
    if isinstance(event, Passed):
        return _check_timeout(order, at, settings)
    if isinstance(event, Lost):
        return _handle_loss(order, event.executor, at, settings)
    if isinstance(event, Moved) and event.stage in order.pending:
        order = replace(order, pending=order.pending - {event.stage})
        return _finish_moves(order, at) if not order.pending else (order, ())
    if isinstance(event, MoveFailed) and event.stage in order.pending:
        order = replace(order, pending=order.pending - {event.stage})
        return _try_moving_again(order, event.reason, at, settings)
    if isinstance(event, Left) and event.executor in order.executors and _is_releasing(order):
        return _remove_left(order, event.executor, at)
    if order.phase in (OrderPhase.requested, OrderPhase.coming):
        return _await_executors(order, event, at)
    return order, ()


def _await_executors(order: Order, event: Event, at: float) -> Transition:
    if isinstance(event, Refused):
        order = replace(order, why=event.reason)
        if order.phase == OrderPhase.requested:
            return _continue_with_arrived(order, at)
        return _expect_fewer(order, at)  # one that failed will not be replaced
    if isinstance(event, Granted) and order.phase == OrderPhase.requested:
        wanted = min(len(order.executors) + event.count, order.wanted)
        order = replace(order, phase=OrderPhase.coming, since=at, wanted=wanted)
        return _continue_with_arrived(order, at) if wanted <= len(order.executors) else (order, ())
    if isinstance(event, Arrived) and event.executor not in order.executors:
        order = replace(order, executors=(*order.executors, event.executor))
        return _continue_with_arrived(order, at) if len(order.executors) >= order.wanted else (order, ())
    return order, ()


def _continue_with_arrived(order: Order, at: float) -> Transition:
    """Continue with the executors that arrived; without any, the order is undone."""
    phase = OrderPhase.arrived if order.executors else OrderPhase.undone
    return replace(order, phase=phase, since=at, tries=0, wanted=len(order.executors)), ()


def _expect_fewer(order: Order, at: float) -> Transition:
    order = replace(order, wanted=order.wanted - 1)
    return _continue_with_arrived(order, at) if order.wanted <= len(order.executors) else (order, ())


def _check_timeout(order: Order, at: float, settings: ElasticSettings) -> Transition:
    waited = at - order.since
    if order.phase in (OrderPhase.requested, OrderPhase.coming):
        return (order, ()) if waited < settings.start_timeout_seconds else _ask_again(order, at, settings)
    if (
        order.phase not in (OrderPhase.moving, OrderPhase.leaving, OrderPhase.undoing)
        or waited < settings.move_timeout_seconds
    ):
        return order, ()
    if order.phase == OrderPhase.moving and order.tries < settings.retries:
        return replace(order, since=at, tries=order.tries + 1), ()  # never another beside the first
    if order.phase == OrderPhase.moving:
        return _try_moving_again(
            order, f"not finished after {waited:.0f} s and {order.tries} retries", at, settings
        )
    if order.phase == OrderPhase.leaving and order.tries >= settings.retries:
        return replace(order, phase=OrderPhase.undone, since=at, why="executors did not leave"), ()
    order = replace(order, since=at, tries=order.tries + 1)
    if order.phase == OrderPhase.undoing and order.pending:
        return replace(order, planned=False, pending=frozenset()), _withdraw(order.pending)
    return order, (Release(order.executors),)


def _ask_again(order: Order, at: float, settings: ElasticSettings) -> Transition:
    missing = order.wanted - len(order.executors)
    if order.tries >= settings.retries:
        return _continue_with_arrived(replace(order, why=f"{missing} executors never arrived"), at)
    return replace(order, phase=OrderPhase.requested, since=at, tries=order.tries + 1), (
        RequestExecutors(missing),
    )


def _try_moving_again(order: Order, why: str, at: float, settings: ElasticSettings) -> Transition:
    """Withdraw the pending moves before planning others."""
    first = _withdraw(order.pending)
    if order.phase == OrderPhase.undoing:
        return replace(order, since=at, planned=False, pending=frozenset()), first
    order = replace(order, pending=frozenset())
    if order.tries < settings.retries:
        return replace(order, phase=OrderPhase.arrived, since=at, tries=order.tries + 1, why=why), first
    if isinstance(order.decision, Provision):
        return replace(order, phase=OrderPhase.undoing, since=at, planned=False, why=why), first
    return replace(order, phase=OrderPhase.undone, since=at, why=why), first


def _withdraw(pending: frozenset[str]) -> tuple[Instruction, ...]:
    return (Withdraw(tuple(sorted(pending))),) if pending else ()


def _handle_loss(order: Order, executor: str, at: float, settings: ElasticSettings) -> Transition:
    """Handle a failed executor. Its buckets have moved already; plans that include it are void."""
    ours = executor in order.executors
    if ours:
        order = replace(order, executors=tuple(name for name in order.executors if name != executor))
    if order.phase in (OrderPhase.leaving, OrderPhase.undoing) and ours and not order.executors:
        left = _finish_if_empty(replace(order, pending=frozenset()), at)[0]
        return left, _withdraw(order.pending)
    if order.phase == OrderPhase.leaving:
        # buckets of the failed one may have moved to one that leaves: plan again before releasing any
        return replace(order, phase=OrderPhase.arrived, since=at, pending=frozenset()), ()
    if order.phase in (OrderPhase.moving, OrderPhase.undoing):
        if order.phase == OrderPhase.moving and isinstance(order.decision, Provision) and not order.executors:
            void = _withdraw(order.pending)
            return replace(order, phase=OrderPhase.undone, since=at, why=f"{executor} failed"), void
        return _try_moving_again(order, f"{executor} failed", at, settings)
    if order.phase == OrderPhase.coming and ours:
        if order.tries >= settings.retries:
            return _expect_fewer(replace(order, why=f"{executor} failed"), at)
        return replace(order, tries=order.tries + 1), (RequestExecutors(1),)
    if order.phase == OrderPhase.arrived and isinstance(order.decision, Provision) and not order.executors:
        return replace(order, phase=OrderPhase.undone, since=at, why=f"{executor} failed"), ()
    return order, ()


def _finish_moves(order: Order, at: float) -> Transition:
    if order.phase == OrderPhase.undoing or isinstance(order.decision, Decommission):
        if not order.executors:
            return _finish_if_empty(order, at)
        phase = OrderPhase.undoing if order.phase == OrderPhase.undoing else OrderPhase.leaving
        return replace(order, phase=phase, since=at, tries=0), (Release(order.executors),)
    fewer = isinstance(order.decision, Provision) and len(order.executors) < order.decision.count
    return replace(order, phase=OrderPhase.done, since=at, why=order.why if fewer else ""), ()


def _is_releasing(order: Order) -> bool:
    return isinstance(order.decision, Decommission) or order.phase == OrderPhase.undoing


def _remove_left(order: Order, executor: str, at: float) -> Transition:
    order = replace(order, executors=tuple(name for name in order.executors if name != executor))
    return (order, ()) if order.executors or order.pending else _finish_if_empty(order, at)


def _finish_if_empty(order: Order, at: float) -> Transition:
    if order.executors:
        return order, ()
    return replace(
        order, phase=OrderPhase.undone if order.phase == OrderPhase.undoing else OrderPhase.done, since=at
    ), ()


def _move_instructions(order: Order) -> tuple[Instruction, ...]:
    return tuple(MoveBuckets(name, order.moves[name]) for name in sorted(order.pending))
