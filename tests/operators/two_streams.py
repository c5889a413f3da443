"""Queries over two streams, each with its own history and cutting, and the loop over all pairs to hold them against."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

import penstock as ps
from penstock import col
from tests.operators.harness import (
    SECOND,
    STRAIGHT,
    Cutting,
    Event,
    History,
    Row,
    events_stream,
    micros,
    run_app,
)

COLUMNS = ("time", "user", "page", "n", "x")
Pair = tuple[Event | None, Event | None]
Where = Callable[[Event, Event], bool | None]

#: conditions as a query has them and as the loop has them
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


def run_two_streams(
    build: Callable[[ps.Stream, ps.Stream], ps.Stream],
    left: History,
    right: History,
    cutting: Cutting = STRAIGHT,
    other_cutting: Cutting = STRAIGHT,
) -> list[Row]:
    """The rows of a query over two histories."""
    made = build(events_stream(left, cutting, "one"), events_stream(right, other_cutting, "other"))
    return micros(run_app(ps.app("test", ps.output("out", made)), cutting)["out"])


def joined(
    left: list[Event],
    right: list[Event],
    before: int,
    after: int,
    where: Where = lambda left, right: True,
    how: str = "inner",
) -> list[tuple[int, Pair]]:
    """The pairs by user, and who stays alone, each with the time at which it happens; bounds in seconds."""
    pairs = [
        (one, other)
        for one in left
        for other in right
        if one.user is not None
        and one.user == other.user
        and -before * SECOND <= other.time - one.time <= after * SECOND
        and where(one, other)
    ]
    found: list[tuple[int, Pair]] = [(max(one.time, other.time), (one, other)) for one, other in pairs]
    if how in ("left", "full"):
        paired = [one for one, _ in pairs]
        found += [(one.time + after * SECOND, (one, None)) for one in left if one not in paired]
    if how in ("right", "full"):
        paired = [other for _, other in pairs]
        found += [(other.time + before * SECOND, (None, other)) for other in right if other not in paired]
    return found


def row_of(pair: Pair) -> Row:
    """The row of a pair whose sides are both keyed by user."""
    one, other = pair
    row: Row = {name: getattr(one, name) if one else None for name in COLUMNS}
    row |= {f"{name}_right": getattr(other, name) if other else None for name in COLUMNS if name != "user"}
    if one is None and other is not None:
        row["user"] = other.user
    return row
