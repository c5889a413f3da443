"""The fixed cost of an epoch and the cost of an event are separated if epochs differ in size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scaling.fit import Parts, fit_parts


@settings(deadline=None)
@given(st.floats(0.001, 10), st.floats(1e-7, 1e-3), st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
def test_fixed_cost_and_cost_of_an_event_are_found(fixed: float, each: float, events: list[int]) -> None:
    found = fit_parts(events, [fixed + each * n for n in events])
    apart = max(events) >= 2 * min(events)
    for n in events:
        ratio = found.of(n) / (fixed + each * n)
        assert ratio == pytest.approx(1, rel=0.01) if apart else 0.5 < ratio < 2, "also where they look alike"
    assert sum(map(found.of, events)) == pytest.approx(sum(fixed + each * n for n in events), rel=1e-6)
    if max(events) >= 2 * min(events):
        assert found.fixed == pytest.approx(fixed, rel=1e-2, abs=1e-6 * max(events) * each)
        assert found.each == pytest.approx(each, rel=1e-2, abs=1e-9 * fixed)


def test_neither_cost_is_negative() -> None:
    assert fit_parts([100, 200, 400], [1.0, 2.1, 4.6]).fixed == 0
    assert fit_parts([100, 200, 400], [1.0, 2.1, 4.6]).each == pytest.approx(7.7 / 700)


def test_events_always_have_a_cost() -> None:
    assert fit_parts([100, 200, 400], [3.0, 2.0, 1.0]) == Parts(0.0, 6.0 / 700), "noise"
    found = fit_parts([100, 100, 400], [1.0, 3.0, 2.1])
    assert found.fixed <= 1.0, "the smallest took no more"
    assert found.each > 0
    assert 600 * found.each + 3 * found.fixed == pytest.approx(6.1)


def test_epochs_of_one_size_have_no_fixed_cost() -> None:
    assert fit_parts([100, 110], [1.0, 3.2]) == Parts(0.0, 4.2 / 210)


def test_without_events_there_is_only_a_fixed_cost() -> None:
    assert fit_parts([], []) == Parts()
    assert fit_parts([0, 0], [1.0, 3.0]) == Parts(2.0)
