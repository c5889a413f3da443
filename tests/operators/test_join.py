"""Joins within time against a loop over all pairs, for any history, cutting and number of slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.words.errors import UserError
from tests.operators.harness import (
    SECOND,
    STRAIGHT,
    Cutting,
    Event,
    History,
    Row,
    answers,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    micros,
    modestly,
)

COLUMNS = ("time", "user", "page", "n", "x")
Pair = tuple[Event | None, Event | None]
Where = Callable[[Event, Event], bool | None]

#: a condition as the query has it and as the loop has it
CONDITIONS: dict[str, tuple[pl.Expr | None, Where]] = {
    "none": (None, lambda left, right: True),
    "n differs": (
        col("n") != col("n_right"),
        lambda left, right: None if left.n is None or right.n is None else left.n != right.n,
    ),
    "a page after another": (
        (col("page") < col("page_right")) & (col("user") != "bob"),
        lambda left, right: (
            left.page is not None and right.page is not None and left.page < right.page and left.user != "bob"
        ),
    ),
    "always": (pl.lit(True), lambda left, right: True),
    "never": (col("x").is_null() & col("x").is_not_null(), lambda left, right: False),
}
BOUNDS = [(0, 0), (2, 2), (0, 3), (1, 0), (2, 5), (30, 30)]


def pairs_of(
    left: list[Event],
    right: list[Event],
    before: int,
    after: int,
    where: Where,
    same: Callable[[Event, Event], bool],
) -> list[tuple[Event, Event]]:
    return [
        (one, other)
        for one in left
        for other in right
        if same(one, other)
        and -before * SECOND <= other.time - one.time <= after * SECOND
        and where(one, other)
    ]


def users_equal(left: Event, right: Event) -> bool:
    return left.user is not None and left.user == right.user


def oracle(
    left: list[Event], right: list[Event], before: int, after: int, where: Where, how: str
) -> list[tuple[int, Pair]]:
    """The pairs and the lonely, each with the time at which it happens."""
    pairs = pairs_of(left, right, before, after, where, users_equal)
    found: list[tuple[int, Pair]] = [(max(one.time, other.time), (one, other)) for one, other in pairs]
    if how in ("left", "full"):
        paired = [one for one, _ in pairs]
        found += [(one.time + after * SECOND, (one, None)) for one in left if one not in paired]
    if how in ("right", "full"):
        paired = [other for _, other in pairs]
        found += [(other.time + before * SECOND, (None, other)) for other in right if other not in paired]
    return found


def row_of(pair: Pair) -> Row:
    """A pair's row when both sides are keyed by user."""
    one, other = pair
    row: Row = {name: getattr(one, name) if one else None for name in COLUMNS}
    row |= {f"{name}_right": getattr(other, name) if other else None for name in COLUMNS if name != "user"}
    if one is None and other is not None:
        row["user"] = other.user
    return row


def two(
    build: Callable[[ps.Stream, ps.Stream], ps.Stream],
    left: History,
    right: History,
    cutting: Cutting = STRAIGHT,
    other_cutting: Cutting = STRAIGHT,
) -> list[Row]:
    made = build(events_stream(left, cutting, "one"), events_stream(right, other_cutting, "other"))
    return micros(answers(ps.app("test", ps.output("out", made)), cutting)["out"])


@modestly
@given(
    histories(most_events=16),
    histories(most_events=16),
    cuttings(),
    cuttings(),
    st.sampled_from(BOUNDS),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from(["epoch", "strict"]),
)
def test_pairs_are_those_of_a_loop_over_all_rows(
    left: History,
    right: History,
    cutting: Cutting,
    other_cutting: Cutting,
    bounds: tuple[int, int],
    condition: str,
    how: Any,
    order: Any,
) -> None:
    before, after = bounds
    expr, where = CONDITIONS[condition]
    rows = two(
        lambda one, other: one.key_by("user").join(
            other.key_by("user"), before=before, after=after, where=expr, how=how, order=order
        ),
        left,
        right,
        cutting,
        other_cutting,
    )
    expected = oracle(left.on_time(), right.on_time(), before, after, where, how)
    assert in_any_order(rows) == in_any_order([row_of(pair) for _, pair in expected])
