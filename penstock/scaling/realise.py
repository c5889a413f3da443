"""Carrying a decision out: a state machine with no I/O. Events in, instructions out; never left in between.

Receives a decision and what happened since; hands the next `Instruction`s for whoever does the work (a `Realiser`:
the engine, or the simulator's model), until the order is done or undone.

    provision:     asked ─▶ coming ─▶ arrived ─▶ moving ─▶ done
    decommission:                     arrived ─▶ moving ─▶ leaving ─▶ done
    move:                             arrived ─▶ moving ─▶ done

A step that fails is tried again; one that takes too long is waited for a few times more and withdrawn, so that there is
never a second move beside the first. After too many tries the order goes on with what there is, or is undone: a
provision through `undoing` (buckets leave the new executors, which are let go), the others at once, since a bucket map
changes as a whole at an epoch boundary or not at all. `undoing` is repeated until it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from penstock.scaling.decisions import Decision, Decommission, Moves, Nothing, Provision
from penstock.scaling.settings import ElasticSettings


class Stage(StrEnum):
    """How far an order is."""

    asked = "asked"
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
    """The cluster will start so many executors; fewer than asked is an answer too."""

    count: int


@dataclass(frozen=True)
class Refused:
    """The cluster gives no more."""

    reason: str


@dataclass(frozen=True)
class Arrived:
    """An executor is there and has slices without buckets."""

    executor: str


@dataclass(frozen=True)
class Lost:
    """An executor has died. `replaced`: another is expected in its place, unasked."""

    executor: str
    replaced: bool = False


@dataclass(frozen=True)
class Replaced:
    """An executor has come in the place of one that died."""

    executor: str


@dataclass(frozen=True)
class Moved:
    """The new bucket map of a sub-query is in use."""

    sub_query: str


@dataclass(frozen=True)
class MoveFailed:
    """The bucket map of a sub-query is as it was."""

    sub_query: str
    reason: str


@dataclass(frozen=True)
class Left:
    """An executor that was let go has ended."""

    executor: str


@dataclass(frozen=True)
class Passed:
    """Time has passed; nothing else has happened."""


Event = Granted | Refused | Arrived | Lost | Replaced | Moved | MoveFailed | Left | Passed

# ---------------------------------------------------------------- instructions, imperative


@dataclass(frozen=True)
class Ask:
    """Get more executors, spare ones first."""

    count: int


@dataclass(frozen=True)
class MoveBuckets:
    """Change a sub-query's bucket map at an epoch boundary."""

    sub_query: str
    moves: Moves


@dataclass(frozen=True)
class Withdraw:
    """Give up what is under way for these sub-queries' maps: what is not in use yet never will be."""

    sub_queries: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """Let executors go."""

    executors: tuple[str, ...]


@dataclass(frozen=True)
class KeepSpare:
    """Keep so many executors warm beside those that work."""

    count: int


Instruction = Ask | MoveBuckets | Withdraw | Release | KeepSpare


class Realiser(Protocol):
    """Whoever can do it.

    Guarantees: every instruction is followed by events that say what came of it, or by nothing at all (which times
    out); an executor that has buckets again is not let go. Does not guarantee: any order between events.
    """

    def execute(self, instruction: Instruction) -> None:
        """Begin; do not wait."""

    def take_events(self) -> Sequence[Event]:
        """Events since the last call."""


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Order:
    """A decision on its way."""

    number: int
    decision: Decision
    stage: Stage
    since: float
    tries: int = 0
    #: executors that were promised, those there included
    wanted: int = 0
    #: those that have come, or those that are to leave
    executors: tuple[str, ...] = ()
    moves: Mapping[str, Moves] = field(default_factory=dict)
    #: sub-queries whose map has not changed yet
    pending: frozenset[str] = frozenset()
    #: whether the moves of this stage are planned
    planned: bool = False
    why: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.stage in (Stage.done, Stage.undone)

    @property
    def needs_moves(self) -> bool:
        """Whether somebody must say which buckets go where (`with_moves`)."""
        return self.stage == Stage.arrived or (self.stage == Stage.undoing and not self.planned)


Stepped = tuple[Order, tuple[Instruction, ...]]


