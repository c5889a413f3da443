"""An order always ends, done or undone. All transitions, one by one and at random."""

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


def apply_events(order: Order, *events: Event, at: float = 1.0) -> tuple[Order, list[Instruction]]:
    instructions: list[Instruction] = []
    for event in events:
        order, more = step(order, event, at, SETTINGS)
        instructions += more
    return order, instructions


def requested_order() -> Order:
    order, instructions = open_order(0, GROW, 0.0)
    assert (order.phase, instructions) == (OrderPhase.requested, (RequestExecutors(2),))
    return order


def arrived_order() -> Order:
    order, _ = apply_events(requested_order(), Granted(2), Arrived("a"), Arrived("b"))
    return order


def moving_order() -> Order:
    order, instructions = set_moves(arrived_order(), MOVES, 1.0)
    assert instructions == (MoveBuckets("q1", {3: (0, 1)}),)
    return order


def leaving_order() -> Order:
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    return apply_events(order, Moved("q1"))[0]


def test_a_provision_passes_through_all_phases() -> None:
    order, _ = apply_events(requested_order(), Granted(2))
    assert order.phase == OrderPhase.coming
    order, _ = apply_events(order, Arrived("a"))
    assert order.phase == OrderPhase.coming
    order, _ = apply_events(order, Arrived("b"))
    assert (order.phase, order.needs_moves) == (OrderPhase.arrived, True)
    assert moving_order().phase == OrderPhase.moving
    order, instructions = apply_events(moving_order(), Moved("q1"))
    assert (order.phase, instructions, order.has_ended) == (OrderPhase.done, [], True)


def test_executors_that_arrive_before_the_grant_count() -> None:
    order, _ = apply_events(requested_order(), Arrived("a"), Arrived("b"))
    assert order.phase == OrderPhase.arrived


def test_a_refusal_undoes_an_order_that_has_not_started() -> None:
    order, instructions = apply_events(requested_order(), Refused("no more"))
    assert (order.phase, order.why, instructions) == (OrderPhase.undone, "no more", [])


def test_a_grant_of_fewer_is_accepted() -> None:
    order, _ = apply_events(requested_order(), Granted(1), Arrived("a"))
    assert (order.phase, order.wanted) == (OrderPhase.arrived, 1)


def test_a_grant_of_none_undoes_the_order() -> None:
    assert apply_events(requested_order(), Granted(0))[0].phase == OrderPhase.undone


def test_an_executor_that_never_arrives_is_requested_again_and_then_given_up() -> None:
    order, _ = apply_events(requested_order(), Granted(2), Arrived("a"))
    order, instructions = apply_events(order, Passed(), at=LATE)
    assert (order.phase, instructions) == (OrderPhase.requested, [RequestExecutors(1)])
    order, _ = apply_events(order, Granted(1), at=LATE)
    order, instructions = apply_events(order, Passed(), at=2 * LATE)
    assert (order.phase, instructions, order.why) == (OrderPhase.arrived, [], "1 executors never arrived")


def test_when_none_ever_comes_the_order_is_undone() -> None:
    order, instructions = apply_events(requested_order(), Passed(), at=LATE)
    assert instructions == [RequestExecutors(2)]
    order, _ = apply_events(order, Passed(), at=2 * LATE)
    assert order.phase == OrderPhase.undone


def test_time_below_the_limit_changes_nothing() -> None:
    for order in (requested_order(), moving_order(), leaving_order()):
        assert apply_events(order, Passed(), at=2.0) == (order, [])


def test_one_that_dies_while_others_come_is_replaced_then_done_without() -> None:
    coming, _ = apply_events(requested_order(), Granted(2), Arrived("a"))
    order, instructions = apply_events(coming, Lost("a"))
    assert (order.phase, instructions) == (OrderPhase.coming, [RequestExecutors(1)])
    fewer, _ = apply_events(order, Refused("no more"))
    assert (fewer.phase, fewer.wanted) == (OrderPhase.coming, 1)
    order, _ = apply_events(order, Granted(1), Arrived("b"), Lost("b"))
    assert (order.phase, order.wanted) == (OrderPhase.coming, 1)
    assert apply_events(order, Arrived("c"))[0].phase == OrderPhase.arrived


