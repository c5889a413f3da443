"""Histories and estimates of recovery times: conservative, explained by their parts, never too low."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ha.estimate import CORRECTION, MARGIN, estimate
from penstock.ha.history import (
    ENOUGH,
    FIGURES,
    KEPT,
    LOADS_KEPT,
    History,
    Load,
    Measured,
    Measurement,
    Recovered,
    outlook,
)
from penstock.ha.schemes import Scheme, Semantics, steps
from penstock.simulate.engine_model import EngineModel, Truth
from tests.ha.controller_cases import LOAD, NO_DEADLINE, TYPICAL, floats, some_loads, some_measurements

EMPTY = History()


def test_a_figure_without_measurements_has_a_default() -> None:
    assert all(EMPTY.safe(name) == figure.default for name, figure in FIGURES.items())


@NO_DEADLINE
@given(st.sampled_from(sorted(FIGURES)), st.lists(floats(1e-3, 1e9), min_size=1, max_size=ENOUGH - 1))
def test_of_a_few_measurements_the_safe_value_is_the_worst_or_beyond(name: str, values: list[float]) -> None:
    safe = EMPTY.fold(Measured(name, value) for value in values).safe(name)
    assert safe >= max(values) if FIGURES[name].large_is_bad else safe <= min(values)


@NO_DEADLINE
@given(st.lists(floats(1e-3, 1e9), min_size=ENOUGH, max_size=KEPT))
def test_of_many_measurements_nine_of_ten_are_within_the_safe_value(values: list[float]) -> None:
    history = EMPTY.fold([Measured(n, v) for n in ("start", "load") for v in values])
    assert np.mean(np.array(values) <= history.safe("start")) >= 0.9
    assert np.mean(np.array(values) >= history.safe("load")) >= 0.9


def test_invalid_measurements_are_ignored() -> None:
    invalid = [
        Measured("start", math.nan),
        Measured("start", -1.0),
        Measured("load", math.inf),
        Measured("?", 1.0),
    ]
    assert EMPTY.fold([*invalid, Recovered(Scheme.deployed, 0.0, 1.0)]) == EMPTY


@NO_DEADLINE
@given(some_measurements(), st.integers(0, 20))
def test_measurements_can_be_folded_in_parts(found: list[Measurement], cut: int) -> None:
    assert EMPTY.fold(found[:cut]).fold(found[cut:]) == EMPTY.fold(found)


def test_the_length_of_a_history_is_bounded() -> None:
    history = EMPTY
    for _ in range(3):
        history = history.fold([Measured("wire", 1.0)] * KEPT + [Recovered(Scheme.deployed, 1, 1)] * KEPT)
        history = history.fold([LOAD] * LOADS_KEPT)
    assert len(history.seen["wire"]) == len(history.ratios[Scheme.deployed]) == KEPT
    assert len(history.loads) == LOADS_KEPT


@NO_DEADLINE
@given(
    st.sampled_from(Scheme),
    st.integers(1, 100),
    st.sampled_from(Semantics),
    some_measurements(),
    some_loads(),
)
def test_an_estimate_is_the_sum_of_its_parts(
    scheme: Scheme, every: int, semantics: Semantics, measured: list[Measurement], load: Load
) -> None:
    history = EMPTY.fold(measured)
    found = estimate(scheme, every, semantics, history, outlook((load,), 30.0))
    assert found.seconds == pytest.approx(sum(part.seconds for part in found.parts))
    assert all(part.seconds >= 0 for part in found.parts)
    assert [p.name for p in found.parts if p.name not in (MARGIN, CORRECTION)] == list(
        steps(scheme, semantics)
    )
    for part in found.parts:
        assert not part.unit or part.seconds == pytest.approx(part.amount / part.speed)
        assert f"{part.seconds:.2f} s" in found.describe()
    plain = json.loads(json.dumps(found.to_plain()))
    assert plain["seconds"] == pytest.approx(found.seconds, abs=1e-3)


@NO_DEADLINE
@given(st.sampled_from(Scheme), st.integers(1, 100), some_measurements(), some_loads())
def test_more_epochs_between_manifests_and_stronger_semantics_never_take_less(
    scheme: Scheme, every: int, measured: list[Measurement], load: Load
) -> None:
    history, ahead = EMPTY.fold(measured), outlook((load,), 30.0)

    def seconds(every: int, semantics: Semantics) -> float:
        return estimate(scheme, every, semantics, history, ahead).seconds

    assert seconds(every + 1, Semantics.precise) >= seconds(every, Semantics.precise)
    assert (
        seconds(every, Semantics.precise)
        >= seconds(every, Semantics.gap)
        >= seconds(every, Semantics.amnesia)
    )


@NO_DEADLINE
@given(some_measurements(), some_loads())
def test_active_replication_is_never_slower_than_active_standby(
    measured: list[Measurement], load: Load
) -> None:
    history, ahead = EMPTY.fold(measured), outlook((load,), 30.0)
    active, standby = (
        estimate(scheme, 1, Semantics.precise, history, ahead).seconds
        for scheme in (Scheme.active_replication, Scheme.active_standby)
    )
    assert active <= standby + 1e-9


def test_the_outlook_follows_a_trend_up_but_not_down() -> None:
    rising = tuple(replace(LOAD, at=10.0 * n, state_bytes=1e6 * (n + 1)) for n in range(10))
    assert outlook(rising, 60.0).state_bytes == pytest.approx(16e6)
    falling = tuple(replace(LOAD, at=10.0 * n, state_bytes=1e6 * (10 - n)) for n in range(10))
    assert outlook(falling, 60.0).state_bytes == 10e6


def test_recoveries_that_took_longer_correct_the_estimate() -> None:
    ahead = outlook((LOAD,), 0.0)
    before = estimate(Scheme.deployed, 1, Semantics.precise, EMPTY.fold(TYPICAL), ahead)
    history = EMPTY.fold([*TYPICAL, Recovered(Scheme.deployed, before.step_seconds, 2 * before.step_seconds)])
    after = estimate(Scheme.deployed, 1, Semantics.precise, history, ahead)
    assert after.seconds == pytest.approx(2 * before.seconds)
    other = estimate(Scheme.passive_hot, 1, Semantics.precise, history, ahead)
    assert CORRECTION not in [part.name for part in other.parts]


@NO_DEADLINE
@given(
    st.sampled_from(Scheme),
    st.sampled_from([1, 5, 30]),
    st.sampled_from(Semantics),
    st.integers(0, 2**32),
    floats(0, 0.2),
    st.integers(0, 12),
)
def test_an_estimate_is_never_below_70_percent_of_what_a_recovery_takes(
    scheme: Scheme, every: int, semantics: Semantics, seed: int, noise: float, start_secondary: int
) -> None:
    model = EngineModel(Truth(noise=noise), seed)
    load = model.load(0.0, 120_000.0, 200e6)
    history = EMPTY
    for _ in range(start_secondary):
        history = history.fold(model.start_secondary(scheme)[0])
    estimated = estimate(scheme, every, semantics, history, outlook((model.measure_load(load),), 30.0))
    took = sum(model.recover(scheme, every, semantics, load).values())
    assert estimated.seconds >= 0.7 * took


def test_small_epochs_are_repeated_as_fast_as_they_ran() -> None:
    """For a trickle, events a second say little: each epoch has a fixed cost."""
    trickle = replace(
        LOAD, events_per_second=10.0, most_events_per_second=10.0, epoch_seconds=1.0, work_seconds=0.2
    )
    ahead = outlook((trickle,), 0.0)
    (replay,) = [
        part
        for part in estimate(Scheme.passive_hot, 4, Semantics.precise, History(), ahead).parts
        if part.name == "replay"
    ]
    assert replay.seconds == pytest.approx(5 * 0.2)
