"""Every aggregate function in queries: windows and running totals, however events are cut into epochs and slices."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given

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

pytestmark = pytest.mark.slow

EVERYTHING = (
    ps.first("n", "first"),
    ps.last("page", "last"),
    ps.collect("x", "all"),
    ps.median("x", "median"),
    ps.quantile("n", 1.0, "most"),
    ps.approx_quantile("n", 0.0, "least", error=0.001),
    ps.count_distinct("page", "pages"),
    ps.approx_count_distinct("n", "numbers"),
    ps.variance("n", "spread"),
    ps.stddev("x", "deviation"),
)


def answer(events: list[Event]) -> Row:
    """By Python's own means; the events are in order."""
    numbers = [event.n for event in events if event.n is not None]
    shares = [event.x for event in events if event.x is not None]
    return {
        "first": events[0].n,
        "last": events[-1].page,
        "all": [event.x for event in events],
        "median": statistics.median(shares) if shares else None,
        "most": float(max(numbers)) if numbers else None,
        "least": min(numbers, default=None),
        "pages": len({event.page for event in events if event.page is not None}),
        "numbers": len(set(numbers)),
        "spread": statistics.variance(numbers) if len(numbers) > 1 else None,
        "deviation": statistics.stdev(shares) if len(shares) > 1 else None,
    }


def rounded(rows: list[Row]) -> list[Row]:
    """Without the last digits, which Python and the sketch have in their own ways."""
    return [
        {
            name: round(value, 2) + 0.0
            if name in ("least", "spread", "deviation") and value is not None
            else value
            for name, value in row.items()
        }
        for row in rows
    ]


@modestly
@given(histories(), cuttings())
def test_windows(history: History, cutting: Cutting) -> None:
    rows = micros(
        run_query(lambda events: events.key_by("user").window("3s").aggregate(*EVERYTHING), history, cutting)
    )
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in history.on_time():
        groups[event.time // (3 * SECOND), event.user].append(event)
    expected = [
        {"window_start": pane * 3 * SECOND, "window_end": (pane + 1) * 3 * SECOND, "user": user}
        | answer(events)
        for (pane, user), events in groups.items()
    ]
    assert in_any_order(rounded(rows)) == in_any_order(rounded(expected))


@modestly
@given(histories(), cuttings())
def test_running_totals(history: History, cutting: Cutting) -> None:
    rows = micros(
        run_query(lambda events: events.key_by("user").running("2s").aggregate(*EVERYTHING), history, cutting)
    )
    so_far: dict[str | None, list[Event]] = defaultdict(list)
    expected = []
    events = history.on_time()
    for pane in sorted({event.time // (2 * SECOND) for event in events}):
        now = [event for event in events if event.time // (2 * SECOND) == pane]
        for user in dict.fromkeys(event.user for event in now):
            so_far[user] += [event for event in now if event.user == user]
            expected.append({"as_of": (pane + 1) * 2 * SECOND, "user": user} | answer(so_far[user]))
    assert in_any_order(rounded(rows)) == in_any_order(rounded(expected))


@modestly
@given(histories(floats=True), cuttings(), cuttings())
def test_any_floats_to_the_last_bit(history: History, one: Cutting, other: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.window("5s").aggregate(*EVERYTHING)

    assert in_any_order(run_query(query, history, one)) == in_any_order(run_query(query, history, other))


@modestly
@given(histories(), cuttings())
def test_rows_of_another_aggregate_are_ordered_by_time_and_value(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        counts = events.key_by("user").window("1s").count("n")
        return counts.window("4s").aggregate(
            ps.collect("n", "all"), ps.first("n", "first"), ps.last("n", "last")
        )

    groups: dict[int, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
    for event in history.on_time():
        groups[event.time // (4 * SECOND)][event.time // SECOND, event.user] += 1
    expected = []
    for pane, counts in groups.items():
        ordered = [n for _, n in sorted((second, n) for (second, _), n in counts.items())]
        expected.append(
            {"window_start": pane * 4 * SECOND, "window_end": (pane + 1) * 4 * SECOND}
            | {"all": ordered, "first": ordered[0], "last": ordered[-1]}
        )
    assert in_any_order(micros(run_query(query, history, cutting))) == in_any_order(expected)
