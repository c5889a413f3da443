"""Closing: what is due is told in epochs that are as long as asked, whole in the end, and none for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epoch.message import PendingRows
from penstock.epoch.rate_control import (
    EmissionLimit,
    PendingEmissions,
    WatermarkStep,
    nearest_instants,
    sum_pending,
)
from penstock.operators.contract import FOREVER
from penstock.operators.job_windows import CLOSING_BATCHES, NEAR_INSTANTS
from penstock.state.manifest import StreamTime

#: a row takes a thousandth of a second
EACH = EmissionLimit(row_seconds=1e-3)


def test_what_fits_is_told_at_once() -> None:
    assert EACH.next_step(PendingEmissions(0, 9, rows={5: (300, 0), 8: (0, 300)}), 1.0, 0.2) == WatermarkStep(
        None, 0.6
    )


def test_what_is_due_at_several_instants_is_told_in_several_epochs() -> None:
    pending = PendingEmissions(0, FOREVER, rows={5: (0, 500), 8: (0, 500), 20: (0, 500)})
    assert EACH.next_step(pending, 1.0, 0.0) == WatermarkStep((7, 0), 0.5)


def test_what_is_due_at_one_instant_is_told_lot_by_lot() -> None:
    pending = PendingEmissions(0, 9, rows={5: (1600, 0)})
    first = EACH.next_step(pending, 1.0, 0.0)
    assert (first.limit, first.seconds) == ((4, 8), pytest.approx(0.8))
    rest = EACH.next_step(PendingEmissions(4, 9, 8, rows={5: (1600, 0)}), 1.0, 0.0)
    assert (rest.limit, rest.seconds) == (None, pytest.approx(0.8))


def test_what_cannot_be_cut_is_told_after_what_can() -> None:
    pending = PendingEmissions(0, 9, rows={5: (160, 2000)})
    assert EACH.next_step(pending, 1.0, 0.0).limit == (4, CLOSING_BATCHES)
    assert EACH.next_step(
        PendingEmissions(4, 9, CLOSING_BATCHES, rows={5: (160, 2000)}), 1.0, 0.0
    ) == WatermarkStep(None, 2.0)


def test_what_reading_would_make_due_waits_where_both_are_too_much() -> None:
    pending = PendingEmissions(0, 3, rows={5: (400, 0)})
    assert EACH.next_step(pending, 1.0, 1.0) == WatermarkStep((4, 0), 0.0)
    assert EACH.next_step(pending, 1.0, 0.7) == WatermarkStep(None, 0.0)
    assert EACH.next_step(PendingEmissions(0, 3, rows={5: (100, 0)}), 1.0, 1.0) == WatermarkStep(None, 0.0), (
        "a little does not matter"
    )


rows_at = st.dictionaries(
    st.integers(1, 40), st.tuples(st.integers(0, 3_000), st.integers(0, 900)), max_size=12
)


@given(rows_at, st.floats(0.3, 3.0))
def test_everything_is_told_and_no_epoch_takes_longer_than_it_must(
    rows: dict[int, tuple[int, int]], room: float
) -> None:
    """Until all is told each epoch tells something: by the model, in at most the time there is unless what it told
    last cannot be cut."""
    pending, emitted = PendingEmissions(0, FOREVER, rows=rows), 0.0
    while pending.watermark < FOREVER:
        step = EACH.next_step(pending, room, 0.0)
        at, ahead = step.limit if step.limit is not None else (FOREVER, 0)
        assert (at, ahead) > (pending.watermark, pending.ahead), "it goes on"
        seconds = taken(rows, (pending.watermark, pending.ahead), (at, ahead))
        assert seconds == pytest.approx(step.seconds)
        uncut = max((uncuttable(*rows[i]) for i in rows if pending.watermark < i <= at + 1), default=0.0)
        assert seconds <= max(room, uncut) + 1e-9
        emitted += seconds
        pending = PendingEmissions(at, FOREVER, ahead, {i: r for i, r in rows.items() if i > at})
    assert emitted == pytest.approx(sum(map(sum, rows.values())) * 1e-3)


def taken(rows: dict[int, tuple[int, int]], start: tuple[int, int], end: tuple[int, int]) -> float:
    """How long it takes to tell what lies between two places."""
    total = 0.0
    for at, (in_lots, whole) in rows.items():
        begun = start[1] if at == start[0] + 1 else 0 if at > start[0] else CLOSING_BATCHES
        ended = end[1] if at == end[0] + 1 else CLOSING_BATCHES if at <= end[0] else 0
        total += max(0, ended - begun) * in_lots / CLOSING_BATCHES * 1e-3
        total += whole * 1e-3 if start[0] < at <= end[0] else 0
    return total


def uncuttable(in_lots: int, whole: int) -> float:
    return max(in_lots / CLOSING_BATCHES, whole + in_lots / CLOSING_BATCHES) * 1e-3


def test_what_a_row_takes_is_learned_from_epochs_that_tell_many() -> None:
    limit = EmissionLimit(row_seconds=1e-6)
    for _ in range(12):  # they take 5 microseconds a row, and a tenth of the epoch is something else
        emitted = 300_000 * limit.row_seconds
        limit = limit.observe(emitted / (emitted + 0.15), (300_000 * 5e-6 + 0.15) / (emitted + 0.15))
    assert limit.row_seconds == pytest.approx(5e-6, rel=0.1)
    assert limit.observe(0.01, 3.0).row_seconds == pytest.approx(limit.row_seconds, rel=0.03)


def test_slices_and_groups_are_put_together_by_stream() -> None:
    reports = [
        PendingRows("a", (3, 5), {10: 3}),
        PendingRows("a", (), {10: 2, 20: 7}),
        PendingRows("a", (5, 9), {10: 1}),
        PendingRows("b", (1,), {}),
    ]
    times = {"a": StreamTime({}, 7, 2), "b": StreamTime({}, None)}
    found = sum_pending(reports, times, {"a": StreamTime({}, 15), "b": StreamTime({}, None)})
    assert found["a"] == PendingEmissions(7, 15, 2, {10: (4, 2), 20: (0, 7)}, (3, 5, 9))
    assert found["a"].is_limited
    assert not found["b"].is_limited


def test_instants_far_away_count_for_one() -> None:
    found = nearest_instants(dict.fromkeys(range(100), 2))
    assert len(found) == NEAR_INSTANTS + 1
    assert sum(found.values()) == 200


def test_lots_without_jobs_take_no_epoch() -> None:
    pending = PendingEmissions(0, 9, rows={5: (3000, 0)}, batches=(2, 9, 14))
    first = EACH.next_step(pending, 1.5, 0.0)
    assert (first.limit, first.seconds) == ((4, 3), pytest.approx(1.0))
    second = EACH.next_step(PendingEmissions(4, 9, 3, {5: (3000, 0)}, (2, 9, 14)), 2.5, 0.0)
    assert (second.limit, second.seconds) == (None, pytest.approx(2.0))


def test_a_single_job_is_told_at_once() -> None:
    assert EACH.next_step(
        PendingEmissions(0, 9, rows={5: (3000, 0)}, batches=(7,)), 1.0, 0.0
    ) == WatermarkStep(None, 3.0)


def test_what_was_told_is_counted_as_it_was_before() -> None:
    before = PendingEmissions(0, 9, 4, {1: (160, 50), 5: (320, 10), 8: (16, 0)})
    assert before.emitted_until(before) == 0
    assert before.emitted_until(PendingEmissions(0, 9, 8)) == 40
    assert before.emitted_until(PendingEmissions(4, 9, 8)) == 120 + 50 + 160
    assert before.emitted_until(PendingEmissions(9, 9)) == 120 + 50 + 330 + 16


def test_no_machine_makes_a_row_take_a_second() -> None:
    limit = EmissionLimit()
    for _ in range(50):
        limit = limit.observe(1.0, 100.0)
    assert limit.row_seconds == EmissionLimit.SLOWEST
