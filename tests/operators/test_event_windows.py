"""Windows over events in strict order, against a plain walk through the events of every key, for any cutting."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
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

pytestmark = pytest.mark.slow

width = ps.aggregate_function(
    "width",
    add=lambda values: [values.min(), values.max()],
    merge=lambda one, other: [min(one[0], other[0]), max(one[1], other[1])],
    result=lambda state: state[1] - state[0],
    dtype=pl.Int64,
)
EVERYTHING = (
    ps.count(),
    ps.sum_("n", "sum_n"),
    ps.avg("x", "avg_x"),
    ps.min_("page", "min_page"),
    ps.max_("n", "max_n"),
    ps.first("n", "first_n"),
    ps.last("page", "last_page"),
    ps.collect("n", "all_n"),
    ps.median("n", "median_n"),
    ps.count_distinct("page", "pages"),
    width("n", "width_n"),
)
KEYS = st.sampled_from([("user",), ("user", "page"), ()])
EVERY_EVENT_AN_EPOCH = Cutting((frozenset(range(25)),) * 3, (1, 3, 2))
CUTTINGS = st.one_of(cuttings(), cuttings(), st.just(EVERY_EVENT_AN_EPOCH))


def answer(events: list[Event]) -> Row:
    """Every aggregate of some events, by Python's own means."""
    n = [event.n for event in events if event.n is not None]
    x = [event.x for event in events if event.x is not None]
    pages = [event.page for event in events if event.page is not None]
    return {
        "count": len(events),
        "sum_n": sum(n),
        "avg_x": sum(x) / len(x) if x else None,
        "min_page": min(pages, default=None),
        "max_n": max(n, default=None),
        "first_n": events[0].n,
        "last_page": events[-1].page,
        "all_n": [event.n for event in events],
        "median_n": float(statistics.median(n)) if n else None,
        "pages": len(set(pages)),
        "width_n": max(n) - min(n) if n else None,
    }


def per_key(history: History, keys: tuple[str, ...]) -> Iterable[tuple[Row, list[Event]]]:
    """Every key and its events in strict order."""
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in history.on_time():
        found[tuple(getattr(event, key) for key in keys)].append(event)
    return [(dict(zip(keys, key, strict=True)), events) for key, events in found.items()]


def row(key: Row, events: list[Event], start: int, end: int, **more: Any) -> Row:
    return {"window_start": start, "window_end": end, **more} | key | answer(events)


def in_time(rows: list[Row]) -> list[Row]:
    """The rows, which must have been emitted in the order of their ends."""
    assert [one["window_end"] for one in rows] == sorted(one["window_end"] for one in rows)
    return rows


# -- so many events ---------------------------------------------------------------------------------------


def counted(history: History, keys: tuple[str, ...], size: int, every: int, partial: bool) -> list[Row]:
    rows = []
    for key, events in per_key(history, keys):
        for start in range(0, len(events), every):
            window = events[start : start + size]
            if len(window) == size or partial:
                rows.append(row(key, window, window[0].time, window[-1].time))
    return rows


