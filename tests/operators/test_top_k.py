"""Top-k against sorting all totals at every step, for any history, cutting and number of slices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.operators.functions import AggregateFunction
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    histories,
    micros,
    modestly,
    run_query,
)

pytestmark = pytest.mark.slow

Measure = Callable[[list[Event]], int | None]


def numbers(events: list[Event]) -> list[int]:
    return [event.n for event in events if event.n is not None]


#: aggregates to rank by: growing, falling (negative values), growing from null, and falling from null
MEASURES: dict[str, tuple[AggregateFunction, Measure]] = {
    "count": (ps.count("by"), len),
    "sum": (ps.sum_("n", "by"), lambda events: sum(numbers(events))),
    "max": (ps.max_("n", "by"), lambda events: max(numbers(events), default=None)),
    "min": (ps.min_("n", "by"), lambda events: min(numbers(events), default=None)),
}


def best(totals: dict[Any, int | None], k: int, least: bool) -> list[Row]:
    """The k best; ties to the smaller key, nulls last in both."""

    def place(item: tuple[Any, int | None]) -> tuple[object, ...]:
        user, by = item
        value = 0 if by is None else by if least else -by
        return by is None, value, user is None, user or ""

    ranked = sorted(totals.items(), key=place)[:k]
    return [{"rank": at + 1, "user": user, "by": by} for at, (user, by) in enumerate(ranked)]


def steps(history: History, size: int) -> list[tuple[int, list[Event]]]:
    groups: dict[int, list[Event]] = defaultdict(list)
    for event in history.on_time():
        groups[event.time // size].append(event)
    return sorted(groups.items())


def by_user(events: list[Event]) -> dict[Any, list[Event]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        groups[event.user].append(event)
    return groups


def window_answers(
    history: History, size: int, measure: Measure, k: int, least: bool, changes_only: bool
) -> list[Row]:
    rows: list[Row] = []
    last: list[Row] | None = None
    for pane, events in steps(history, size):
        answer = best({user: measure(own) for user, own in by_user(events).items()}, k, least)
        if not (changes_only and answer == last):
            rows += [{"window_start": pane * size, "window_end": (pane + 1) * size} | row for row in answer]
        last = answer
    return rows


def running_answers(
    history: History, size: int, measure: Measure, k: int, least: bool, changes_only: bool
) -> list[Row]:
    so_far: list[Event] = []
    rows: list[Row] = []
    last: list[Row] | None = None
    for pane, events in steps(history, size):
        so_far += events
        answer = best({user: measure(own) for user, own in by_user(so_far).items()}, k, least)
        if not (changes_only and answer == last):
            rows += [{"as_of": (pane + 1) * size} | row for row in answer]
        last = answer
    return rows


rankings = (
    histories(),
    cuttings(),
    st.sampled_from(sorted(MEASURES)),
    st.sampled_from([1, 2, 3, 50]),
    st.booleans(),
    st.booleans(),
)


@modestly
@given(*rankings)
def test_every_window_has_its_best(
    history: History, cutting: Cutting, measure: str, k: int, least: bool, changes_only: bool
) -> None:
    aggregate, oracle = MEASURES[measure]
    rows = run_query(
        lambda events: (
            events.key_by("user")
            .window("2s")
            .aggregate(aggregate)
            .top(k, "by", least=least, changes_only=changes_only)
        ),
        history,
        cutting,
    )
    assert micros(rows) == window_answers(history, 2 * SECOND, oracle, k, least, changes_only)


@modestly
@given(*rankings)
def test_the_best_of_running_totals_are_told_as_they_stood_at_every_step(
    history: History, cutting: Cutting, measure: str, k: int, least: bool, changes_only: bool
) -> None:
    aggregate, oracle = MEASURES[measure]
    rows = run_query(
        lambda events: (
            events.key_by("user")
            .running("1s")
            .aggregate(aggregate)
            .top(k, "by", least=least, changes_only=changes_only)
        ),
        history,
        cutting,
    )
    assert micros(rows) == running_answers(history, SECOND, oracle, k, least, changes_only)


@modestly
@given(histories(), cuttings())
def test_a_rank_by_a_computed_column_that_turns_null_lets_others_move_up(
    history: History, cutting: Cutting
) -> None:
    rows = run_query(
        lambda events: (
            events.key_by("user")
            .running("1s")
            .count("n")
            .select("as_of", "user", by=pl.when(pl.col("n") < 3).then(pl.col("n")))
            .top(2, "by")
        ),
        history,
        cutting,
    )

    def measure(events: list[Event]) -> int | None:
        return len(events) if len(events) < 3 else None

    assert micros(rows) == running_answers(history, SECOND, measure, 2, False, True)


@pytest.mark.parametrize("cutting", [Cutting((), (1,)), Cutting((frozenset(range(9)),), (2,))])
def test_the_top_of_a_total_without_a_key_is_that_total(cutting: Cutting) -> None:
    history = History((tuple(Event(0, i, (1_000 + i) * SECOND, None, None, 1, None) for i in range(3)),))
    rows = run_query(lambda events: events.running("1s").count("by").top(2), history, cutting)
    assert [row["by"] for row in rows] == [1, 2, 3]
    assert {row["rank"] for row in rows} == {1}


def test_a_total_without_a_key_that_falls_is_told() -> None:
    values = (5, -9, 3, -1)
    history = History(
        (tuple(Event(0, i, (1_000 + i) * SECOND, None, None, n, None) for i, n in enumerate(values)),)
    )
    for cutting in (Cutting((), (1,)), Cutting((frozenset({1, 2, 3}),), (2,))):
        rows = run_query(lambda events: events.running("1s").sum("n", "by").top(1), history, cutting)
        assert [row["by"] for row in rows] == [5, -4, -1, -2]
