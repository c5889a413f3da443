"""Patterns that cannot be meant: each is refused where it was said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from tests.operators.harness import History, events_stream

A, B = ps.step("a", col("n") > 0), ps.step("b", col("n") > 0)
GONE = ps.step("gone", col("n") > 0, absent=True)
MISTAKES: dict[str, tuple[str, str, Callable[[ps.Stream], object]]] = {
    "one step": ("BAD_PATTERN", "two steps", lambda s: s.key_by("user").pattern(A, within=1)),
    "a name twice": ("BAD_PATTERN", "same name", lambda s: s.key_by("user").pattern(A, A, within=1)),
    "a name that is none": (
        "BAD_PATTERN",
        "plain word",
        lambda s: s.key_by("user").pattern(A, ps.step("b.c", col("n") > 0), within=1),
    ),
    "nothing to begin with": (
        "BAD_PATTERN",
        "start a match",
        lambda s: s.key_by("user").pattern(ps.step("z", col("n") > 0, absent=True), A, within=1),
    ),
    "no time": ("BAD_WINDOW", "time", lambda s: s.key_by("user").pattern(A, B, within=0)),
    "timeouts of what is absent": (
        "BAD_PATTERN",
        "timeouts",
        lambda s: s.key_by("user").pattern(A, GONE, within=1, timeouts=True),
    ),
    "nothing between neighbours": (
        "BAD_PATTERN",
        "between",
        lambda s: s.key_by("user").pattern(A, GONE, B, within=1, matching="contiguous"),
    ),
    "a strategy nobody knows": (
        "BAD_PATTERN",
        "matching",
        lambda s: s.key_by("user").pattern(A, B, within=1, matching="any"),  # type: ignore[arg-type]
    ),
    "a condition over no column": (
        "UNKNOWN_COLUMN",
        "'page'",
        lambda s: s.key_by("user").pattern(A, ps.step("b", col("pag") == "x"), within=1),
    ),
    "a condition over no column of an earlier step": (
        "UNKNOWN_COLUMN",
        "'a.page'",
        lambda s: s.key_by("user").pattern(A, ps.step("b", ps.prev("a", "pag") == "x"), within=1),
    ),
    "a look ahead": (
        "BAD_PATTERN",
        "'b.n'",
        lambda s: s.key_by("user").pattern(ps.step("a", ps.prev("b", "n") > 1), B, within=1),
    ),
    "a look at what is absent": (
        "BAD_PATTERN",
        "'gone.n'",
        lambda s: s.key_by("user").pattern(A, GONE, ps.step("b", ps.prev("gone", "n") > 1), within=1),
    ),
    "a condition that is none": (
        "TYPE_MISMATCH",
        "condition",
        lambda s: s.key_by("user").pattern(A, ps.step("b", col("n")), within=1),
    ),
    "a column called like a step's": (
        "NAME_TAKEN",
        "'a.n'",
        lambda s: (
            s.map(**{"a.n": col("n")})
            .key_by("user")
            .pattern(A, ps.step("b", ps.prev("a", "n") > 1), within=1)
        ),
    ),
    "two columns of one name": (
        "NAME_TAKEN",
        "'a_b_n'",
        lambda s: s.map(b_n=col("n")).key_by("user").pattern(A, ps.step("a_b", col("n") > 0), within=1),
    ),
    "columns that are none": (
        "UNKNOWN_COLUMN",
        "'page'",
        lambda s: s.key_by("user").pattern(A, B, within=1, columns=["pages"]),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as told_error:
        make(events_stream(History(((),))))
    assert told_error.value.condition == condition
    assert named in str(told_error.value)
    assert "test_pattern_mistakes.py" in str(told_error.value.where)