def test_the_death_of_all_new_executors_undoes_a_provision() -> None:
    order, _ = apply_events(arrived_order(), Lost("a"), Lost("b"))
    assert order.phase == OrderPhase.undone
    order, _ = apply_events(moving_order(), Lost("a"))
    order, _ = set_moves(order, MOVES, 1.0)
    order, instructions = apply_events(order, Lost("b"))
    assert (order.phase, instructions) == (OrderPhase.undone, [Withdraw(("q1",))])


@pytest.mark.parametrize("event", [MoveFailed("q1", "why"), Lost("a"), Lost("somebody else")])
def test_a_move_that_fails_is_planned_again_then_undone(event: Event) -> None:
    order, instructions = apply_events(moving_order(), event)
    under_way = [] if isinstance(event, MoveFailed) else [Withdraw(("q1",))]
    assert (order.phase, order.needs_moves, instructions) == (OrderPhase.arrived, True, under_way)
    order, _ = set_moves(order, MOVES, 2.0)
    order, _ = apply_events(order, MoveFailed("q1", "again"))
    assert (order.phase, order.needs_moves) == (OrderPhase.undoing, True)
    order, released_instructions = set_moves(order, {"q1": {3: (1, 0)}}, 3.0)
    assert released_instructions == (MoveBuckets("q1", {3: (1, 0)}),)
    order, instructions = apply_events(order, Moved("q1"))
    assert instructions == [Release(order.executors)]
    order, _ = apply_events(order, *(Left(name) for name in order.executors))
    assert order.phase == OrderPhase.undone


def test_a_long_move_is_waited_for_and_then_cancelled() -> None:
    order, at = moving_order(), 0.0
    for tries in range(1, SETTINGS.retries + 1):
        at += LATE
        order, instructions = apply_events(order, Passed(), at=at)
        assert (order.phase, order.tries, instructions) == (OrderPhase.moving, tries, []), (
            "never another beside the first"
        )
    order, instructions = apply_events(order, Passed(), at=at + LATE)
    assert (order.phase, instructions) == (OrderPhase.undoing, [Withdraw(("q1",))])


def test_a_pending_move_is_cancelled_before_it_is_planned_again() -> None:
    order, instructions = apply_events(moving_order(), Lost("a"))
    assert instructions == [Withdraw(("q1",))]
    assert order.needs_moves


def test_undoing_is_retried_for_ever() -> None:
    order, _ = apply_events(moving_order(), MoveFailed("q1", ""))
    order, _ = set_moves(order, MOVES, 1.0)
    order, _ = apply_events(order, MoveFailed("q1", ""))
    for number in range(1, 20):
        order, _ = set_moves(order, MOVES, number * LATE)
        event = MoveFailed("q1", "") if number % 2 else Passed()
        order, _ = apply_events(order, event, at=(number + 0.5) * LATE)
        assert (order.phase, order.needs_moves) == (OrderPhase.undoing, True)
    order, _ = set_moves(order, MOVES, 1e6)
    order, _ = apply_events(order, Moved("q1"), at=1e6)
    order, instructions = apply_events(order, Passed(), at=2e6)
    assert instructions == [Release(("a", "b"))]
    order, _ = apply_events(order, Lost("a"), Left("b"), at=2e6)
    assert order.phase == OrderPhase.undone


def test_a_new_fleet_without_anything_to_move_is_done() -> None:
    assert set_moves(arrived_order(), {"q1": {}}, 1.0)[0].phase == OrderPhase.done


def test_a_decommission_moves_first_and_releases_then() -> None:
    order, instructions = open_order(0, SHRINK, 0.0)
    assert (order.phase, instructions, order.needs_moves) == (OrderPhase.arrived, (), True)
    order, _ = set_moves(order, MOVES, 1.0)
    order, released_instructions = apply_events(order, Moved("q1"))
    assert (order.phase, released_instructions) == (OrderPhase.leaving, [Release(("a", "b"))])
    order, _ = apply_events(order, Left("a"))
    assert order.phase == OrderPhase.leaving
    assert apply_events(order, Left("b"))[0].phase == OrderPhase.done