@modestly
@given(histories(), CUTTINGS, KEYS, st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_count_windows(
    history: History, cutting: Cutting, keys: tuple[str, ...], size: int, every: int, partial: bool
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.key_by(*keys).count_window(size, every, partial=partial).aggregate(*EVERYTHING)

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(counted(history, keys, size, every, partial))
    if not partial:
        in_time(rows)


@modestly
@given(histories(), CUTTINGS, st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_a_silent_key_is_counted_anew(
    history: History, cutting: Cutting, size: int, every: int, seconds: int
) -> None:
    rows = run_query(
        lambda events: (
            events.key_by("user").count_window(size, every, forget_after=seconds).aggregate(*EVERYTHING)
        ),
        history,
        cutting,
    )
    expected = []
    for key, events in per_key(history, ("user",)):
        lives: list[list[Event]] = []
        for event in events:
            if not lives or event.time - lives[-1][-1].time >= seconds * SECOND:
                lives.append([])
            lives[-1].append(event)
        for life in lives:
            for start in range(0, len(life) - size + 1, every):
                window = life[start : start + size]
                expected.append(row(key, window, window[0].time, window[-1].time))
    assert in_any_order(micros(rows)) == in_any_order(expected)


@modestly
@given(histories(), CUTTINGS, KEYS, st.integers(1, 5), st.booleans())
def test_last_windows(history: History, cutting: Cutting, keys: tuple[str, ...], n: int, whole: bool) -> None:
    rows = run_query(
        lambda events: events.key_by(*keys).last_window(n, whole=whole).aggregate(*EVERYTHING),
        history,
        cutting,
    )
    seen: dict[Any, list[Event]] = defaultdict(list)
    expected = []
    for event in history.on_time():
        key = {key: getattr(event, key) for key in keys}
        events = seen[tuple(key.values())]
        events.append(event)
        if len(events) >= n or not whole:
            last = events[-n:]
            expected.append(row(key, last, last[0].time, event.time))
    assert micros(rows) == expected, "one row an event, in the events' order"


# -- sessions -----------------------------------------------------------------------------------------------


def sessions(history: History, keys: tuple[str, ...], gap: int, longest: int | None) -> list[Row]:
    rows = []
    for key, events in per_key(history, keys):
        now: list[Event] = []
        for event in [*events, None]:
            if now:
                end = now[-1].time + gap
                if longest is not None:
                    end = min(end, now[0].time + longest)
                if event is None or event.time >= end:
                    rows.append(row(key, now, now[0].time, end))
                    now = []
            if event is not None:
                now.append(event)
    return rows


@modestly
@given(
    histories(),
    CUTTINGS,
    KEYS,
    st.sampled_from([1, 250_000, SECOND, 2 * SECOND, 5 * SECOND]),
    st.sampled_from([None, None, 1, SECOND, 4 * SECOND]),
)
def test_sessions(
    history: History, cutting: Cutting, keys: tuple[str, ...], gap: int, longest: int | None
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        limit = None if longest is None else longest / SECOND
        return events.key_by(*keys).session(gap / SECOND, longest=limit).aggregate(*EVERYTHING)

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(sessions(history, keys, gap, longest))
    in_time(rows)


# -- landmarks ----------------------------------------------------------------------------------------------

OPEN = {"/a": col("page") == "/a", "even": col("n") % 2 == 0, "always": pl.lit(True), "never": pl.lit(False)}
CLOSE = {"/b": col("page") == "/b", "even": col("n") % 2 == 0, "always": pl.lit(True), "n": col("n") > 2}


def holds(name: str, event: Event) -> bool:
    return {
        "/a": event.page == "/a",
        "/b": event.page == "/b",
        "even": event.n is not None and event.n % 2 == 0,
        "n": event.n is not None and event.n > 2,
        "always": True,
        "never": False,
    }[name]


def landmarks(
    history: History, keys: tuple[str, ...], open_: str, close: str, longest: int | None
) -> list[Row]:
    rows = []
    for key, events in per_key(history, keys):
        now: list[Event] = []
        for event in [*events, None]:
            if now and longest is not None and (event is None or event.time >= now[0].time + longest):
                rows.append(row(key, now, now[0].time, now[0].time + longest, closed=False))
                now = []
            if event is None or not (now or holds(open_, event)):
                continue
            now.append(event)
            if holds(close, event):
                flag = {} if longest is None else {"closed": True}
                rows.append(row(key, now, now[0].time, event.time, **flag))
                now = []
    return rows


@modestly
@given(
    histories(),
    CUTTINGS,
    KEYS,
    st.sampled_from(sorted(OPEN)),
    st.sampled_from(sorted(CLOSE)),
    st.sampled_from([None, None, 1, 750_000, 2 * SECOND, 6 * SECOND]),
)
def test_landmark_windows(
    history: History, cutting: Cutting, keys: tuple[str, ...], open_: str, close: str, longest: int | None
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        limit = None if longest is None else longest / SECOND
        windows = events.key_by(*keys).landmark(
            OPEN[open_], CLOSE[close], longest=limit, keep_open=longest is None
        )
        return windows.aggregate(*EVERYTHING)

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(landmarks(history, keys, open_, close, longest))
    in_time(rows)
