"""Which replicas are waited for, compared with a plain record of their progress."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logs.copy_choice import Extent
from penstock.logs.stragglers import Stragglers

#: ticks that a replica is waited for
PATIENCE = 5


def extents_of(**latest: int) -> dict[int, Extent]:
    return {int(name[1:]): Extent(0, limit) for name, limit in latest.items()}


def make_stragglers() -> Stragglers:
    stragglers = Stragglers()
    stragglers.patience_seconds = PATIENCE
    return stragglers


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3 * PATIENCE)), min_size=1, max_size=60),
    st.booleans(),
)
def test_only_a_replica_that_falls_behind_is_skipped(ticks: list[tuple[int, int]], steady: bool) -> None:
    """Each tick the leader gets some events; the replica has what the leader had some ticks ago."""
    stragglers, had, has = make_stragglers(), [0], 0
    keeping_up = True
    for now, (come, lag) in enumerate(ticks, start=1):
        had.append(had[-1] + come)
        has = max(has, had[max(now - lag, 0)])  # a replica loses no events
        leader_extents, replica_extents = extents_of(c0=had[-1]), extents_of(c0=has)
        counted = stragglers.select_reports(
            "p", 0, leader_extents, {"e2": replica_extents}, now if steady else now + lag % 2 * 0.5
        )
        keeping_up &= lag < PATIENCE - 1
        waited_for = replica_extents in counted[1:]
        assert waited_for == (stragglers.find_skipped() == {})
        if has == had[-1]:
            assert waited_for, "it has all there is"
        if keeping_up:
            assert waited_for, "it has never been far behind"
        # even the latest mark is from a time since which the replica lacks more
        if now > 2 * PATIENCE + 2 and has < had[now - 2 * PATIENCE - 2]:
            assert not waited_for, "it has lacked something for long"


def test_a_replica_without_progress_is_skipped_until_it_has_caught_up() -> None:
    stragglers, leader = make_stragglers(), extents_of(c0=10, c1=10)
    for now, waited in ((0.0, True), (4.9, True), (5.0, False), (8.0, False), (11.0, False)):
        reports = stragglers.select_reports("p", 0, leader, {"e2": extents_of(c0=3)}, now)
        assert (len(reports) == 2) is waited
        assert reports[0] is leader
    assert stragglers.find_skipped() == {"e2": ["p"]}
    assert len(stragglers.select_reports("p", 0, leader, {"e2": extents_of(c0=10)}, 11.1)) == 2
    assert stragglers.find_skipped() == {}


def test_a_slow_replica_does_not_hold_the_others_back_for_ever() -> None:
    stragglers = make_stragglers()
    for now in range(40):
        stragglers.select_reports("p", 0, extents_of(c0=1_000 * now), {"e2": extents_of(c0=now)}, now)
    assert stragglers.find_skipped() == {"e2": ["p"]}


def test_of_two_replicas_without_a_common_copy_the_first_stays() -> None:
    stragglers = make_stragglers()
    leader, others = extents_of(c0=10, c1=10), {"e3": extents_of(c1=10), "e2": extents_of(c0=10)}
    for now in (0.0, 6.0, 12.0):
        reports = stragglers.select_reports("p", 0, leader, others, now)
    assert reports == [leader, others["e2"]]
    assert stragglers.find_skipped() == {"e3": ["p"]}
    stragglers.retain_replicas({"e3"})
    assert stragglers.select_reports("p", 0, leader, {"e3": others["e3"]}, 13.0) == [leader, others["e3"]]


def test_each_partition_is_waited_for_separately_and_a_pruned_one_does_not_count() -> None:
    stragglers, leader = make_stragglers(), extents_of(c0=10)
    for now in (0.0, 6.0):
        assert len(stragglers.select_reports("p", 0, leader, {"e2": extents_of(c0=10)}, now)) == 2
        # it has only later events
        has = stragglers.select_reports("q", 4, leader, {"e2": {0: Extent(5, 10)}}, now)
    assert has == [leader]
    assert stragglers.find_skipped() == {"e2": ["q"]}


def test_without_patience_no_replica_is_waited_for() -> None:
    stragglers = make_stragglers()
    stragglers.patience_seconds = 0.0
    assert stragglers.select_reports("p", 0, extents_of(c0=2), {"e2": extents_of(c0=1)}, 1.0) == [
        extents_of(c0=2)
    ]
