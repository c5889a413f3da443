"""Last-n against a deque per key, for any history, cutting and number of slices."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    histories,
    modestly,
    run_query,
)

pytestmark = pytest.mark.slow


def oracle(history: History, n: int, values: tuple[str, ...], partial: bool) -> list[Row]:
    seen: dict[Any, deque[Event]] = defaultdict(lambda: deque(maxlen=n))
    rows = []
    for event in history.on_time():
        last = seen[event.user]
        last.append(event)
        if partial or len(last) == n:
            rows.append({"user": event.user} | {v: [getattr(one, v) for one in last] for v in values})
    return rows


@modestly
@given(
    histories(),
    cuttings(),
    st.integers(1, 4),
    st.sampled_from([("page",), ("page", "n"), ("x", "page", "n")]),
    st.booleans(),
)
def test_rows_are_those_of_one_event_after_the_other(
    history: History, cutting: Cutting, n: int, values: tuple[str, ...], partial: bool
) -> None:
    rows = run_query(lambda events: events.key_by("user").last(n, *values, partial=partial), history, cutting)
    assert rows == oracle(history, n, values, partial)


@modestly
@given(histories(), cuttings())
def test_several_key_columns_with_nulls_are_distinguished(history: History, cutting: Cutting) -> None:
    rows = run_query(lambda events: events.key_by("user", "page").last(2, "n"), history, cutting)
    seen: dict[Any, list[int | None]] = defaultdict(list)
    expected = []
    for event in history.on_time():
        seen[event.user, event.page].append(event.n)
        if len(seen[event.user, event.page]) > 1:
            expected.append({"user": event.user, "page": event.page, "n": seen[event.user, event.page][-2:]})
    assert rows == expected


def history_of(count: int) -> History:
    return History(
        (tuple(Event(0, i, (1_000 + i) * SECOND, "ada", f"/{i}", i, i / 4) for i in range(count)),)
    )


def test_memory_lasts_over_many_epochs_and_compactions() -> None:
    history = history_of(60)
    every_event_an_epoch = Cutting((frozenset(range(60)),), (1, 3, 2))
    rows = run_query(lambda events: events.key_by("user").last(4, "n"), history, every_event_an_epoch)
    assert rows == [{"user": "ada", "n": [i, i + 1, i + 2, i + 3]} for i in range(57)]


@pytest.mark.parametrize(
    "value",
    [
        pl.col("n") > 2,
        pl.col("time"),
        pl.col("time").dt.date(),
        pl.col("page").cast(pl.Categorical),
        pl.col("n").cast(pl.Decimal(10, 2)),
    ],
    ids=["boolean", "datetime", "date", "categorical", "decimal"],
)
def test_values_of_any_plain_type_are_remembered(value: pl.Expr) -> None:
    history = history_of(6)
    straight = run_query(lambda events: events.map(v=value).key_by("user").last(3, "v"), history)
    cut = run_query(
        lambda events: events.map(v=value).key_by("user").last(3, "v"),
        history,
        Cutting((frozenset(range(6)),), (2,)),
    )
    assert [len(row["v"]) for row in straight] == [3] * 4
    assert cut == straight