def opened(number: int, decision: Decision, at: float) -> Stepped:
    """The order of a decision, and what to do first."""
    if isinstance(decision, Nothing):
        return Order(number, decision, Stage.done, at), ()
    if isinstance(decision, Provision):
        return Order(number, decision, Stage.asked, at, wanted=decision.count), (Ask(decision.count),)
    leaving = decision.executors if isinstance(decision, Decommission) else ()
    order = Order(number, decision, Stage.arrived, at, executors=leaving)
    return order, ()


def with_moves(order: Order, moves: Mapping[str, Moves], at: float) -> Stepped:
    """The order with the moves that its stage needs, planned from the newest measurements."""
    moves = {name: one for name, one in moves.items() if one}
    stage = Stage.undoing if order.stage == Stage.undoing else Stage.moving
    order = replace(order, stage=stage, since=at, moves=moves, pending=frozenset(moves), planned=True)
    return _all_moved(order, at) if not order.pending else (order, _move_instructions(order))


def abandoned(order: Order, why: str, at: float) -> Order:
    """The order given up as things stand: its executors stay at work."""
    return replace(order, stage=Stage.undone, since=at, executors=(), pending=frozenset(), why=why)


def step(order: Order, event: Event, at: float, settings: ElasticSettings) -> Stepped:
    """The order after an event."""
    if order.ended:
        return order, ()
    if isinstance(event, Passed):
        return _passed(order, at, settings)
    if isinstance(event, Lost):
        return _lost(order, event.executor, at, settings)
    if isinstance(event, Moved) and event.sub_query in order.pending:
        order = replace(order, pending=order.pending - {event.sub_query})
        return _all_moved(order, at) if not order.pending else (order, ())
    if isinstance(event, MoveFailed) and event.sub_query in order.pending:
        order = replace(order, pending=order.pending - {event.sub_query})
        return _try_moving_again(order, event.reason, at, settings)
    if isinstance(event, Left) and event.executor in order.executors and _lets_go(order):
        return _left(order, event.executor, at)
    if order.stage in (Stage.asked, Stage.coming):
        return _coming(order, event, at)
    return order, ()


def _coming(order: Order, event: Event, at: float) -> Stepped:
    if isinstance(event, Refused):
        order = replace(order, why=event.reason)
        if order.stage == Stage.asked:
            return _with_those_there(order, at)
        return _wants_fewer(order, at)  # in place of one that died there will be none
    if isinstance(event, Granted) and order.stage == Stage.asked:
        wanted = min(len(order.executors) + event.count, order.wanted)
        order = replace(order, stage=Stage.coming, since=at, wanted=wanted)
        return _with_those_there(order, at) if wanted <= len(order.executors) else (order, ())
    if isinstance(event, Arrived) and event.executor not in order.executors:
        order = replace(order, executors=(*order.executors, event.executor))
        return _with_those_there(order, at) if len(order.executors) >= order.wanted else (order, ())
    return order, ()


def _with_those_there(order: Order, at: float) -> Stepped:
    """Go on with the executors that have come; without any, the order is undone."""
    stage = Stage.arrived if order.executors else Stage.undone
    return replace(order, stage=stage, since=at, tries=0, wanted=len(order.executors)), ()


def _wants_fewer(order: Order, at: float) -> Stepped:
    order = replace(order, wanted=order.wanted - 1)
    return _with_those_there(order, at) if order.wanted <= len(order.executors) else (order, ())


def _passed(order: Order, at: float, settings: ElasticSettings) -> Stepped:
    waited = at - order.since
    if order.stage in (Stage.asked, Stage.coming):
        return (order, ()) if waited < settings.start_timeout_seconds else _ask_again(order, at, settings)
    if (
        order.stage not in (Stage.moving, Stage.leaving, Stage.undoing)
        or waited < settings.move_timeout_seconds
    ):
        return order, ()
    if order.stage == Stage.moving and order.tries < settings.retries:
        return replace(order, since=at, tries=order.tries + 1), ()  # never another beside the first
    if order.stage == Stage.moving:
        return _try_moving_again(
            order, f"no end after {waited:.0f} s and {order.tries} more waits", at, settings
        )
    if order.stage == Stage.leaving and order.tries >= settings.retries:
        return replace(order, stage=Stage.undone, since=at, why="executors did not leave"), ()
    order = replace(order, since=at, tries=order.tries + 1)
    if order.stage == Stage.undoing and order.pending:
        return replace(order, planned=False, pending=frozenset()), _withdrawn(order.pending)
    return order, (Release(order.executors),)


