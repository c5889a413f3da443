"""Who is waited for, against a plain look at who was how far when."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logs.copy_choice import Extent
from penstock.logs.stragglers import Stragglers

#: ticks that a member is waited for
PATIENCE = 5


def whole(**latest: int) -> dict[int, Extent]:
    return {int(name[1:]): Extent(0, limit) for name, limit in latest.items()}


def made() -> Stragglers:
    stragglers = Stragglers()
    stragglers.patience_seconds = PATIENCE
    return stragglers


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3 * PATIENCE)), min_size=1, max_size=60),
    st.booleans(),
)
def test_who_keeps_up_is_never_passed_over_and_who_does_not_is(
    ticks: list[tuple[int, int]], steady: bool
) -> None:
    """Each tick the leader comes on by some events; the member has what the leader had so many ticks ago."""
    stragglers, had, has = made(), [0], 0
    keeping_up = True
    for now, (come, lag) in enumerate(ticks, start=1):
        had.append(had[-1] + come)
        has = max(has, had[max(now - lag, 0)])  # what it has it does not lose
        mine, its = whole(c0=had[-1]), whole(c0=has)
        counted = stragglers.select_reports("p", 0, mine, {"e2": its}, now if steady else now + lag % 2 * 0.5)
        keeping_up &= lag < PATIENCE - 1
        waited_for = its in counted[1:]
        assert waited_for == (stragglers.find_skipped() == {})
        if has == had[-1]:
            assert waited_for, "it has all there is"
        if keeping_up:
            assert waited_for, "it has never been far behind"
        # even the mark that was set last was of a time since which there is more that it lacks
        if now > 2 * PATIENCE + 2 and has < had[now - 2 * PATIENCE - 2]:
            assert not waited_for, "it has lacked something for long"


def test_a_member_that_stands_still_is_passed_over_until_it_has_caught_up() -> None:
    stragglers, leader = made(), whole(c0=10, c1=10)
    for now, waited in ((0.0, True), (4.9, True), (5.0, False), (8.0, False), (11.0, False)):
        reports = stragglers.select_reports("p", 0, leader, {"e2": whole(c0=3)}, now)
        assert (len(reports) == 2) is waited
        assert reports[0] is leader
    assert stragglers.find_skipped() == {"e2": ["p"]}
    assert len(stragglers.select_reports("p", 0, leader, {"e2": whole(c0=10)}, 11.1)) == 2
    assert stragglers.find_skipped() == {}


def test_a_member_that_trickles_does_not_hold_the_others_for_ever() -> None:
    stragglers = made()
    for now in range(40):
        stragglers.select_reports("p", 0, whole(c0=1_000 * now), {"e2": whole(c0=now)}, now)
    assert stragglers.find_skipped() == {"e2": ["p"]}


def test_of_two_that_have_no_copy_in_common_the_first_stays() -> None:
    stragglers = made()
    leader, others = whole(c0=10, c1=10), {"e3": whole(c1=10), "e2": whole(c0=10)}
    for now in (0.0, 6.0, 12.0):
        reports = stragglers.select_reports("p", 0, leader, others, now)
    assert reports == [leader, others["e2"]]
    assert stragglers.find_skipped() == {"e3": ["p"]}
    stragglers.retain_replicas({"e3"})
    assert stragglers.select_reports("p", 0, leader, {"e3": others["e3"]}, 13.0) == [leader, others["e3"]]


def test_a_partition_is_waited_for_apart_from_others_and_one_that_has_begun_anew_is_not_had() -> None:
    stragglers, leader = made(), whole(c0=10)
    for now in (0.0, 6.0):
        assert len(stragglers.select_reports("p", 0, leader, {"e2": whole(c0=10)}, now)) == 2
        # it has only what comes after
        has = stragglers.select_reports("q", 4, leader, {"e2": {0: Extent(5, 10)}}, now)
    assert has == [leader]
    assert stragglers.find_skipped() == {"e2": ["q"]}


def test_no_patience_at_all() -> None:
    stragglers = made()
    stragglers.patience_seconds = 0.0
    assert stragglers.select_reports("p", 0, whole(c0=2), {"e2": whole(c0=1)}, 1.0) == [whole(c0=2)]
