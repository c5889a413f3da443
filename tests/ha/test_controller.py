"""The controller picks the cheapest scheme within the threshold, without oscillating, and says why."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ha.controller import ControllerState, decide, initial_state
from penstock.ha.cost import PRESETS, CostWeights
from penstock.ha.decision import Rejected
from penstock.ha.history import Load, Measurement
from penstock.ha.schemes import Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from tests.ha.controller_cases import (
    LOAD,
    NO_DEADLINE,
    TYPICAL,
    floats,
    run_controller,
    some_loads,
    some_measurements,
)

WEIGHTS = st.builds(CostWeights, floats(0.01, 5), floats(0, 5), floats(0, 5), floats(0, 5))
#: neither cool-down nor hysteresis: the choice itself
BARE = ControllerSettings(cool_down_seconds=0, headroom=0, least_saving=0)
CHOICES = st.sampled_from([(1,), (5,), CHECKPOINT_CHOICES])
SETTINGS = st.builds(
    ControllerSettings,
    threshold_seconds=floats(0, 120),
    semantics=st.sampled_from(Semantics),
    weights=WEIGHTS,
    checkpoint_choices=CHOICES,
    headroom=floats(0, 0.5),
    least_saving=floats(0, 0.5),
)


def fold_loads(state: ControllerState, loads: list[Load], settings: ControllerSettings) -> ControllerState:
    """The controller's state after these loads, measured ten seconds apart."""
    for turn, load in enumerate(loads):
        state, _ = decide(state, [replace(load, at=10.0 * turn)], settings, 10.0 * turn)
    return state


@NO_DEADLINE
@given(SETTINGS, some_loads(), some_measurements(), st.sampled_from(Scheme), st.booleans())
def test_never_over_the_threshold_if_a_scheme_within_it_exists(
    settings: ControllerSettings, load: Load, measured: list[Measurement], scheme: Scheme, fresh: bool
) -> None:
    warm = initial_state(settings, 0.0).history.fold([*measured, *[load] * settings.warm_up_loads])
    state = ControllerState(scheme, settings.checkpoint_choices[0], 100.0 if fresh else 0.0, warm)
    after, decision = decide(state, [], settings, 101.0)
    chosen = decision.of(decision.chosen)
    assert chosen is not None
    assert after.scheme is decision.chosen
    within = [one for one in decision.considered if one.estimate.seconds <= settings.threshold_seconds]
    if within:
        assert chosen.estimate.seconds <= settings.threshold_seconds
        assert decision.suits
    else:
        assert not decision.suits
        assert "no scheme is within" in decision.reason
        fastest = min(one.estimate.seconds for one in decision.considered)
        assert chosen.estimate.seconds <= fastest * 1.05 + 1e-9


@NO_DEADLINE
@given(floats(0.5, 120), WEIGHTS, CHOICES, some_loads(), some_measurements())
def test_the_cheapest_within_the_threshold_wins_and_ties_go_to_the_faster(
    threshold: float,
    weights: CostWeights,
    choices: tuple[int, ...],
    load: Load,
    measured: list[Measurement],
) -> None:
    settings = replace(BARE, threshold_seconds=threshold, weights=weights, checkpoint_choices=choices)
    _, decision = run_controller(settings, load, measured)
    within = [one for one in decision.considered if one.estimate.seconds <= threshold]
    chosen = decision.of(decision.chosen)
    assert chosen is not None
    if within:
        assert chosen.rank == min(one.rank for one in within)


@NO_DEADLINE
@given(
    floats(0, 120),
    floats(0, 120),
    WEIGHTS,
    CHOICES,
    some_loads(),
    some_measurements(),
    st.sampled_from(Semantics),
)
def test_a_larger_threshold_never_costs_more(
    first: float,
    second: float,
    weights: CostWeights,
    choices: tuple[int, ...],
    load: Load,
    measured: list[Measurement],
    semantics: Semantics,
) -> None:
    settings = ControllerSettings(weights=weights, semantics=semantics, checkpoint_choices=choices)
    costs = []
    for threshold in sorted((first, second)):
        _, decision = run_controller(replace(settings, threshold_seconds=threshold), load, measured)
        chosen = decision.of(decision.chosen)
        assert chosen is not None
        fastest = min(decision.considered, key=lambda each: each.estimate.seconds)
        if fastest.scheme is not Scheme.active_replication:
            return  # the initial scheme is then not the fastest: a smaller threshold may leave it earlier
        costs.append(chosen.cost)
    assert costs[1] <= costs[0] + 1e-9


def test_it_starts_with_active_replication_and_says_so() -> None:
    settings = ControllerSettings(threshold_seconds=60.0)
    state = initial_state(settings, 0.0)
    for turn in range(settings.warm_up_loads - 1):
        state, decision = decide(state, [LOAD], settings, float(turn))
        assert decision.chosen is Scheme.active_replication
        assert "safe side" in decision.reason
    _, decision = decide(state, [*TYPICAL, LOAD], settings, 60.0)
    assert decision.chosen is Scheme.passive_replication


