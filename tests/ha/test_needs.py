"""Which engines a unit must start, and which must leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.ha.needs import TAKE_OVER_SECONDS, Needs, find_needs, is_taking_over, next_secondary_time
from penstock.ha.schemes import SCHEMES, Scheme
from penstock.ha.unit import Kind, Recovery, UnitEngine, UnitRecord, kind_of


def engine(kind: Kind, phase: str, since: float = 0.0) -> UnitEngine:
    return UnitEngine(1, "here", kind, phase=phase, since=since)


PRIMARY = engine("passive", "primary")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_empty_unit_starts_one_passive_engine(scheme: Scheme) -> None:
    assert find_needs(scheme, None, {}, (), {}) == Needs(start=("passive",))
    assert find_needs(scheme, None, {}, (), {"e1": "passive"}) == Needs(), "it is starting"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_leader_alone_gets_the_follower_of_its_scheme(scheme: Scheme) -> None:
    kind = kind_of(scheme)
    assert find_needs(scheme, "e1", {"e1": PRIMARY}, (), {}).start == (() if kind is None else (kind,))
    if kind is not None:
        assert not find_needs(scheme, "e1", {"e1": PRIMARY}, (), {"e2": kind}).start


def test_without_a_leader_no_engine_leaves() -> None:
    up = {"e2": engine("active", "following"), "e3": engine("passive", "ready")}
    assert find_needs(Scheme.passive_replication, "e1", up, (), {}) == Needs()
    starting = {"e1": engine("passive", "starting"), **up}
    assert find_needs(Scheme.passive_replication, "e1", starting, (), {}) == Needs()


def test_a_follower_of_the_wrong_kind_stays_until_one_of_the_right_kind_is_ready() -> None:
    up = {"e1": PRIMARY, "e2": engine("passive", "ready")}
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs(start=("active",))
    up["e3"] = engine("active", "starting")
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs()
    up["e3"] = engine("active", "following")
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs(leave=("e2",))
    assert find_needs(Scheme.active_standby, "e1", up, ("e2",), {}) == Needs()


def test_of_several_suitable_followers_the_ready_one_stays() -> None:
    up = {"e1": PRIMARY, "e2": engine("passive", "starting", 1.0), "e3": engine("passive", "ready", 2.0)}
    assert find_needs(Scheme.deployed, "e1", up, (), {}) == Needs(leave=("e2",))
    assert find_needs(Scheme.passive_replication, "e1", up, (), {}) == Needs(leave=("e2", "e3"))


def test_no_engine_is_started_beside_one_that_takes_over() -> None:
    record = UnitRecord(Scheme.passive_hot, "state", leader="e2", generation=2)
    up = {"e2": engine("passive", "primary")}
    assert not is_taking_over(record, up, 100.0), "the first leader has taken over from none"
    recovery = Recovery("e1", "e2", 2, "passive-hot", lease_at=100.0)
    recovering = replace(record, recoveries=(recovery,))
    assert is_taking_over(recovering, up, 100.5)
    assert not is_taking_over(recovering, up, 100.0 + TAKE_OVER_SECONDS), "there may be no events"
    assert not is_taking_over(recovering, up, 99.0), "clocks may differ"
    assert not is_taking_over(
        replace(recovering, recoveries=(replace(recovery, first_result_at=100.4),)), up, 100.5
    )
    assert not is_taking_over(replace(recovering, generation=3), up, 100.5)
    assert not is_taking_over(recovering, {}, 100.5), "it is lost too"


def test_followers_that_are_lost_repeatedly_are_replaced_with_growing_delays() -> None:
    losses: list[float] = []
    waits = []
    now = 1000.0
    for _ in range(8):
        losses.append(now)
        start = next_secondary_time(losses, now)
        waits.append(start - now)
        now = start + 1.0
    assert waits[:5] == [0, 0, 5, 10, 20]
    assert max(waits) <= 60
    assert next_secondary_time(losses, now + 1000.0) == now + 1000.0, "old losses do not count"
