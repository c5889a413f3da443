"""What a unit lacks and what it has too much of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.ha.needs import TAKE_OVER_SECONDS, Needs, find_needs, is_taking_over, next_secondary_time
from penstock.ha.schemes import SCHEMES, Scheme
from penstock.ha.unit import Kind, Member, Recovery, UnitRecord, kind_of


def member(kind: Kind, phase: str, since: float = 0.0) -> Member:
    return Member(1, "here", kind, phase=phase, since=since)


PRIMARY = member("passive", "primary")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_empty_unit_begins_with_one_that_follows_nobody(scheme: Scheme) -> None:
    assert find_needs(scheme, None, {}, (), {}) == Needs(start=("passive",))
    assert find_needs(scheme, None, {}, (), {"e1": "passive"}) == Needs(), "it is on its way"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_primary_alone_gets_what_the_scheme_asks_for(scheme: Scheme) -> None:
    wanted = kind_of(scheme)
    assert find_needs(scheme, "e1", {"e1": PRIMARY}, (), {}).start == (() if wanted is None else (wanted,))
    if wanted is not None:
        assert not find_needs(scheme, "e1", {"e1": PRIMARY}, (), {"e2": wanted}).start


def test_while_nobody_leads_nobody_is_let_go() -> None:
    up = {"e2": member("active", "following"), "e3": member("passive", "ready")}
    assert find_needs(Scheme.passive_replication, "e1", up, (), {}) == Needs()
    beginning = {"e1": member("passive", "starting"), **up}
    assert find_needs(Scheme.passive_replication, "e1", beginning, (), {}) == Needs()


def test_one_of_the_wrong_kind_stays_until_the_right_one_is_ready() -> None:
    up = {"e1": PRIMARY, "e2": member("passive", "ready")}
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs(start=("active",))
    up["e3"] = member("active", "starting")
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs()
    up["e3"] = member("active", "following")
    assert find_needs(Scheme.active_standby, "e1", up, (), {}) == Needs(leave=("e2",))
    assert find_needs(Scheme.active_standby, "e1", up, ("e2",), {}) == Needs()


def test_of_several_that_suit_the_one_that_is_ready_stays() -> None:
    up = {"e1": PRIMARY, "e2": member("passive", "starting", 1.0), "e3": member("passive", "ready", 2.0)}
    assert find_needs(Scheme.deployed, "e1", up, (), {}) == Needs(leave=("e2",))
    assert find_needs(Scheme.passive_replication, "e1", up, (), {}) == Needs(leave=("e2", "e3"))


def test_nobody_is_started_beside_one_that_takes_over_for_a_while() -> None:
    record = UnitRecord(Scheme.passive_hot, "state", leader="e2", generation=2)
    up = {"e2": member("passive", "primary")}
    assert not is_taking_over(record, up, 100.0), "the first to lead has taken over from nobody"
    recovery = Recovery("e1", "e2", 2, "passive-hot", lease_at=100.0)
    taking = replace(record, recoveries=(recovery,))
    assert is_taking_over(taking, up, 100.5)
    assert not is_taking_over(taking, up, 100.0 + TAKE_OVER_SECONDS), "no events may have come"
    assert not is_taking_over(taking, up, 99.0), "clocks may differ"
    assert not is_taking_over(
        replace(taking, recoveries=(replace(recovery, first_result_at=100.4),)), up, 100.5
    )
    assert not is_taking_over(replace(taking, generation=3), up, 100.5)
    assert not is_taking_over(taking, {}, 100.5), "it is lost too"


def test_secondaries_lost_again_and_again_are_replaced_ever_later() -> None:
    losses: list[float] = []
    waits = []
    now = 1000.0
    for _ in range(8):
        losses.append(now)
        begins = next_secondary_time(losses, now)
        waits.append(begins - now)
        now = begins + 1.0
    assert waits[:5] == [0, 0, 5, 10, 20]
    assert max(waits) <= 60
    assert next_secondary_time(losses, now + 1000.0) == now + 1000.0, "what is long ago does not count"
