"""Windows of time against sums made one event at a time: sliding, with gaps, shifted; told at their ends, at every
change and every so often; for any history, cutting and number of slices."""

from __future__ import annotations

import statistics
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.operators.contract import FOREVER, NEVER
from penstock.operators.windows import SINCE_EVER, TimeWindow
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
    told,
)

AGGREGATES = (
    ps.count(),
    ps.sum_("n", "sum_n"),
    ps.min_("n", "min_n"),
    ps.max_("x", "max_x"),
    ps.avg("x", "avg_x"),
    ps.min_("page", "min_page"),
    ps.earliest("earliest"),
    ps.latest("latest"),
    ps.first("page", "first_page"),
    ps.collect("n", "all_n"),
    ps.median("x", "median_x"),
    ps.count_distinct("page", "pages"),
)

#: (size, every, offset) in seconds: one after the other, overlapping evenly and not, with gaps, shifted
SHAPES = st.sampled_from(
    [
        (3, None, 0),
        (3, None, 1),
        (4, 2, 0),
        (10, 1, 0),
        (6.5, 1, 0.5),
        (3, 0.25, 0),
        (5, 2, 1),
        (2.5, 1.5, 0.25),
        (7, 3, -1),
        (2, 5, 0),
        (1, 3, 2),
        (60, 7, 100),
        (0.25, 0.75, 0),
    ]
)
KEYS = st.sampled_from([("user",), ("user", "page"), ()])


def answer(events: list[Event]) -> Row:
    """Every aggregate of some events, by Python's own means."""
    ns = [event.n for event in events if event.n is not None]
    xs = [event.x for event in events if event.x is not None]
    pages = [event.page for event in events if event.page is not None]
    return {
        "count": len(events),
        "sum_n": sum(ns),
        "min_n": min(ns, default=None),
        "max_x": max(xs, default=None),
        "avg_x": sum(xs) / len(xs) if xs else None,
        "min_page": min(pages, default=None),
        "earliest": min(event.time for event in events),
        "latest": max(event.time for event in events),
        "first_page": events[0].page,
        "all_n": [event.n for event in events],
        "median_x": statistics.median(xs) if xs else None,
        "pages": len(set(pages)),
    }


def starts(shape: tuple[float, float | None, float], time: int) -> list[int]:
    """When the windows begin that hold an instant, found by trying."""
    size, every, offset = shape
    length, step = round(size * SECOND), round((every or size) * SECOND)
    start, found = round(offset * SECOND) - 200 * step, []
    while start <= time:
        if time < start + length:
            found.append(start)
        start += step
    return found


Windows = dict[Any, list[Event]]


def windows(history: History, shape: tuple[float, float | None, float], keys: tuple[str, ...]) -> Windows:
    """The events of every key and window, in total order."""
    found: Windows = defaultdict(list)
    for event in history.on_time():
        for start in starts(shape, event.time):
            found[start, *(getattr(event, key) for key in keys)].append(event)
    return found


def head(shape: tuple[float, float | None, float], start: int, keys: Any, values: Any) -> Row:
    end = start + round(shape[0] * SECOND)
    return {"window_start": start, "window_end": end} | dict(zip(keys, values, strict=True))


def cut(stream: ps.Stream, shape: tuple[float, float | None, float], keys: tuple[str, ...]) -> Any:
    return (stream.key_by(*keys) if keys else stream).window(*shape)


@modestly
@given(histories(), cuttings(), SHAPES, KEYS)
def test_every_window_with_events_is_told_once_when_it_closes(
    history: History, cutting: Cutting, shape: tuple[float, float | None, float], keys: tuple[str, ...]
) -> None:
    rows = micros(told(lambda events: cut(events, shape, keys).aggregate(*AGGREGATES), history, cutting))
    expected = [
        head(shape, start, keys, values) | answer(events)
        for (start, *values), events in windows(history, shape, keys).items()
    ]
    assert in_any_order(rows) == in_any_order(expected)
    assert [row["window_end"] for row in rows] == sorted(row["window_end"] for row in rows)


@modestly
@given(histories(), cuttings(), SHAPES, KEYS, st.sampled_from([1, 2, 2.5, 7, 0.75, 60]))
def test_open_windows_are_told_every_so_often_if_they_had_events_since(
    history: History,
    cutting: Cutting,
    shape: tuple[float, float | None, float],
    keys: tuple[str, ...],
    every: float,
) -> None:
    rows = micros(
        told(
            lambda events: cut(events, shape, keys).emit(every=every).aggregate(*AGGREGATES), history, cutting
        )
    )
    step = round(every * SECOND)
    expected = []
    for (start, *values), events in windows(history, shape, keys).items():
        end, before = start + round(shape[0] * SECOND), start
        instants = [at for at in range(0, end, step) if at > start]
        for at in [*instants, end]:
            if any(before <= event.time < at for event in events):
                so_far = answer([event for event in events if event.time < at])
                expected.append(head(shape, start, keys, values) | {"as_of": at} | so_far)
            before = at
    assert in_any_order(rows) == in_any_order(expected)
    assert [row["as_of"] for row in rows] == sorted(row["as_of"] for row in rows)


CHANGING = st.sampled_from(
    [
        AGGREGATES,
        (ps.min_("n", "min_n"), ps.min_("page", "min_page")),
        (ps.max_("x", "max_x"),),
        (ps.sum_("n", "sum_n"),),
    ]
)


