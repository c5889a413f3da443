"""The loop turns measurements into instructions, sees orders to their end, and remembers what came of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock.scaling.decide import Situation
from penstock.scaling.decisions import Decision, Decommission, Move, Nothing, Provision
from penstock.scaling.loop import Loop
from penstock.scaling.realise import (
    Arrived,
    Event,
    Granted,
    Instruction,
    KeepSpare,
    Left,
    Lost,
    MoveBuckets,
    Moved,
    MoveFailed,
    Refused,
    Release,
    RequestExecutors,
    Withdraw,
)
from penstock.scaling.record import Outcome
from penstock.scaling.settings import ElasticSettings
from tests.scaling.kit import even, measured, snapshot


class Says:
    """A manager that says what it is told to."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)

    def decide(self, now: Situation) -> Sequence[Decision]:
        return [self.decisions.pop(0)] if self.decisions else []


def begun(*decisions: Decision, **chosen: object) -> Loop:
    return Loop.start(ElasticSettings(**chosen), Says(*decisions))  # type: ignore[arg-type]


TWO = measured([0.3] * 4, [0, 0, 1, 1], ["a", "b"])
THREE = measured([0.3] * 4, [0, 0, 1, 1], ["a", "b", "c"])


def turned(loop: Loop, at: float, one: object = TWO, *events: Event) -> tuple[Loop, tuple[Instruction, ...]]:
    return loop.turn(snapshot(at, one), events)  # type: ignore[arg-type]


def test_a_provision_is_asked_for_filled_watched_and_judged() -> None:
    loop, told = turned(begun(Provision(1, "mine")), 5)
    assert told == (RequestExecutors(1),)
    loop, told = turned(loop, 10, TWO, Granted(1))
    assert told == ()
    loop, told = turned(loop, 15, THREE, Arrived("c"))
    (move,) = told
    assert isinstance(move, MoveBuckets)
    assert {to for _, to in move.moves.values()} == {2}
    loop, told = turned(loop, 20, THREE, Moved("q1"))
    assert (told, loop.orders, loop.record.entries[0].outcome) == ((), (), Outcome.watched)
    assert "cooling down" in loop.resting
    for at in range(25, 100, 5):
        loop, _ = turned(loop, at, THREE)
    assert loop.record.entries[0].outcome == Outcome.helped
    line = json.loads(loop.record.lines())
    assert line["decision"] == "provision"
    assert (line["at"], line["outcome"], line["reason"]) == (5, "helped", "mine")


def test_nothing_is_decided_while_the_engine_is_cold() -> None:
    loop = begun(Provision(1, "mine"))
    cold, told = loop.turn(replace(snapshot(5, TWO), warm=False))
    assert (told, cold.record.entries) == ((), ())
    assert "just started" in cold.resting
    assert turned(cold, 10)[1] == (RequestExecutors(1),)


def test_a_decommission_empties_before_it_lets_go() -> None:
    loop, told = turned(begun(Decommission(("b",), "mine")), 5)
    (move,) = told
    assert isinstance(move, MoveBuckets)
    assert set(move.moves) == {2, 3}
    loop, told = turned(loop, 10, TWO, Moved("q1"))
    assert told == (Release(("b",)),)
    loop, told = turned(loop, 15, measured([0.3] * 4, [0] * 4, ["a", ""]), Left("b"))
    assert (told, loop.orders) == ((), ())


def test_a_refusal_is_recorded_as_failed_and_life_goes_on() -> None:
    loop, _ = turned(begun(Provision(1, "mine")), 5)
    loop, told = turned(loop, 10, TWO, Refused("no more"))
    assert (told, loop.orders) == ((), ())
    assert (loop.record.entries[0].outcome, loop.record.entries[0].why) == (Outcome.failed, "no more")


def test_an_executor_nobody_waits_for_is_let_go() -> None:
    loop, told = turned(begun(), 5, THREE, Arrived("c"))
    assert told == (Release(("c",)),)
    loop, told = turned(loop, 10, TWO, Left("c"))
    assert (told, loop.orders) == ((), ())


