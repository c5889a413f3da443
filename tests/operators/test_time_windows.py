"""Windows of time against sums made one event at a time: sliding, with gaps, shifted; for any history, cutting and
number of slices."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given

import penstock as ps
from penstock import col
from penstock.operators.contract import FOREVER, NEVER
from penstock.operators.time_windows import ALL_TIME, TimeWindow
from tests.operators.harness import (
    SECOND,
    Cutting,
    History,
    Row,
    cuttings,
    histories,
    in_any_order,
    micros,
    modestly,
    run_query,
)
from tests.operators.windows_oracle import (
    FUNCTIONS,
    KEYS,
    PLAIN,
    SHAPES,
    Functions,
    Shape,
    answer,
    cut,
    head,
    steady,
    windows,
)

pytestmark = pytest.mark.slow


@modestly
@given(histories(), cuttings(), SHAPES, KEYS, FUNCTIONS)
def test_every_window_with_events_is_told_once_when_it_closes(
    history: History, cutting: Cutting, shape: Shape, keys: tuple[str, ...], functions: Functions
) -> None:
    rows = micros(run_query(lambda events: cut(events, shape, keys).aggregate(*functions), history, cutting))
    expected = [
        head(shape, start, keys, values) | answer(events, functions)
        for (start, *values), events in windows(history, shape, keys).items()
    ]
    assert in_any_order(rows) == in_any_order(expected)
    assert [row["window_end"] for row in rows] == sorted(row["window_end"] for row in rows)


SLIDING: Shape = (4, 1, 0)


def counted(history: History) -> dict[tuple[int, str | None], int]:
    return {key: len(events) for key, events in windows(history, SLIDING, ("user",)).items()}


@modestly
@given(histories(), cuttings())
def test_answers_can_be_filtered(history: History, cutting: Cutting) -> None:
    busy = run_query(
        lambda events: cut(events, SLIDING, ("user",)).count().filter(col("count") > 2), history, cutting
    )
    expected: list[Row] = [
        head(SLIDING, start, ("user",), [user]) | {"count": n}
        for (start, user), n in counted(history).items()
        if n > 2
    ]
    assert in_any_order(micros(busy)) == in_any_order(expected)


@modestly
@given(histories(), cuttings())
def test_answers_can_be_ranked(history: History, cutting: Cutting) -> None:
    top = run_query(
        lambda events: cut(events, SLIDING, ("user",)).count().top(1, changes_only=False), history, cutting
    )
    best: dict[int, int] = defaultdict(int)
    for (start, _), n in counted(history).items():
        best[start] = max(best[start], n)
    assert [(row["window_start"], row["count"]) for row in micros(top)] == sorted(best.items())


@modestly
@given(histories(), cuttings())
def test_answers_happen_at_the_last_instant_of_their_window(history: History, cutting: Cutting) -> None:
    rows = run_query(
        lambda events: cut(events, SLIDING, ("user",)).count().window(2).aggregate(ps.sum_("count", "sum")),
        history,
        cutting,
    )
    sums: dict[int, int] = defaultdict(int)
    for (start, _), n in counted(history).items():
        sums[(start + 4 * SECOND - 1) // (2 * SECOND) * 2 * SECOND] += n
    assert [(row["window_start"], row["sum"]) for row in micros(rows)] == sorted(sums.items())


@pytest.mark.parametrize("shape", [(30, 4, 0), (9, 4, 1), (10, 0.1, 0)])
def test_windows_outlive_many_epochs_and_compactions(shape: Shape) -> None:
    history, every_event_an_epoch = steady(70), Cutting((frozenset(range(70)),), (1, 3, 2))
    rows = run_query(
        lambda events: cut(events, shape, ("user",)).aggregate(*PLAIN), history, every_event_an_epoch
    )
    expected = [
        head(shape, start, ("user",), values) | answer(events, PLAIN)
        for (start, *values), events in windows(history, shape, ("user",)).items()
    ]
    assert in_any_order(micros(rows)) == in_any_order(expected)


def test_a_window_may_be_longer_than_the_log() -> None:
    rows = micros(run_query(lambda events: events.window("365d", "100d").count(), steady(5)))
    day = 86_400 * SECOND
    assert [row["window_start"] // day for row in rows] == [-300, -200, -100, 0]
    assert [row["count"] for row in rows] == [5, 5, 5, 5]


def test_durations_of_any_kind_say_a_window() -> None:
    history = steady(7)
    texts = run_query(lambda events: events.window("4 s", every="2s", offset="-1s").count(), history)
    second = timedelta(seconds=1)
    assert texts == run_query(lambda events: events.window(4 * second, 2 * second, second).count(), history)
    assert {row["window_start"].second % 2 for row in texts} == {1}


@pytest.mark.parametrize(
    "window",
    [TimeWindow(5, 5), TimeWindow(7, 3, 1), TimeWindow(2, 9, 4), TimeWindow(3, 1, 0), ALL_TIME],
)
def test_open_windows_begin_where_closed_ones_end(window: TimeWindow) -> None:
    for watermark in (*range(-30, 30), NEVER, FOREVER):
        first = window.first_open(watermark)
        assert window.end(first - 1) <= watermark < window.end(first)
        assert -(2**63) <= window.start(first) < 2**63
