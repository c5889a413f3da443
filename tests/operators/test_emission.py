"""Windows that emit results before they close, every so often or at every change, against an oracle that looks
at one window after the other; for any history, cutting and number of slices."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
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
    GROWING,
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


def updates(
    history: History, shape: Shape, keys: tuple[str, ...], functions: Functions, every: float
) -> list[Row]:
    step, rows = round(every * SECOND), []
    for (start, *values), events in windows(history, shape, keys).items():
        end, before = start + round(shape[0] * SECOND), start
        for at in [*(at for at in range(0, end, step) if at > start), end]:
            if any(before <= event.time < at for event in events):
                so_far = answer([event for event in events if event.time < at], functions)
                rows.append(head(shape, start, keys, values) | {"as_of": at} | so_far)
            before = at
    return rows


def changes(history: History, shape: Shape, keys: tuple[str, ...], functions: Functions) -> list[Row]:
    rows = []
    for (start, *values), events in windows(history, shape, keys).items():
        before = None
        for end, event in enumerate(events, start=1):
            now = answer(events[:end], functions)
            if now != before:
                rows.append(head(shape, start, keys, values) | {"as_of": event.time} | now)
            before = now
    return rows


@modestly
@given(histories(), cuttings(), SHAPES, KEYS, FUNCTIONS, st.sampled_from([1, 2, 2.5, 7, 0.75, 60]))
def test_open_windows_are_emitted_every_so_often_if_they_had_events_since(
    history: History,
    cutting: Cutting,
    shape: Shape,
    keys: tuple[str, ...],
    functions: Functions,
    every: float,
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        made: ps.Stream = cut(events, shape, keys).emit(every=every).aggregate(*functions)
        return made

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(updates(history, shape, keys, functions, every))
    assert [row["as_of"] for row in rows] == sorted(row["as_of"] for row in rows)


CHANGING = st.sampled_from(
    [
        PLAIN,
        GROWING,
        (ps.min_("n", "min_n"), ps.min_("page", "min_page")),
        (ps.max_("x", "max_x"),),
        (ps.sum_("n", "sum_n"),),
    ]
)


@modestly
@given(histories(), cuttings(), SHAPES, KEYS, CHANGING)
def test_a_window_is_emitted_after_every_event_that_changes_it(
    history: History, cutting: Cutting, shape: Shape, keys: tuple[str, ...], functions: Functions
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        made: ps.Stream = cut(events, shape, keys).emit("change").aggregate(*functions)
        return made

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(changes(history, shape, keys, functions))
    assert [row["as_of"] for row in rows] == sorted(row["as_of"] for row in rows)


@modestly
@given(histories(), cuttings(), CHANGING)
def test_running_aggregates_are_emitted_in_order_after_every_event_that_changes_them(
    history: History, cutting: Cutting, functions: Functions
) -> None:
    rows = run_query(
        lambda events: events.key_by("user").running().emit("change").aggregate(*functions), history, cutting
    )
    expected = []
    seen: dict[Any, list[Event]] = defaultdict(list)
    last: dict[Any, Row] = {}
    for event in history.on_time():
        seen[event.user].append(event)
        now = answer(seen[event.user], functions)
        if now != last.get(event.user):
            expected.append({"as_of": event.time, "user": event.user} | now)
        last[event.user] = now
    assert micros(rows) == expected


def test_changes_of_windows_that_do_not_overlap_keep_the_order_of_events() -> None:
    moment = 1_000 * SECOND
    history = History((tuple(Event(0, i, moment, "ada", "/a", 9 - i, None) for i in range(5)),))
    rows = run_query(
        lambda events: (
            events.key_by("user")
            .window("2s")
            .emit("change")
            .aggregate(ps.min_("n"))
            .key_by("user")
            .last(5, "min_n")
        ),
        history,
    )
    assert rows == [{"user": "ada", "min_n": [9, 8, 7, 6, 5]}]


@modestly
@given(histories(), cuttings())
def test_what_is_emitted_before_the_end_can_be_worked_on(history: History, cutting: Cutting) -> None:
    rows = run_query(
        lambda events: (
            events.key_by("user")
            .window(4, 2)
            .emit(every=1)
            .count()
            .window(1)
            .aggregate(ps.max_("count", "most"))
        ),
        history,
        cutting,
    )
    most: dict[int, int] = defaultdict(int)
    for row in updates(history, (4, 2, 0), ("user",), (ps.count(),), 1):
        most[row["as_of"] - SECOND] = max(most[row["as_of"] - SECOND], row["count"])
    assert [(row["window_start"], row["most"]) for row in micros(rows)] == sorted(most.items())


def test_running_aggregates_are_emitted_every_so_often_anyway() -> None:
    history = steady(9)
    assert run_query(lambda events: events.running(3).count(), history) == run_query(
        lambda events: events.running().emit(every=3).count(), history
    )


def test_at_the_close_is_when_windows_are_emitted_anyway() -> None:
    history = steady(9)
    assert run_query(lambda events: events.window(3).count(), history) == run_query(
        lambda events: events.window(3).emit(every=2).emit("close").count(), history
    )


@pytest.mark.parametrize("functions", [PLAIN, GROWING], ids=["plain", "growing"])
@pytest.mark.parametrize("every", [7, None])
def test_answers_outlive_many_epochs_and_compactions(functions: Functions, every: float | None) -> None:
    history, every_event_an_epoch = steady(50), Cutting((frozenset(range(50)),), (1, 3, 2))
    shape: Shape = (30, 9, 0)

    def query(events: ps.Stream) -> ps.Stream:
        windowed = cut(events, shape, ("user",))
        windowed = windowed.emit("change") if every is None else windowed.emit(every=every)
        made: ps.Stream = windowed.aggregate(*functions)
        return made

    expected = (
        changes(history, shape, ("user",), functions)
        if every is None
        else updates(history, shape, ("user",), functions, every)
    )
    assert in_any_order(micros(run_query(query, history, every_event_an_epoch))) == in_any_order(expected)