def test_the_last_executors_are_not_let_go() -> None:
    only = measured([0.3] * 2, [0, 1], ["b", "c"])
    loop, _ = turned(begun(Decommission(("b",), "mine")), 5)
    loop, told = turned(loop, 10, only, Lost("a"))  # b is to leave, and a, who was to take all, has died
    assert [type(one) for one in told] == [Withdraw, MoveBuckets]
    alone = measured([0.3] * 2, [0, 0], ["b"])
    loop, told = turned(loop, 15, alone, Lost("c"))
    assert (told, loop.orders) == ((Withdraw(("q1",)),), ())
    assert "other executors are left" in loop.record.entries[0].why


def test_a_dry_run_records_and_does_nothing() -> None:
    loop, told = turned(begun(Provision(1, "mine"), Provision(1, "again"), dry_run=True), 5)
    assert told == ()
    assert loop.record.entries[0].outcome == Outcome.dry_run
    loop, _ = turned(loop, 10)
    assert len(loop.record.entries) == 1  # the cool-down holds in a dry run too


def test_a_change_of_the_fleet_is_alone_and_moves_are_one_a_sub_query() -> None:
    class Both:
        def decide(self, now: Situation) -> Sequence[Decision]:
            moves = [Move("q1", {0: (0, 1)}, "x"), Move("q1", {1: (0, 1)}, "y"), Move("q2", {0: (0, 1)}, "z")]
            return [*moves, Provision(1, "p")]

    loop = Loop.start(ElasticSettings(), Both())
    loop, told = loop.turn(snapshot(5, even(1.0, 2, name="q1"), even(1.0, 2, name="q2")))
    assert told == (MoveBuckets("q1", {0: (0, 1)}), MoveBuckets("q2", {0: (0, 1)}))


def test_a_move_that_names_a_slice_gone_meanwhile_is_cut_down() -> None:
    loop, _ = turned(begun(Move("q1", {0: (0, 1)}, "")), 5)
    assert len(loop.orders) == 1
    gone = measured([0.3] * 4, [0, 0, 0, 0], ["a", ""])
    # planned again, and nothing of it is possible
    loop, told = turned(loop, 80, gone, MoveFailed("q1", "its executor is gone"))
    assert (told, loop.orders) == ((), ())


def test_a_manager_that_raises_has_decided_nothing() -> None:
    class Broken:
        def decide(self, now: Situation) -> Sequence[Decision]:
            raise KeyError("oops")

    loop, told = Loop.start(ElasticSettings(), Broken()).turn(snapshot(5, TWO))
    assert told == ()
    assert "KeyError" in loop.resting
    assert isinstance(loop.failure, KeyError)


def test_of_a_manager_that_raises_the_line_is_told_and_of_one_that_hands_nothing_what_it_should_hand() -> (
    None
):
    class Broken:
        def decide(self, now: Situation) -> Sequence[Decision]:
            raise ZeroDivisionError("no")

    class Forgetful:
        def decide(self, now: Situation) -> Sequence[Decision]:
            return None  # type: ignore[return-value]

    told = [
        Loop.start(ElasticSettings(), manager).turn(snapshot(5, TWO))[0].resting
        for manager in (Broken(), Forgetful())
    ]
    assert re.fullmatch(r"the manager raised ZeroDivisionError: no \(test_loop.py, line \d+\)", told[0])
    assert "decide must return a list of decisions, not None" in told[1]


def test_spare_executors_never_leave_the_budget() -> None:
    loop, told = turned(begun(spare_executors=2, most_executors=3), 5)
    assert told == (KeepSpare(1),)
    loop, told = turned(begun(Provision(1, ""), spare_executors=2, most_executors=3), 5)
    assert told == (RequestExecutors(1),)
    assert loop.spare == 0


def test_nothing_is_not_recorded() -> None:
    loop, _ = turned(begun(Nothing("calm")), 5)
    assert (loop.record.entries, loop.resting) == ((), "calm")


def test_a_change_that_did_not_help_is_known_as_such() -> None:
    uneven = measured([0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1], ["a", "b"])
    decision = Move("q1", {0: (0, 1)}, "mine", {"imbalance": 0.4, "utilisation": 0.5})
    loop, _ = turned(begun(decision), 5, uneven)
    loop, _ = turned(loop, 10, uneven, Moved("q1"))
    for at in np.arange(15, 100, 5):
        loop, _ = turned(loop, float(at), uneven)
    assert loop.record.entries[0].outcome == Outcome.did_not_help
    assert "80% of the mean" in loop.record.entries[0].why
