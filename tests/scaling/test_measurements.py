"""Measurements of a period, and their smoothing over a history."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.scaling.history import History
from penstock.scaling.measurements import VACANT, Measured
from tests.scaling.kit import PERIOD, even_load, measured, snapshot


def test_utilisation_is_of_the_slices_that_have_an_executor() -> None:
    one = measured([0.5, 0.7], [0, 2], ["a", VACANT, "b"])
    assert one.utilisation == pytest.approx(0.6)
    assert one.slice_utilisation() == pytest.approx([0.5, 0.7])
    assert one.imbalance == pytest.approx(0.1)


def test_a_backlog_has_a_length_in_seconds_even_without_progress() -> None:
    assert even_load(1.0, 2, backlog=20_000).backlog_seconds == pytest.approx(2.0)
    stuck = Measured("q", 5, 100.0, 0.0, 1000.0, 0.0, *[np.zeros(1)] * 3, np.zeros(1, np.int64), ("a",))
    assert stuck.backlog_seconds > 1000


def test_the_length_of_a_backlog_is_unknown_before_the_speed_is_known() -> None:
    one = even_load(1.0, 2, backlog=20_000)
    assert replace(one, speed=5_000.0).backlog_seconds == pytest.approx(4.0)
    assert math.isnan(replace(one, speed=0.0).backlog_seconds)
    assert replace(one, speed=0.0, backlog_events=0.0).backlog_seconds == 0


def test_fixed_costs_do_not_grow_with_the_input() -> None:
    # four of five busy core seconds are fixed: three times the input needs 0.8 + 3 * 0.2 cores
    one = replace(even_load(1.0, 2, input_rate=30_000, backlog=10_000), fixed_seconds=4.0)
    history = History(30, 300).add(snapshot(5, one))
    assert history.newest_load() == pytest.approx(1.4)
    assert history.waiting_core_seconds() == pytest.approx(0.2)


def test_measurements_of_a_cold_engine_are_forgotten() -> None:
    cold = replace(snapshot(5, even_load(2.0, 2, input_rate=1e6)), warm=False)
    history = History(30, 300).add(cold).add(snapshot(10, even_load(1.0, 2)))
    assert len(history.samples) == 1
    assert history.load(30) == pytest.approx(1.0)


def test_load_is_what_the_input_needs_not_what_the_fleet_does() -> None:
    history = History(30, 300).add(snapshot(5, even_load(2.0, 2, input_rate=60_000)))
    assert history.load(30) == pytest.approx(6.0)


def test_a_stage_without_progress_keeps_its_load() -> None:
    history = History(30, 300).add(snapshot(5, even_load(1.0, 2)))
    still = measured([0.0] * 8, [b // 4 for b in range(8)], ["e0", "e1"], input_rate=10_000, backlog=50_000)
    history = history.add(snapshot(10, still))
    assert history.newest_load() == pytest.approx(1.0)
    assert history.waiting_core_seconds() == pytest.approx(5.0)


def test_a_history_is_immutable_and_bounded() -> None:
    empty = History(30, 300)
    full = empty
    for number in range(1, 201):
        full = full.add(snapshot(number * PERIOD, even_load(1.0 if number < 190 else 2.0, 4)))
        assert full.is_complete == (number * PERIOD >= 295)
    assert empty.samples == ()
    assert len(full.samples) <= 61
    assert full.load(30) == pytest.approx(2.0)
    assert full.load_thirds()[0] == pytest.approx(1.0)
    assert full.smoothed["q1"].bucket_load.sum() == pytest.approx(2.0, rel=0.1)


def test_means_forget_faster_when_the_keys_have_shifted() -> None:
    history = History(30, 300)
    for number in range(1, 20):
        history = history.add(snapshot(number * PERIOD, measured([0.9, 0.1], [0, 1], ["a", "b"])))
    assert history.smoothed["q1"].settled
    moved = measured([0.1, 0.9], [0, 1], ["a", "b"])
    history = history.add(snapshot(100, moved))
    assert not history.smoothed["q1"].settled
    history = history.add(snapshot(105, moved)).add(snapshot(110, moved))
    assert history.smoothed["q1"].settled
    assert history.smoothed["q1"].bucket_load[1] > 0.8


def test_slowness_is_relative_to_the_median_executor() -> None:
    one = measured([0.3, 0.1, 0.1], [0, 1, 2], list("abc"), slowness={"a": 3.0})
    history = History(30, 300).add(snapshot(5, one))
    assert history.smoothed["q1"].find_slow(1.5) == {"a": pytest.approx(3.0)}
    two = measured([0.3, 0.1], [0, 1], list("ab"), slowness={"a": 3.0})
    assert History(30, 300).add(snapshot(5, two)).smoothed["q1"].find_slow(1.5) == {"a": pytest.approx(3.0)}


def test_slowness_belongs_to_its_executor_when_the_fleet_changes() -> None:
    one = measured([0.3, 0.1, 0.1], [0, 1, 2], list("abc"), slowness={"a": 3.0})
    fewer = measured([0.3, 0.1], [0, 1], list("ac"), slowness={"a": 3.0})
    history = History(30, 300).add(snapshot(5, one)).add(snapshot(10, fewer))
    assert list(history.smoothed["q1"].find_slow(1.5)) == ["a"]
