"""Orders and dead executors are described in words; a death with an automatic replacement is no decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.scaling.decisions import Decommission, Move, Provision
from penstock.scaling.loop import Loop
from penstock.scaling.progress import MOST_DEATHS, add_deaths, describe_order
from penstock.scaling.realise import (
    Arrived,
    Granted,
    Lost,
    MoveFailed,
    Order,
    OrderPhase,
    Replaced,
    open_order,
    set_moves,
    step,
)
from penstock.scaling.settings import ElasticSettings
from tests.scaling.kit import even_load, snapshot

RULES = ElasticSettings(start_timeout_seconds=60)


def test_a_provision_describes_which_executor_it_waits_for_and_since_when() -> None:
    order, _ = open_order(0, Provision(3, "load"), 10)
    assert (
        describe_order(order, 12) == "3 more executors: waits for the cluster's response, requested 2 s ago"
    )
    order, _ = step(order, Granted(3), 12, RULES)
    assert (
        describe_order(order, 24) == "3 more executors: waits for executors 1 to 3 of 3, requested 12 s ago"
    )
    for name in "45":
        order, _ = step(order, Arrived(name), 20, RULES)
    assert describe_order(order, 24) == "3 more executors: waits for executor 3 of 3, requested 12 s ago"


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (
            Order(
                0,
                Move("q", {1: (0, 1)}, "x"),
                OrderPhase.moving,
                5,
                tries=1,
                pending=frozenset({"q"}),
                why="no",
            ),
            "move 1 bucket of q: waits for buckets of q to have moved, started 3 s ago (tried again: no)",
        ),
        (
            Order(0, Decommission(("7",), "x"), OrderPhase.leaving, 5, tries=2, executors=("7",)),
            "1 executor fewer: waits for executor 7 to end, released 3 s ago (tried again 2 times)",
        ),
        (
            Order(0, Provision(1, "x"), OrderPhase.undoing, 5, executors=("7",)),
            "1 more executor: is undone: waits for executor 7 to be empty and end, started 3 s ago",
        ),
    ],
)
def test_every_phase_describes_what_it_waits_for(order: Order, says: str) -> None:
    assert describe_order(order, 8) == says


def test_the_reason_of_a_failed_try_is_cleared_when_the_next_succeeds() -> None:
    order, _ = open_order(0, Move("q", {1: (0, 1)}, "x"), 0)
    order, _ = set_moves(order, {"q": {1: (0, 1)}}, 0)
    order, _ = step(order, MoveFailed("q", "7 failed"), 1, RULES)
    assert order.why == "7 failed"
    order, _ = set_moves(order, {}, 2)
    assert (order.phase, order.why) == (OrderPhase.done, "")


def test_a_dead_executor_is_described_with_its_replacement() -> None:
    deaths = add_deaths((), [Lost("1"), Lost("2", replaced=True), Lost("3", replaced=True)], 10)
    assert [one.describe(14) for one in deaths] == [
        "executor 1 failed 4 s ago; its buckets moved to others",
        "executor 2 failed 4 s ago; its buckets moved to others; its replacement has not arrived",
        "executor 3 failed 4 s ago; its buckets moved to others; its replacement has not arrived",
    ]
    deaths = add_deaths(deaths, [Replaced("9")], 18)
    assert deaths[1].describe(20).endswith("executor 9 replaced it 8 s later")
    assert "has not arrived" in deaths[2].describe(20)
    many = add_deaths(deaths, [Lost(str(name)) for name in range(90)], 20)
    assert [one.executor for one in many] == [str(name) for name in range(90 - MOST_DEATHS, 90)]


def test_nothing_is_decided_while_a_replacement_is_on_its_way() -> None:
    rules = replace(RULES, least_executors=2)
    two, one = even_load(1.0, 2), even_load(1.0, 1)
    loop, _ = Loop.start(rules).turn(snapshot(5, two))
    loop, instructions = loop.turn(snapshot(10, one), [Lost("e1", replaced=True)])
    assert (instructions, loop.record.entries) == ((), ())
    assert "should replace e1, which failed" in loop.resting
    back, instructions = loop.turn(snapshot(15, two), [Replaced("e7")])
    assert (instructions, back.record.entries) == ((), ())
    assert "e7 has replaced e1" in back.resting, "it has its buckets back before anything is concluded"
    back, instructions = back.turn(snapshot(15 + 31, two))
    assert (instructions, back.record.entries) == ((), ())
    assert "failed" not in back.resting
    late, instructions = loop.turn(snapshot(10 + 61, one))
    assert instructions, "no replacement came: the loop decides"
    assert isinstance(late.record.entries[0].decision, Provision)


def test_the_wait_for_replacements_is_bounded() -> None:
    rules = replace(RULES, least_executors=2)
    loop, _ = Loop.start(rules).turn(snapshot(5, even_load(1.0, 2)))
    for turn in range(20):
        loop, instructions = loop.turn(
            snapshot(10 + 10 * turn, even_load(1.0, 1)), [Lost(f"e{turn}", replaced=True)]
        )
        if instructions:
            break
    assert instructions, "too small a fleet is not hidden by executors that die of it"
    assert 10 * turn > rules.start_timeout_seconds


def test_a_dead_executor_without_a_replacement_is_requested_at_once() -> None:
    loop, _ = Loop.start(replace(RULES, least_executors=2)).turn(snapshot(5, even_load(1.0, 2)))
    loop, instructions = loop.turn(snapshot(10, even_load(1.0, 1)), [Lost("e1")])
    assert instructions
