"""An order always ends, done or undone, whatever happens on the way. All transitions, one by one and at random."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scaling.decisions import Decision, Decommission, Move, Nothing, Provision
from penstock.scaling.realise import (
    Arrived,
    Event,
    Granted,
    Instruction,
    Left,
    Lost,
    MoveBuckets,
    Moved,
    MoveFailed,
    Order,
    OrderPhase,
    Passed,
    Refused,
    Release,
    RequestExecutors,
    Withdraw,
    abandon_order,
    open_order,
    set_moves,
    step,
)
from penstock.scaling.settings import ElasticSettings

SETTINGS = ElasticSettings(retries=1)
MOVES = {"q1": {3: (0, 1)}}
GROW = Provision(2, "")
SHRINK = Decommission(("a", "b"), "")
LATE = 10_000.0


def after(order: Order, *events: Event, at: float = 1.0) -> tuple[Order, list[Instruction]]:
    instructions: list[Instruction] = []
    for event in events:
        order, more = step(order, event, at, SETTINGS)
        instructions += more
    return order, instructions


def asked() -> Order:
    order, instructions = open_order(0, GROW, 0.0)
    assert (order.phase, instructions) == (OrderPhase.requested, (RequestExecutors(2),))
    return order


def arrived() -> Order:
    order, _ = after(asked(), Granted(2), Arrived("a"), Arrived("b"))
    return order


def moving() -> Order:
    order, instructions = set_moves(arrived(), MOVES, 1.0)
    assert instructions == (MoveBuckets("q1", {3: (0, 1)}),)
    return order


def leaving() -> Order:
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    return after(order, Moved("q1"))[0]


def test_provision_goes_its_way() -> None:
    order, _ = after(asked(), Granted(2))
    assert order.phase == OrderPhase.coming
    order, _ = after(order, Arrived("a"))
    assert order.phase == OrderPhase.coming
    order, _ = after(order, Arrived("b"))
    assert (order.phase, order.needs_moves) == (OrderPhase.arrived, True)
    assert moving().phase == OrderPhase.moving
    order, instructions = after(moving(), Moved("q1"))
    assert (order.phase, instructions, order.has_ended) == (OrderPhase.done, [], True)


def test_executors_that_come_before_the_answer_count() -> None:
    order, _ = after(asked(), Arrived("a"), Arrived("b"))
    assert order.phase == OrderPhase.arrived


def test_a_refusal_undoes_what_has_not_begun() -> None:
    order, instructions = after(asked(), Refused("no more"))
    assert (order.phase, order.why, instructions) == (OrderPhase.undone, "no more", [])


def test_a_grant_of_fewer_is_taken() -> None:
    order, _ = after(asked(), Granted(1), Arrived("a"))
    assert (order.phase, order.wanted) == (OrderPhase.arrived, 1)


def test_a_grant_of_none_undoes() -> None:
    assert after(asked(), Granted(0))[0].phase == OrderPhase.undone


def test_an_executor_that_never_comes_is_asked_for_again_then_done_without() -> None:
    order, _ = after(asked(), Granted(2), Arrived("a"))
    order, instructions = after(order, Passed(), at=LATE)
    assert (order.phase, instructions) == (OrderPhase.requested, [RequestExecutors(1)])
    order, _ = after(order, Granted(1), at=LATE)
    order, instructions = after(order, Passed(), at=2 * LATE)
    assert (order.phase, instructions, order.why) == (OrderPhase.arrived, [], "1 executors never arrived")


def test_when_none_ever_comes_the_order_is_undone() -> None:
    order, instructions = after(asked(), Passed(), at=LATE)
    assert instructions == [RequestExecutors(2)]
    order, _ = after(order, Passed(), at=2 * LATE)
    assert order.phase == OrderPhase.undone


def test_time_below_the_limit_changes_nothing() -> None:
    for order in (asked(), moving(), leaving()):
        assert after(order, Passed(), at=2.0) == (order, [])


def test_one_that_dies_while_others_come_is_replaced_then_done_without() -> None:
    coming, _ = after(asked(), Granted(2), Arrived("a"))
    order, instructions = after(coming, Lost("a"))
    assert (order.phase, instructions) == (OrderPhase.coming, [RequestExecutors(1)])
    fewer, _ = after(order, Refused("no more"))
    assert (fewer.phase, fewer.wanted) == (OrderPhase.coming, 1)
    order, _ = after(order, Granted(1), Arrived("b"), Lost("b"))
    assert (order.phase, order.wanted) == (OrderPhase.coming, 1)
    assert after(order, Arrived("c"))[0].phase == OrderPhase.arrived


def test_a_death_that_leaves_nobody_undoes_a_provision() -> None:
    order, _ = after(arrived(), Lost("a"), Lost("b"))
    assert order.phase == OrderPhase.undone
    order, _ = after(moving(), Lost("a"))
    order, _ = set_moves(order, MOVES, 1.0)
    order, instructions = after(order, Lost("b"))
    assert (order.phase, instructions) == (OrderPhase.undone, [Withdraw(("q1",))])


@pytest.mark.parametrize("event", [MoveFailed("q1", "why"), Lost("a"), Lost("somebody else")])
def test_a_move_that_fails_is_planned_again_then_undone(event: Event) -> None:
    order, instructions = after(moving(), event)
    under_way = [] if isinstance(event, MoveFailed) else [Withdraw(("q1",))]
    assert (order.phase, order.needs_moves, instructions) == (OrderPhase.arrived, True, under_way)
    order, _ = set_moves(order, MOVES, 2.0)
    order, _ = after(order, MoveFailed("q1", "again"))
    assert (order.phase, order.needs_moves) == (OrderPhase.undoing, True)
    order, told2 = set_moves(order, {"q1": {3: (1, 0)}}, 3.0)
    assert told2 == (MoveBuckets("q1", {3: (1, 0)}),)
    order, instructions = after(order, Moved("q1"))
    assert instructions == [Release(order.executors)]
    order, _ = after(order, *(Left(name) for name in order.executors))
    assert order.phase == OrderPhase.undone


def test_a_move_that_takes_long_is_waited_for_and_then_withdrawn() -> None:
    order, at = moving(), 0.0
    for tries in range(1, SETTINGS.retries + 1):
        at += LATE
        order, instructions = after(order, Passed(), at=at)
        assert (order.phase, order.tries, instructions) == (OrderPhase.moving, tries, []), (
            "never another beside the first"
        )
    order, instructions = after(order, Passed(), at=at + LATE)
    assert (order.phase, instructions) == (OrderPhase.undoing, [Withdraw(("q1",))])


def test_what_is_under_way_is_withdrawn_before_it_is_planned_again() -> None:
    order, instructions = after(moving(), Lost("a"))
    assert instructions == [Withdraw(("q1",))]
    assert order.needs_moves


def test_undoing_is_never_given_up() -> None:
    order, _ = after(moving(), MoveFailed("q1", ""))
    order, _ = set_moves(order, MOVES, 1.0)
    order, _ = after(order, MoveFailed("q1", ""))
    for number in range(1, 20):
        order, _ = set_moves(order, MOVES, number * LATE)
        event = MoveFailed("q1", "") if number % 2 else Passed()
        order, _ = after(order, event, at=(number + 0.5) * LATE)
        assert (order.phase, order.needs_moves) == (OrderPhase.undoing, True)
    order, _ = set_moves(order, MOVES, 1e6)
    order, _ = after(order, Moved("q1"), at=1e6)
    order, instructions = after(order, Passed(), at=2e6)
    assert instructions == [Release(("a", "b"))]
    order, _ = after(order, Lost("a"), Left("b"), at=2e6)
    assert order.phase == OrderPhase.undone


def test_a_new_fleet_without_anything_to_move_is_done() -> None:
    assert set_moves(arrived(), {"q1": {}}, 1.0)[0].phase == OrderPhase.done


def test_decommission_moves_first_and_lets_go_then() -> None:
    order, instructions = open_order(0, SHRINK, 0.0)
    assert (order.phase, instructions, order.needs_moves) == (OrderPhase.arrived, (), True)
    order, _ = set_moves(order, MOVES, 1.0)
    order, told2 = after(order, Moved("q1"))
    assert (order.phase, told2) == (OrderPhase.leaving, [Release(("a", "b"))])
    order, _ = after(order, Left("a"))
    assert order.phase == OrderPhase.leaving
    assert after(order, Left("b"))[0].phase == OrderPhase.done


def test_one_that_dies_while_it_leaves_has_left() -> None:
    order, instructions = after(leaving(), Lost("a"))
    assert (order.phase, order.executors, instructions) == (
        OrderPhase.arrived,
        ("b",),
        [],
    )  # did its buckets go to b?
    assert after(order, Left("b"))[0].phase == OrderPhase.done
    order, told2 = set_moves(order, {}, 2.0)
    assert (order.phase, told2) == (OrderPhase.leaving, (Release(("b",)),))
    assert after(order, Lost("b"))[0].phase == OrderPhase.done
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    order, _ = after(order, Lost("a"))
    assert (order.phase, order.executors) == (OrderPhase.arrived, ("b",))


def test_when_anybody_dies_those_that_leave_are_looked_at_again() -> None:
    order, instructions = after(leaving(), Lost("somebody else"))
    assert (order.phase, order.needs_moves, instructions) == (OrderPhase.arrived, True, [])


def test_an_order_given_up_leaves_its_executors_at_work() -> None:
    order = abandon_order(moving(), "nobody is left", 2.0)
    assert (order.phase, order.executors, order.why) == (OrderPhase.undone, (), "nobody is left")


def test_those_that_do_not_leave_stay() -> None:
    order, instructions = after(leaving(), Passed(), at=LATE)
    assert (order.phase, instructions) == (OrderPhase.leaving, [Release(("a", "b"))])
    order, _ = after(order, Passed(), at=2 * LATE)
    assert (order.phase, order.why) == (OrderPhase.undone, "executors did not leave")


def test_a_decommission_whose_moves_fail_leaves_the_executors_at_work() -> None:
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    order, _ = after(order, MoveFailed("q1", ""))
    order, _ = set_moves(order, MOVES, 1.0)
    order, instructions = after(order, MoveFailed("q1", "broken"))
    assert (order.phase, order.why, instructions) == (OrderPhase.undone, "broken", [])


def test_a_move_is_one_step() -> None:
    order, instructions = set_moves(open_order(0, Move("q1", MOVES["q1"], ""), 0.0)[0], MOVES, 0.0)
    assert instructions == (MoveBuckets("q1", MOVES["q1"]),)
    assert after(order, Moved("q2"), Moved("q1"))[0].phase == OrderPhase.done


def test_nothing_is_done_at_once() -> None:
    assert open_order(0, Nothing(""), 0.0)[0].has_ended


def test_what_has_ended_does_not_change() -> None:
    done, _ = after(moving(), Moved("q1"))
    for event in (Arrived("x"), Lost("a"), MoveFailed("q1", ""), Passed()):
        assert after(done, event, at=LATE) == (done, [])


EVENTS = st.one_of(
    st.builds(Granted, st.integers(0, 3)),
    st.just(Refused("no")),
    st.builds(Arrived, st.sampled_from("abcd")),
    st.builds(Lost, st.sampled_from("abcd")),
    st.just(Moved("q1")),
    st.just(MoveFailed("q1", "why")),
    st.builds(Left, st.sampled_from("abcd")),
    st.just(Passed()),
)
DECISIONS = st.sampled_from([GROW, SHRINK, Move("q1", MOVES["q1"], "")])


@settings(max_examples=200, deadline=None)
@given(DECISIONS, st.lists(st.tuples(EVENTS, st.floats(0, 90)), max_size=25))
def test_every_order_ends_and_executors_let_go_have_no_moves_open(
    decision: Decision, events: list[tuple[Event, float]]
) -> None:
    at = 0.0
    order, instructions = open_order(0, decision, at)
    released: list[str] = []

    def seen(instructions: tuple[Instruction, ...]) -> None:
        for one in instructions:
            if isinstance(one, Release):
                assert not order.pending
                released.extend(one.executors)

    for event, later in events:
        at += later
        order, instructions = step(order, event, at, SETTINGS)
        seen(instructions)
        if order.needs_moves:
            order, instructions = set_moves(order, MOVES, at)
            seen(instructions)
    # from here on the world answers: whatever the order waits for comes
    for _ in range(30):
        if order.has_ended:
            break
        answers = [Moved("q1"), *(Left(name) for name in order.executors), Passed()]
        for event in answers:
            at += 200
            order, instructions = step(order, event, at, SETTINGS)
            seen(instructions)
            if order.needs_moves:
                order, instructions = set_moves(order, MOVES, at)
                seen(instructions)
    assert order.has_ended
    if isinstance(decision, Provision) and order.phase == OrderPhase.undone:
        assert not order.executors
