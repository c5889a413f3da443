"""The loop turns measurements into instructions, follows orders to their end, and records their outcomes."""

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
from tests.scaling.kit import even_load, measured, snapshot


class ScriptedManager:
    """A manager with given decisions."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)

    def decide(self, now: Situation) -> Sequence[Decision]:
        return [self.decisions.pop(0)] if self.decisions else []


def start_loop(*decisions: Decision, **chosen: object) -> Loop:
    return Loop.start(ElasticSettings(**chosen), ScriptedManager(*decisions))  # type: ignore[arg-type]


TWO = measured([0.3] * 4, [0, 0, 1, 1], ["a", "b"])
THREE = measured([0.3] * 4, [0, 0, 1, 1], ["a", "b", "c"])


def turn(loop: Loop, at: float, one: object = TWO, *events: Event) -> tuple[Loop, tuple[Instruction, ...]]:
    return loop.turn(snapshot(at, one), events)  # type: ignore[arg-type]


def test_a_provision_is_requested_filled_watched_and_judged() -> None:
    loop, instructions = turn(start_loop(Provision(1, "mine")), 5)
    assert instructions == (RequestExecutors(1),)
    loop, instructions = turn(loop, 10, TWO, Granted(1))
    assert instructions == ()
    loop, instructions = turn(loop, 15, THREE, Arrived("c"))
    (move,) = instructions
    assert isinstance(move, MoveBuckets)
    assert {to for _, to in move.moves.values()} == {2}
    loop, instructions = turn(loop, 20, THREE, Moved("q1"))
    assert (instructions, loop.orders, loop.record.entries[0].outcome) == ((), (), Outcome.watched)
    assert "cooling down" in loop.resting
    for at in range(25, 100, 5):
        loop, _ = turn(loop, at, THREE)
    assert loop.record.entries[0].outcome == Outcome.helped
    line = json.loads(loop.record.lines())
    assert line["decision"] == "provision"
    assert (line["at"], line["outcome"], line["reason"]) == (5, "helped", "mine")


def test_nothing_is_decided_while_the_engine_is_cold() -> None:
    loop = start_loop(Provision(1, "mine"))
    cold, instructions = loop.turn(replace(snapshot(5, TWO), warm=False))
    assert (instructions, cold.record.entries) == ((), ())
    assert "just started" in cold.resting
    assert turn(cold, 10)[1] == (RequestExecutors(1),)


def test_a_decommission_moves_buckets_before_it_releases() -> None:
    loop, instructions = turn(start_loop(Decommission(("b",), "mine")), 5)
    (move,) = instructions
    assert isinstance(move, MoveBuckets)
    assert set(move.moves) == {2, 3}
    loop, instructions = turn(loop, 10, TWO, Moved("q1"))
    assert instructions == (Release(("b",)),)
    loop, instructions = turn(loop, 15, measured([0.3] * 4, [0] * 4, ["a", ""]), Left("b"))
    assert (instructions, loop.orders) == ((), ())


def test_a_refusal_is_recorded_as_failed() -> None:
    loop, _ = turn(start_loop(Provision(1, "mine")), 5)
    loop, instructions = turn(loop, 10, TWO, Refused("no more"))
    assert (instructions, loop.orders) == ((), ())
    assert (loop.record.entries[0].outcome, loop.record.entries[0].why) == (Outcome.failed, "no more")


def test_an_executor_that_no_order_waits_for_is_released() -> None:
    loop, instructions = turn(start_loop(), 5, THREE, Arrived("c"))
    assert instructions == (Release(("c",)),)
    loop, instructions = turn(loop, 10, TWO, Left("c"))
    assert (instructions, loop.orders) == ((), ())


def test_the_last_executors_are_not_released() -> None:
    only = measured([0.3] * 2, [0, 1], ["b", "c"])
    loop, _ = turn(start_loop(Decommission(("b",), "mine")), 5)
    loop, instructions = turn(
        loop, 10, only, Lost("a")
    )  # b is to leave, and a, which was to take all buckets, has died
    assert [type(one) for one in instructions] == [Withdraw, MoveBuckets]
    alone = measured([0.3] * 2, [0, 0], ["b"])
    loop, instructions = turn(loop, 15, alone, Lost("c"))
    assert (instructions, loop.orders) == ((Withdraw(("q1",)),), ())
    assert "other executors are left" in loop.record.entries[0].why


def test_a_dry_run_records_and_does_nothing() -> None:
    loop, instructions = turn(start_loop(Provision(1, "mine"), Provision(1, "again"), dry_run=True), 5)
    assert instructions == ()
    assert loop.record.entries[0].outcome == Outcome.dry_run
    loop, _ = turn(loop, 10)
    assert len(loop.record.entries) == 1  # the cool-down holds in a dry run too


def test_a_change_of_the_fleet_is_alone_and_each_stage_has_one_move() -> None:
    class Both:
        def decide(self, now: Situation) -> Sequence[Decision]:
            moves = [Move("q1", {0: (0, 1)}, "x"), Move("q1", {1: (0, 1)}, "y"), Move("q2", {0: (0, 1)}, "z")]
            return [*moves, Provision(1, "p")]

    loop = Loop.start(ElasticSettings(), Both())
    loop, instructions = loop.turn(snapshot(5, even_load(1.0, 2, name="q1"), even_load(1.0, 2, name="q2")))
    assert instructions == (MoveBuckets("q1", {0: (0, 1)}), MoveBuckets("q2", {0: (0, 1)}))


def test_a_move_to_a_slice_that_is_gone_is_dropped() -> None:
    loop, _ = turn(start_loop(Move("q1", {0: (0, 1)}, "")), 5)
    assert len(loop.orders) == 1
    gone = measured([0.3] * 4, [0, 0, 0, 0], ["a", ""])
    # planned again, and nothing of it is possible
    loop, instructions = turn(loop, 80, gone, MoveFailed("q1", "its executor is gone"))
    assert (instructions, loop.orders) == ((), ())


def test_a_manager_that_raises_has_decided_nothing() -> None:
    class Broken:
        def decide(self, now: Situation) -> Sequence[Decision]:
            raise KeyError("oops")

    loop, instructions = Loop.start(ElasticSettings(), Broken()).turn(snapshot(5, TWO))
    assert instructions == ()
    assert "KeyError" in loop.resting
    assert isinstance(loop.failure, KeyError)


def test_a_managers_exception_and_its_wrong_return_value_are_reported() -> None:
    class Broken:
        def decide(self, now: Situation) -> Sequence[Decision]:
            raise ZeroDivisionError("no")

    class Forgetful:
        def decide(self, now: Situation) -> Sequence[Decision]:
            return None  # type: ignore[return-value]

    instructions = [
        Loop.start(ElasticSettings(), manager).turn(snapshot(5, TWO))[0].resting
        for manager in (Broken(), Forgetful())
    ]
    assert re.fullmatch(
        r"the manager raised ZeroDivisionError: no \(test_loop.py, line \d+\)", instructions[0]
    )
    assert "decide must return a list of decisions, not None" in instructions[1]


def test_spare_executors_never_leave_the_budget() -> None:
    loop, instructions = turn(start_loop(spare_executors=2, most_executors=3), 5)
    assert instructions == (KeepSpare(1),)
    loop, instructions = turn(start_loop(Provision(1, ""), spare_executors=2, most_executors=3), 5)
    assert instructions == (RequestExecutors(1),)
    assert loop.spare == 0


def test_nothing_is_not_recorded() -> None:
    loop, _ = turn(start_loop(Nothing("calm")), 5)
    assert (loop.record.entries, loop.resting) == ((), "calm")


def test_a_change_that_did_not_help_is_recorded_as_such() -> None:
    uneven = measured([0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1], ["a", "b"])
    decision = Move("q1", {0: (0, 1)}, "mine", {"imbalance": 0.4, "utilisation": 0.5})
    loop, _ = turn(start_loop(decision), 5, uneven)
    loop, _ = turn(loop, 10, uneven, Moved("q1"))
    for at in np.arange(15, 100, 5):
        loop, _ = turn(loop, float(at), uneven)
    assert loop.record.entries[0].outcome == Outcome.did_not_help
    assert "80% of the mean" in loop.record.entries[0].why