def test_an_executor_that_dies_while_it_leaves_has_left() -> None:
    order, instructions = apply_events(leaving_order(), Lost("a"))
    assert (order.phase, order.executors, instructions) == (
        OrderPhase.arrived,
        ("b",),
        [],
    )  # did its buckets go to b?
    assert apply_events(order, Left("b"))[0].phase == OrderPhase.done
    order, released_instructions = set_moves(order, {}, 2.0)
    assert (order.phase, released_instructions) == (OrderPhase.leaving, (Release(("b",)),))
    assert apply_events(order, Lost("b"))[0].phase == OrderPhase.done
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    order, _ = apply_events(order, Lost("a"))
    assert (order.phase, order.executors) == (OrderPhase.arrived, ("b",))


def test_when_an_executor_dies_a_decommission_is_planned_again() -> None:
    order, instructions = apply_events(leaving_order(), Lost("somebody else"))
    assert (order.phase, order.needs_moves, instructions) == (OrderPhase.arrived, True, [])


def test_an_abandoned_order_keeps_its_executors() -> None:
    order = abandon_order(moving_order(), "nobody is left", 2.0)
    assert (order.phase, order.executors, order.why) == (OrderPhase.undone, (), "nobody is left")


def test_executors_that_do_not_leave_stay() -> None:
    order, instructions = apply_events(leaving_order(), Passed(), at=LATE)
    assert (order.phase, instructions) == (OrderPhase.leaving, [Release(("a", "b"))])
    order, _ = apply_events(order, Passed(), at=2 * LATE)
    assert (order.phase, order.why) == (OrderPhase.undone, "executors did not leave")


def test_a_decommission_whose_moves_fail_keeps_its_executors() -> None:
    order, _ = set_moves(open_order(0, SHRINK, 0.0)[0], MOVES, 1.0)
    order, _ = apply_events(order, MoveFailed("q1", ""))
    order, _ = set_moves(order, MOVES, 1.0)
    order, instructions = apply_events(order, MoveFailed("q1", "broken"))
    assert (order.phase, order.why, instructions) == (OrderPhase.undone, "broken", [])


def test_a_move_is_one_step() -> None:
    order, instructions = set_moves(open_order(0, Move("q1", MOVES["q1"], ""), 0.0)[0], MOVES, 0.0)
    assert instructions == (MoveBuckets("q1", MOVES["q1"]),)
    assert apply_events(order, Moved("q2"), Moved("q1"))[0].phase == OrderPhase.done


def test_an_order_for_nothing_has_ended() -> None:
    assert open_order(0, Nothing(""), 0.0)[0].has_ended


def test_an_ended_order_does_not_change() -> None:
    done, _ = apply_events(moving_order(), Moved("q1"))
    for event in (Arrived("x"), Lost("a"), MoveFailed("q1", ""), Passed()):
        assert apply_events(done, event, at=LATE) == (done, [])


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


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(DECISIONS, st.lists(st.tuples(EVENTS, st.floats(0, 90)), max_size=25))
def test_every_order_ends_and_released_executors_have_no_pending_moves(
    decision: Decision, events: list[tuple[Event, float]]
) -> None:
    at = 0.0
    order, instructions = open_order(0, decision, at)
    released: list[str] = []

    def record_releases(instructions: tuple[Instruction, ...]) -> None:
        for one in instructions:
            if isinstance(one, Release):
                assert not order.pending
                released.extend(one.executors)

    for event, later in events:
        at += later
        order, instructions = step(order, event, at, SETTINGS)
        record_releases(instructions)
        if order.needs_moves:
            order, instructions = set_moves(order, MOVES, at)
            record_releases(instructions)
    # from here on whatever the order waits for arrives
    for _ in range(30):
        if order.has_ended:
            break
        events = [Moved("q1"), *(Left(name) for name in order.executors), Passed()]
        for event in events:
            at += 200
            order, instructions = step(order, event, at, SETTINGS)
            record_releases(instructions)
            if order.needs_moves:
                order, instructions = set_moves(order, MOVES, at)
                record_releases(instructions)
    assert order.has_ended
    if isinstance(decision, Provision) and order.phase == OrderPhase.undone:
        assert not order.executors
