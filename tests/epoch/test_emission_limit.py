"""The emission limit: due rows are spread over epochs of the target length, completely, and without empty epochs."""

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
LIMIT = EmissionLimit(row_seconds=1e-3)


def test_due_rows_that_fit_are_emitted_at_once() -> None:
    assert LIMIT.next_step(
        PendingEmissions(0, 9, rows={5: (300, 0), 8: (0, 300)}), 1.0, 0.2
    ) == WatermarkStep(None, 0.6)


def test_rows_due_at_several_instants_are_emitted_in_several_epochs() -> None:
    pending = PendingEmissions(0, FOREVER, rows={5: (0, 500), 8: (0, 500), 20: (0, 500)})
    assert LIMIT.next_step(pending, 1.0, 0.0) == WatermarkStep((7, 0), 0.5)


def test_rows_due_at_one_instant_are_emitted_in_batches() -> None:
    pending = PendingEmissions(0, 9, rows={5: (1600, 0)})
    first = LIMIT.next_step(pending, 1.0, 0.0)
    assert (first.limit, first.seconds) == ((4, 8), pytest.approx(0.8))
    rest = LIMIT.next_step(PendingEmissions(4, 9, 8, rows={5: (1600, 0)}), 1.0, 0.0)
    assert (rest.limit, rest.seconds) == (None, pytest.approx(0.8))


def test_rows_that_cannot_be_split_are_emitted_after_those_that_can() -> None:
    pending = PendingEmissions(0, 9, rows={5: (160, 2000)})
    assert LIMIT.next_step(pending, 1.0, 0.0).limit == (4, CLOSING_BATCHES)
    assert LIMIT.next_step(
        PendingEmissions(4, 9, CLOSING_BATCHES, rows={5: (160, 2000)}), 1.0, 0.0
    ) == WatermarkStep(None, 2.0)


def test_rows_that_reading_would_make_due_wait_if_both_take_too_long() -> None:
    pending = PendingEmissions(0, 3, rows={5: (400, 0)})
    assert LIMIT.next_step(pending, 1.0, 1.0) == WatermarkStep((4, 0), 0.0)
    assert LIMIT.next_step(pending, 1.0, 0.7) == WatermarkStep(None, 0.0)
    assert LIMIT.next_step(PendingEmissions(0, 3, rows={5: (100, 0)}), 1.0, 1.0) == WatermarkStep(
        None, 0.0
    ), "a little does not matter"


rows_at = st.dictionaries(
    st.integers(1, 40), st.tuples(st.integers(0, 3_000), st.integers(0, 900)), max_size=12
)


@given(rows_at, st.floats(0.3, 3.0))
def test_everything_is_emitted_and_no_epoch_takes_longer_than_it_must(
    rows: dict[int, tuple[int, int]], room: float
) -> None:
    """Until all rows are emitted, each epoch emits some: by the model, within its time unless its last rows cannot be
    split."""
    pending, emitted = PendingEmissions(0, FOREVER, rows=rows), 0.0
    while pending.watermark < FOREVER:
        step = LIMIT.next_step(pending, room, 0.0)
        at, ahead = step.limit if step.limit is not None else (FOREVER, 0)
        assert (at, ahead) > (pending.watermark, pending.ahead), "it makes progress"
        seconds = seconds_between(rows, (pending.watermark, pending.ahead), (at, ahead))
        assert seconds == pytest.approx(step.seconds)
        unsplittable = max(
            (unsplittable_seconds(*rows[i]) for i in rows if pending.watermark < i <= at + 1), default=0.0
        )
        assert seconds <= max(room, unsplittable) + 1e-9
        emitted += seconds
        pending = PendingEmissions(at, FOREVER, ahead, {i: r for i, r in rows.items() if i > at})
    assert emitted == pytest.approx(sum(map(sum, rows.values())) * 1e-3)


def seconds_between(rows: dict[int, tuple[int, int]], start: tuple[int, int], end: tuple[int, int]) -> float:
    """How long it takes to emit the rows between two limits."""
    total = 0.0
    for at, (in_batches, whole) in rows.items():
        first = start[1] if at == start[0] + 1 else 0 if at > start[0] else CLOSING_BATCHES
        last = end[1] if at == end[0] + 1 else CLOSING_BATCHES if at <= end[0] else 0
        total += max(0, last - first) * in_batches / CLOSING_BATCHES * 1e-3
        total += whole * 1e-3 if start[0] < at <= end[0] else 0
    return total


def unsplittable_seconds(in_batches: int, whole: int) -> float:
    return max(in_batches / CLOSING_BATCHES, whole + in_batches / CLOSING_BATCHES) * 1e-3


def test_the_cost_of_a_row_is_learned_from_epochs_that_emit_many() -> None:
    limit = EmissionLimit(row_seconds=1e-6)
    for _ in range(12):  # they take 5 microseconds a row, and a tenth of the epoch is something else
        emitted = 300_000 * limit.row_seconds
        limit = limit.observe(emitted / (emitted + 0.15), (300_000 * 5e-6 + 0.15) / (emitted + 0.15))
    assert limit.row_seconds == pytest.approx(5e-6, rel=0.1)
    assert limit.observe(0.01, 3.0).row_seconds == pytest.approx(limit.row_seconds, rel=0.03)


def test_pending_rows_of_slices_and_groups_are_summed_by_stream() -> None:
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


def test_distant_instants_are_merged() -> None:
    found = nearest_instants(dict.fromkeys(range(100), 2))
    assert len(found) == NEAR_INSTANTS + 1
    assert sum(found.values()) == 200


def test_batches_without_jobs_take_no_epoch() -> None:
    pending = PendingEmissions(0, 9, rows={5: (3000, 0)}, batches=(2, 9, 14))
    first = LIMIT.next_step(pending, 1.5, 0.0)
    assert (first.limit, first.seconds) == ((4, 3), pytest.approx(1.0))
    second = LIMIT.next_step(PendingEmissions(4, 9, 3, {5: (3000, 0)}, (2, 9, 14)), 2.5, 0.0)
    assert (second.limit, second.seconds) == (None, pytest.approx(2.0))


def test_a_single_job_is_emitted_at_once() -> None:
    assert LIMIT.next_step(
        PendingEmissions(0, 9, rows={5: (3000, 0)}, batches=(7,)), 1.0, 0.0
    ) == WatermarkStep(None, 3.0)


def test_emitted_rows_are_counted_by_what_was_pending_before() -> None:
    before = PendingEmissions(0, 9, 4, {1: (160, 50), 5: (320, 10), 8: (16, 0)})
    assert before.emitted_until(before) == 0
    assert before.emitted_until(PendingEmissions(0, 9, 8)) == 40
    assert before.emitted_until(PendingEmissions(4, 9, 8)) == 120 + 50 + 160
    assert before.emitted_until(PendingEmissions(9, 9)) == 120 + 50 + 330 + 16


def test_the_cost_of_a_row_is_bounded() -> None:
    limit = EmissionLimit()
    for _ in range(50):
        limit = limit.observe(1.0, 100.0)
    assert limit.row_seconds == EmissionLimit.SLOWEST