def _ask_again(order: Order, at: float, settings: ElasticSettings) -> Stepped:
    missing = order.wanted - len(order.executors)
    if order.tries >= settings.retries:
        return _with_those_there(replace(order, why=f"{missing} executors never came"), at)
    return replace(order, stage=Stage.asked, since=at, tries=order.tries + 1), (Ask(missing),)


def _try_moving_again(order: Order, why: str, at: float, settings: ElasticSettings) -> Stepped:
    """What is under way still is given up before anything else is planned."""
    first = _withdrawn(order.pending)
    if order.stage == Stage.undoing:
        return replace(order, since=at, planned=False, pending=frozenset()), first
    order = replace(order, pending=frozenset())
    if order.tries < settings.retries:
        return replace(order, stage=Stage.arrived, since=at, tries=order.tries + 1, why=why), first
    if isinstance(order.decision, Provision):
        return replace(order, stage=Stage.undoing, since=at, planned=False, why=why), first
    return replace(order, stage=Stage.undone, since=at, why=why), first


def _withdrawn(pending: frozenset[str]) -> tuple[Instruction, ...]:
    return (Withdraw(tuple(sorted(pending))),) if pending else ()


def _lost(order: Order, executor: str, at: float, settings: ElasticSettings) -> Stepped:
    """An executor died. Its buckets are elsewhere already; the plans that reckon with it are void."""
    ours = executor in order.executors
    if ours:
        order = replace(order, executors=tuple(name for name in order.executors if name != executor))
    if order.stage in (Stage.leaving, Stage.undoing) and ours and not order.executors:
        left = _gone(replace(order, pending=frozenset()), at)[0]
        return left, _withdrawn(order.pending)
    if order.stage == Stage.leaving:
        # the buckets of the dead one may lie on one that leaves: look again before anybody goes
        return replace(order, stage=Stage.arrived, since=at, pending=frozenset()), ()
    if order.stage in (Stage.moving, Stage.undoing):
        if order.stage == Stage.moving and isinstance(order.decision, Provision) and not order.executors:
            void = _withdrawn(order.pending)
            return replace(order, stage=Stage.undone, since=at, why=f"{executor} died"), void
        return _try_moving_again(order, f"{executor} died", at, settings)
    if order.stage == Stage.coming and ours:
        if order.tries >= settings.retries:
            return _wants_fewer(replace(order, why=f"{executor} died"), at)
        return replace(order, tries=order.tries + 1), (Ask(1),)
    if order.stage == Stage.arrived and isinstance(order.decision, Provision) and not order.executors:
        return replace(order, stage=Stage.undone, since=at, why=f"{executor} died"), ()
    return order, ()


def _all_moved(order: Order, at: float) -> Stepped:
    if order.stage == Stage.undoing or isinstance(order.decision, Decommission):
        if not order.executors:
            return _gone(order, at)
        stage = Stage.undoing if order.stage == Stage.undoing else Stage.leaving
        return replace(order, stage=stage, since=at, tries=0), (Release(order.executors),)
    fewer = isinstance(order.decision, Provision) and len(order.executors) < order.decision.count
    return replace(order, stage=Stage.done, since=at, why=order.why if fewer else ""), ()


def _lets_go(order: Order) -> bool:
    return isinstance(order.decision, Decommission) or order.stage == Stage.undoing


def _left(order: Order, executor: str, at: float) -> Stepped:
    order = replace(order, executors=tuple(name for name in order.executors if name != executor))
    return (order, ()) if order.executors or order.pending else _gone(order, at)


def _gone(order: Order, at: float) -> Stepped:
    if order.executors:
        return order, ()
    return replace(order, stage=Stage.undone if order.stage == Stage.undoing else Stage.done, since=at), ()


def _move_instructions(order: Order) -> tuple[Instruction, ...]:
    return tuple(MoveBuckets(name, order.moves[name]) for name in sorted(order.pending))