@modestly
@given(histories(), cuttings(), SHAPES, KEYS, CHANGING)
def test_a_window_is_told_after_every_event_that_changes_it(
    history: History,
    cutting: Cutting,
    shape: tuple[float, float | None, float],
    keys: tuple[str, ...],
    aggregates: tuple[Any, ...],
) -> None:
    rows = micros(
        told(lambda events: cut(events, shape, keys).emit("change").aggregate(*aggregates), history, cutting)
    )
    names, expected = [a.alias for a in aggregates], []
    for (start, *values), events in windows(history, shape, keys).items():
        before = None
        for upto, event in enumerate(events, start=1):
            now = {name: value for name, value in answer(events[:upto]).items() if name in names}
            if now != before:
                expected.append(head(shape, start, keys, values) | {"as_of": event.time} | now)
            before = now
    assert in_any_order(rows) == in_any_order(expected)
    assert [row["as_of"] for row in rows] == sorted(row["as_of"] for row in rows)


@modestly
@given(histories(), cuttings(), CHANGING)
def test_running_aggregates_are_told_in_order_after_every_event_that_changes_them(
    history: History, cutting: Cutting, aggregates: tuple[Any, ...]
) -> None:
    rows = micros(
        told(
            lambda events: events.key_by("user").running().emit("change").aggregate(*aggregates),
            history,
            cutting,
        )
    )
    names, expected = [a.alias for a in aggregates], []
    seen: dict[Any, list[Event]] = defaultdict(list)
    last: dict[Any, Row] = {}
    for event in history.on_time():
        seen[event.user].append(event)
        now = {name: value for name, value in answer(seen[event.user]).items() if name in names}
        if now != last.get(event.user):
            expected.append({"as_of": event.time, "user": event.user} | now)
        last[event.user] = now
    assert rows == expected


@modestly
@given(histories(), cuttings())
def test_answers_can_be_filtered_and_ranked_and_worked_on(history: History, cutting: Cutting) -> None:
    shape = (4, 1, 0)
    busy = told(
        lambda events: cut(events, shape, ("user",)).count().filter(col("count") > 2), history, cutting
    )
    groups = windows(history, shape, ("user",))
    counts = {key: len(events) for key, events in groups.items()}
    assert in_any_order(micros(busy)) == in_any_order(
        [head(shape, s, ("user",), (u,)) | {"count": n} for (s, u), n in counts.items() if n > 2]
    )

    top = told(
        lambda events: cut(events, shape, ("user",)).count().top(1, changes_only=False), history, cutting
    )
    best: dict[int, int] = {}
    for (start, _), n in counts.items():
        best[start] = max(best.get(start, 0), n)
    assert [(row["window_start"], row["count"]) for row in micros(top)] == sorted(best.items())

    users = told(
        lambda events: cut(events, shape, ("user",)).count().window(2).aggregate(ps.sum_("count", "sum")),
        history,
        cutting,
    )
    sums: dict[int, int] = defaultdict(int)
    for (start, _), n in counts.items():
        sums[(start + 4 * SECOND - 1) // (2 * SECOND) * 2 * SECOND] += n
    assert [(row["window_start"], row["sum"]) for row in micros(users)] == sorted(sums.items())


def steady(count: int, users: int = 3) -> History:
    return History(
        (tuple(Event(0, i, (1_000 + i) * SECOND, f"u{i % users}", "/a", i, None) for i in range(count)),)
    )


EVERY_EVENT_AN_EPOCH = Cutting((frozenset(range(200)),), (1, 3, 2))


@pytest.mark.parametrize("emission", [{"when": "close"}, {"when": "change"}, {"every": 7}])
def test_windows_outlive_many_epochs_and_compactions(emission: Any) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.key_by("user").window(30, 4).emit(**emission).aggregate(*AGGREGATES)

    history = steady(120)
    straight = told(query, history)
    assert len(straight) > 90
    assert in_any_order(told(query, history, EVERY_EVENT_AN_EPOCH)) == in_any_order(straight)


def test_a_window_may_be_longer_than_the_log() -> None:
    rows = micros(told(lambda events: events.window("365d", "100d").count(), steady(5)))
    day = 86_400 * SECOND
    assert [(row["window_start"] // day, row["count"]) for row in rows] == [
        (-300, 5),
        (-200, 5),
        (-100, 5),
        (0, 5),
    ]


def test_durations_of_any_kind_say_a_window() -> None:
    history = steady(7)
    texts = told(lambda events: events.window("4 s", every="2s", offset="-1s").count(), history)
    spans = told(
        lambda events: events.window(
            timedelta(seconds=4), timedelta(seconds=2), timedelta(seconds=1)
        ).count(),
        history,
    )
    assert texts == spans
    assert [row["window_start"].second % 2 for row in texts] == [1] * len(texts)


@pytest.mark.parametrize(
    "window",
    [TimeWindow(5, 5), TimeWindow(7, 3, 1), TimeWindow(2, 9, 4), TimeWindow(3, 1, 0), SINCE_EVER],
)
def test_open_windows_begin_where_closed_ones_end(window: TimeWindow) -> None:
    for watermark in (*range(-30, 30), NEVER, FOREVER):
        first = window.first_open(watermark)
        assert window.end(first - 1) <= watermark < window.end(first)
        assert -(2**63) <= window.start(first) < 2**63
