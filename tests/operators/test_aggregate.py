"""Aggregates against sums made one event at a time, for any history, cutting and number of slices."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import TIME
from penstock.operators.time_windows import TimeWindow
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

EVERYTHING = (
    ps.count(),
    ps.sum_("n", "sum_n"),
    ps.min_("n", "min_n"),
    ps.max_("n", "max_n"),
    ps.avg("n", "avg_n"),
    ps.sum_("x", "sum_x"),
    ps.min_("x", "min_x"),
    ps.max_("x", "max_x"),
    ps.avg("x", "avg_x"),
    ps.min_("page", "min_page"),
    ps.max_("page", "max_page"),
)


def answer(events: list[Event]) -> Row:
    """Every aggregate of some events, by Python's own means."""
    row: Row = {"count": len(events)}
    for name, zero in (("n", 0), ("x", 0.0)):
        values = [getattr(event, name) for event in events if getattr(event, name) is not None]
        row[f"sum_{name}"] = sum(values, start=zero)
        row[f"min_{name}"] = min(values, default=None)
        row[f"max_{name}"] = max(values, default=None)
        row[f"avg_{name}"] = sum(values) / len(values) if values else None
    pages = [event.page for event in events if event.page is not None]
    return row | {"min_page": min(pages, default=None), "max_page": max(pages, default=None)}


def windows(history: History, size: int, keys: tuple[str, ...]) -> list[Row]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in history.on_time():
        groups[event.time // size, *(getattr(event, key) for key in keys)].append(event)
    return [
        {"window_start": pane * size, "window_end": (pane + 1) * size}
        | dict(zip(keys, values, strict=True))
        | answer(events)
        for (pane, *values), events in groups.items()
    ]


def running(history: History, size: int) -> list[Row]:
    so_far: dict[str | None, list[Event]] = defaultdict(list)
    rows = []
    events = history.on_time()
    for pane in sorted({event.time // size for event in events}):
        now = [event for event in events if event.time // size == pane]
        for user in dict.fromkeys(event.user for event in now):
            so_far[user] += [event for event in now if event.user == user]
            rows.append({"as_of": (pane + 1) * size, "user": user} | answer(so_far[user]))
    return rows


@pytest.mark.slow
@modestly
@given(
    histories(), cuttings(), st.sampled_from([1, 2, 7]), st.sampled_from([("user",), ("user", "page"), ()])
)
def test_windows_hold_exactly_their_events(
    history: History, cutting: Cutting, seconds: int, keys: tuple[str, ...]
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        keyed = events.key_by(*keys).window(seconds) if keys else events.window(seconds)
        return keyed.aggregate(*EVERYTHING)

    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order(windows(history, seconds * SECOND, keys))
    assert [row["window_end"] for row in rows] == sorted(row["window_end"] for row in rows)


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.sampled_from([1, 3]))
def test_running_totals_are_emitted_for_each_step_with_events(
    history: History, cutting: Cutting, seconds: int
) -> None:
    rows = micros(
        run_query(
            lambda events: events.key_by("user").running(seconds).aggregate(*EVERYTHING), history, cutting
        )
    )
    assert in_any_order(rows) == in_any_order(running(history, seconds * SECOND))


@pytest.mark.slow
@modestly
@given(histories(floats=True), cuttings(), cuttings())
def test_sums_of_any_floats_are_the_same_to_the_last_bit(
    history: History, one: Cutting, other: Cutting
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.window("5s").aggregate(ps.sum_("x", "sum"), ps.avg("x", "mean"))

    first = run_query(query, history, one)
    assert run_query(query, history, other) == first
    for row in micros(first):
        values = [
            event.x
            for event in history.on_time()
            if event.x is not None and row["window_start"] <= event.time < row["window_end"]
        ]
        assert math.isclose(row["sum"], math.fsum(values), abs_tol=1e-9)


def reduced(values: list[float], times: int) -> float:
    """The sum of many events, merged as a running total would merge them."""
    summed = ps.sum_("x", "sum").resolve({"x": pl.Float64()})
    operator = Aggregation((), TimeWindow(SECOND, SECOND), (summed,))
    part = operator.prepare(pl.DataFrame({TIME: [0] * len(values), "x": values}))
    for _ in range(times):
        part = operator.combine(pl.concat([part, part]))
    result: float = part.select(summed.result()).item()
    return result


def test_a_sum_of_floats_outlives_a_billion_events() -> None:
    assert reduced([0.75], times=30) == 0.75 * 2**30


def test_infinities_and_what_is_no_number_are_not_left_out_of_a_sum() -> None:
    assert reduced([1.0, math.inf], times=1) == math.inf
    assert reduced([1.0, -math.inf], times=1) == -math.inf
    assert math.isnan(reduced([1.0, math.nan], times=1))
    assert math.isnan(reduced([math.inf, -math.inf], times=1))


def test_a_value_too_large_for_an_integer_is_not_left_out_of_a_sum() -> None:
    assert reduced([1e300, 1.0], times=0) == 1e300
