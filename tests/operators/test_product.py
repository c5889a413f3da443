"""Products against two nested loops over all events, for any history, cutting and number of slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.testing.inline import run_inline
from tests.operators.harness import (
    SECOND,
    STRAIGHT,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    modestly,
    run_app,
    run_query,
)

pytestmark = pytest.mark.slow

Rule = Callable[[Event, Event], Any]

#: predicates over two events: in Polars' words and in Python's; null is not true
PREDICATES: dict[str, tuple[pl.Expr | None, Rule]] = {
    "all": (None, lambda one, other: True),
    "same user": (
        col("user") == col("user_right"),
        lambda one, other: one.user is not None and one.user == other.user,
    ),
    "less": (
        col("n") < col("n_right"),
        lambda one, other: one.n is not None and other.n is not None and one.n < other.n,
    ),
    "user or page, and not more": (
        ((col("user") == col("user_right")) | (col("page") == col("page_right")))
        & ~(col("x") > col("x_right")),
        lambda one, other: (
            (
                (one.user is not None and one.user == other.user)
                or (one.page is not None and one.page == other.page)
            )
            and (one.x is not None and other.x is not None and not one.x > other.x)
        ),
    ),
    "near": (
        (col("x") - col("x_right")).abs() < 4.5,
        lambda one, other: one.x is not None and other.x is not None and abs(one.x - other.x) < 4.5,
    ),
    "one side alone, and both": (
        (col("n") > 0) & (col("n_right") > 1) & (col("page") != col("page_right")),
        lambda one, other: (
            (one.n or 0) > 0
            and (other.n or 0) > 1
            and one.page is not None
            and other.page is not None
            and one.page != other.page
        ),
    ),
    "texts": (
        col("page_right").str.starts_with(col("user")),
        lambda one, other: None not in (one.user, other.page) and str(other.page).startswith(str(one.user)),
    ),
}
predicates = st.sampled_from(sorted(PREDICATES))
seconds = st.sampled_from([0, 0.25, 1, 2, 5, 1_000])


def pair(one: Event, other: Event) -> Row:
    names = ("user", "page", "n", "x")
    return {n: getattr(one, n) for n in names} | {f"{n}_right": getattr(other, n) for n in names}


def told_of(history: History, cutting: Cutting, *arguments: Any, **options: Any) -> list[str]:
    def query(events: ps.Stream) -> ps.Stream:
        return events.product(events, *arguments, **options).select(*pair_columns())

    return in_any_order(run_query(query, history, cutting))


def pair_columns() -> list[str]:
    return [f"{name}{suffix}" for suffix in ("", "_right") for name in ("user", "page", "n", "x")]


@modestly
@given(histories(), cuttings(), predicates, seconds, seconds, st.booleans())
def test_every_pair_near_enough_in_time_is_told_once(
    history: History, cutting: Cutting, predicate: str, before: float, after: float, distinct: bool
) -> None:
    where, rule = PREDICATES[predicate]
    window = {"after": after} if distinct else {"before": before, "after": after}
    rows = told_of(history, cutting, where, distinct_pairs=distinct, **window)
    events = history.on_time()
    expected = [
        pair(one, other)
        for at, one in enumerate(events)
        for other in (events[at + 1 :] if distinct else events)
        if -before * SECOND <= other.time - one.time <= after * SECOND and rule(one, other)
    ]
    assert rows == in_any_order(expected)


@modestly
@given(histories(), cuttings(), predicates, st.integers(1, 6), st.none() | seconds, st.booleans())
def test_every_event_meets_the_last_few_of_the_other_side(
    history: History, cutting: Cutting, predicate: str, n: int, within: float | None, distinct: bool
) -> None:
    where, rule = PREDICATES[predicate]
    rows = told_of(history, cutting, where, events=n, within=within, distinct_pairs=distinct)
    lefts: list[Event] = []
    rights: list[Event] = []
    met: list[tuple[Event, Event]] = []
    for event in history.on_time():  # at one place the left one comes first
        if not distinct:
            met += [(event, other) for other in rights[-n:]]
            lefts.append(event)
        met += [(other, event) for other in lefts[-n:]]
        rights.append(event)
        if distinct:
            lefts.append(event)
    near = float("inf") if within is None else within * SECOND
    expected = [
        pair(one, other) for one, other in met if abs(one.time - other.time) <= near and rule(one, other)
    ]
    assert rows == in_any_order(expected)


def two_streams(left: History, right: History, cutting: Cutting, **options: Any) -> list[str]:
    one, other = events_stream(left, cutting, "one"), events_stream(right, cutting, "other")
    some = other.select("n", x_=col("x"), user=col("user"))
    rows = one.select("user", "n").product(some, col("n") <= col("n_right"), **options)
    return in_any_order(run_app(ps.app("test", ps.output("out", rows)), cutting)["out"])


@modestly
@given(
    histories(most_events=12), histories(most_events=12), cuttings(), seconds, st.none() | st.integers(1, 3)
)
def test_two_streams_give_the_same_rows_however_they_are_cut(
    left: History, right: History, cutting: Cutting, within: float, n: int | None
) -> None:
    straight = two_streams(left, right, STRAIGHT, within=within, events=n)
    assert two_streams(left, right, cutting, within=within, events=n) == straight
    if n is None:
        expected = [
            {"user": one.user, "n": one.n, "n_right": other.n, "x_": other.x, "user_right": other.user}
            for one in left.on_time()
            for other in right.on_time()
            if abs(one.time - other.time) <= within * SECOND
            and one.n is not None
            and other.n is not None
            and one.n <= other.n
        ]
        assert straight == in_any_order(expected)


@modestly
@given(histories(), cuttings(), st.booleans())
def test_equal_rows_of_an_operator_are_different_events(
    history: History, cutting: Cutting, counted: bool
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        windows = events.key_by("user").window("2s").count("n").select("n")
        bound: dict[str, Any] = {"events": 50} if counted else {"within": 3}
        return windows.product(windows, distinct_pairs=True, **bound)

    rows = run_query(query, history, cutting)
    groups: dict[tuple[int, str | None], int] = {}
    for event in history.on_time():
        key = (event.time // (2 * SECOND), event.user)
        groups[key] = groups.get(key, 0) + 1
    windows = sorted(((pane, n) for (pane, _), n in groups.items()))
    near = 50 if counted else 1
    expected = [
        sorted((n, m))
        for at, (pane, n) in enumerate(windows)
        for other, m in windows[at + 1 :]
        if other - pane <= near
    ]
    if not counted or len(windows) <= 50:
        assert sorted(sorted((row["n"], row["n_right"])) for row in rows) == sorted(expected)


@modestly
@given(histories(), cuttings())
def test_pairs_of_a_union_with_itself_changed(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        both = events.select("user", "n").union(events.select("user", n=-col("n")))
        return both.product(both, within=1, distinct_pairs=True)

    assert in_any_order(run_query(query, history, cutting)) == in_any_order(run_query(query, history))


@modestly
@given(histories(), cuttings())
def test_what_follows_sees_pairs_at_the_later_time(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.product(events, within=2, distinct_pairs=True).key_by("user_right").window("2s").count()

    counts: dict[tuple[int, str | None], int] = {}
    events = history.on_time()
    for at, one in enumerate(events):
        for other in events[at + 1 :]:
            if other.time - one.time <= 2 * SECOND:
                key = (other.time // (2 * SECOND), other.user)
                counts[key] = counts.get(key, 0) + 1
    rows = run_query(query, history, cutting)
    found = {(round(row["window_start"].timestamp()) // 2, row["user_right"]): row["count"] for row in rows}
    assert found == counts


@pytest.mark.parametrize("bound", [{"within": "2s"}, {"events": 2}])
def test_old_rows_are_forgotten(bound: dict[str, Any], tmp_path: Path) -> None:
    history = History((tuple(Event(0, i, (1_000 + i) * SECOND, "ada", "/", i, None) for i in range(60)),))
    events = events_stream(history, Cutting((frozenset(range(60)),), ()))
    app = ps.app("test", ps.output("out", events.product(events, distinct_pairs=True, **bound)))
    reports = run_inline(app, tmp_path / "state", slices=lambda epoch: 1 + epoch % 3, buckets=8)
    assert sum(report.rows["out"].height for report in reports if report.rows) == 59 + 58
    held = [report.state_bytes for report in reports]
    assert max(held[-25:]) <= 1.2 * max(held[:30])


STREAM = events_stream(History(()))


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("JOIN_UNBOUNDED", {}),
        ("BAD_PRODUCT", {"events": 0}),
        ("BAD_PRODUCT", {"within": "1s", "after": "1s"}),
        ("BAD_PRODUCT", {"before": "1s", "distinct_pairs": True}),
        ("BAD_PRODUCT", {"after": -1}),
        ("NAME_TAKEN", {"within": 1, "suffix": ""}),
        ("UNKNOWN_COLUMN", {"within": 1, "where": col("nobody") == 1}),
        ("TYPE_MISMATCH", {"within": 1, "where": col("n") + 1}),
        ("NOT_ROW_WISE", {"within": 1, "where": col("n") == col("n_right").max()}),
        ("NOT_ROW_WISE", {"events": 1, "where": col("n") == col("n_right").shift(1)}),
    ],
)
def test_what_cannot_be_is_said(condition: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        STREAM.product(STREAM, **options)
    assert caught.value.condition == condition
    assert "test_product.py" in str(caught.value.where)


def test_a_predicate_that_fails_names_the_line() -> None:
    history = History((tuple(Event(0, i, 1_000 * SECOND, "ada", "/", i, None) for i in range(3)),))
    with pytest.raises(UserError) as caught:
        run_query(lambda e: e.product(e, col("page").cast(pl.Int64) == col("n_right"), within=1), history)
    assert caught.value.condition == "EXPRESSION_FAILED"
    assert "test_product.py" in str(caught.value.where)