def test_it_cools_down_after_a_switch_that_saves() -> None:
    settings = ControllerSettings(threshold_seconds=7.0, cool_down_seconds=100.0)
    large = replace(LOAD, state_bytes=400e6)
    state = initial_state(settings, -1000.0)
    state = replace(state, history=state.history.fold(TYPICAL))
    state = fold_loads(state, [large] * 8, settings)
    assert state.scheme is Scheme.passive_cold
    switched_at = state.changed_at
    state = replace(state, history=replace(state.history, loads=()))
    small = replace(LOAD, state_bytes=30e6)
    seen = []
    for turn in range(40):
        now = switched_at + 5.0 * turn
        state, decision = decide(state, [replace(small, at=now)], settings, now)
        if decision.switched:
            assert now - switched_at >= 100.0
        seen.append(decision)
    assert state.scheme is Scheme.deployed
    cooling = [d for d in seen if "cooling" in d.reason]
    assert cooling
    rejected = cooling[0].of(Scheme.deployed)
    assert rejected is not None
    assert rejected.rejected is Rejected.cooling


def test_a_scheme_that_has_become_too_slow_is_left_at_once() -> None:
    settings = ControllerSettings(threshold_seconds=8.0, cool_down_seconds=1e6)
    state, decision = run_controller(settings, LOAD)
    assert decision.chosen is Scheme.active_replication  # a million seconds have not passed
    state = replace(state, scheme=Scheme.deployed, changed_at=1000.0)
    state, decision = decide(state, [replace(LOAD, at=1001.0, state_bytes=4e9)], settings, 1001.0)
    assert decision.switched
    assert "deployed would take" in decision.reason
    assert decision.suits


def test_noise_around_the_threshold_does_not_make_it_oscillate() -> None:
    settings = ControllerSettings(threshold_seconds=6.0, cool_down_seconds=0.0, ahead_seconds=0.0)
    state = initial_state(settings, 0.0)
    state = replace(state, history=state.history.fold(TYPICAL))
    switches = 0
    for turn in range(400):
        load = replace(LOAD, at=5.0 * turn, state_bytes=55e6 * (1.03 if turn % 2 else 0.97))
        state, decision = decide(state, [load], settings, 5.0 * turn)
        switches += decision.switched
    assert switches <= 2


def test_if_no_scheme_suits_it_picks_the_fastest_and_says_so() -> None:
    _, decision = run_controller(ControllerSettings(threshold_seconds=0.1), LOAD)
    assert decision.chosen is Scheme.active_replication
    assert not decision.suits
    assert "no scheme is within 0.1 s" in decision.reason
    assert all(
        one.rejected is Rejected.too_slow for one in decision.considered if one.scheme is not decision.chosen
    )


def test_with_costs_for_machines_only_it_picks_active_replication_or_no_second_machine() -> None:
    for threshold, expected in ((10.0, Scheme.active_replication), (60.0, Scheme.passive_replication)):
        settings = ControllerSettings(threshold_seconds=threshold, weights=PRESETS["cloud-vm"])
        _, decision = run_controller(settings, LOAD)
        assert decision.chosen is expected


def test_it_varies_the_checkpoint_interval_where_it_may() -> None:
    fixed = ControllerSettings(threshold_seconds=30.0, schemes=(Scheme.active_replication, Scheme.deployed))
    free = replace(fixed, checkpoint_choices=CHECKPOINT_CHOICES)
    _, one = run_controller(fixed, LOAD)
    _, other = run_controller(free, LOAD)
    tight, _ = run_controller(replace(free, threshold_seconds=8.0), LOAD)
    assert one.checkpoint_every == 1
    assert other.checkpoint_every > tight.checkpoint_every >= 1
    expensive, cheap = one.of(Scheme.deployed), other.of(Scheme.deployed)
    assert expensive is not None
    assert cheap is not None
    assert cheap.cost < expensive.cost


def test_gap_recovery_takes_cheaper_schemes_than_precise_recovery() -> None:
    settings = ControllerSettings(threshold_seconds=5.0)
    busy = replace(LOAD, events_per_second=240_000.0, state_bytes=20e6)
    _, precise = run_controller(settings, busy)
    _, gap = run_controller(replace(settings, semantics=Semantics.gap), busy)
    first, second = precise.of(precise.chosen), gap.of(gap.chosen)
    assert first is not None
    assert second is not None
    assert second.cost < first.cost


def test_a_decision_records_all_that_it_rests_on() -> None:
    _, decision = run_controller(ControllerSettings(threshold_seconds=10.0), LOAD)
    plain = json.loads(json.dumps(decision.to_plain()))
    assert plain["chosen"] == "deployed"
    assert plain["inputs"]["state_bytes"] == 50e6
    assert {one["scheme"] for one in plain["considered"]} == set(Scheme)
    assert {one["scheme"]: one.get("rejected") for one in plain["considered"]} == {
        "active-replication": "costs more",
        "active-standby": "costs more",
        "passive-hot": "costs more",
        "passive-cold": "costs more",
        "deployed": None,
        "passive-replication": "over the threshold",
    }
    for one in plain["considered"]:
        assert one["seconds"] == pytest.approx(sum(part["seconds"] for part in one["parts"]), abs=1e-3)


@NO_DEADLINE
@given(SETTINGS, some_loads(), some_measurements())
def test_the_same_inputs_give_the_same_decision(
    settings: ControllerSettings, load: Load, measured: list[Measurement]
) -> None:
    assert run_controller(settings, load, measured, turns=7) == run_controller(
        settings, load, measured, turns=7
    )
