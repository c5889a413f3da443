"""What remembers events of a key: the last n, distinct, patterns, functions row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from tests.golden.given import Given

Emit = Callable[[dict[str, Any]], None]


def last_and_distinct(given: Given) -> ps.App:
    """The last values of a key, and events of which equal ones are left out."""
    events = given.stream("events")
    users = events.key_by("user")
    rows = {
        "last": users.last(3, "page"),
        "last_partial": users.last(2, "page", "n", partial=True),
        "last_of_last": users.last(2, "page").explode("page").key_by("page").last(2, "user"),
        "distinct": events.distinct("user", "page", within="12s").select("time", "user", "page"),
        "distinct_forever": events.distinct("user", "page", "tags", forever=True).select(
            "user", "page", "tags"
        ),
    }
    return ps.app("last-and-distinct", *(given.output(name, one) for name, one in rows.items()))


def patterns(given: Given) -> ps.App:
    """Sequences half matched: next and contiguous, overlapping or not, with absent steps and timeouts."""
    events = given.stream("events")
    users = events.key_by("user")
    a, b, c = (ps.step(name, col("page") == f"/{name}") for name in "abc")
    rows = {
        "next": users.pattern(a, b, c, within="20s", columns=["n"]),
        "contiguous": users.pattern(a, b, within="30s", matching="contiguous", columns=["amount"]),
        "skip": users.pattern(a, b, within="25s", after="skip", columns=["n"]),
        "absent_between": users.pattern(
            a, ps.step("no_c", col("page") == "/c", absent=True), b, within="15s", columns=["n"]
        ),
        "absent_at_end": users.pattern(
            a, ps.step("no_b", col("page") == "/b", absent=True), within="10s", columns=["n"]
        ),
        "timeouts": users.pattern(
            a, ps.step("more", col("n") > col("a.n")), c, within="18s", timeouts=True, columns=["n"]
        ),
    }
    return ps.app("patterns", *(given.output(name, one) for name, one in rows.items()))


def before(last: float | None, row: dict[str, Any], emit: Emit) -> float | None:
    """Each amount with the user's before it; great ones twice."""
    emit({"user": row["user"], "amount": row["amount"], "before": last})
    if (row["amount"] or 0.0) > 2:
        emit({"user": row["user"], "amount": row["amount"], "before": None})
    value: float | None = row["amount"]
    return value


def pages_seen(state: dict[str, Any], row: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """How often the user has seen which pages; a state of nested values."""
    state["count"] += 1
    state["pages"].setdefault(row["page"], []).append(row["n"])
    if state["count"] % 3 == 0:
        emit({"user": row["user"], "count": state["count"], "pages": sorted(state["pages"])})
    return state


def row_functions(given: Given) -> ps.App:
    """Functions that are called row by row, with a state per key."""
    users = given.stream("events").key_by("user")
    seen = {"user": ps.String(), "count": ps.Int64(), "pages": pl.List(pl.String())}
    fresh: dict[str, Any] = {"count": 0, "pages": {}}
    columns = {"user": ps.String(), "amount": ps.Float64(), "before": ps.Float64()}
    rows = {
        "before": users.apply_rows(before, columns),
        "pages_seen": users.apply_rows(pages_seen, seen, fresh, columns=["page", "n"]),
        "forgetting": users.apply_rows(pages_seen, seen, fresh, forget_after="8s"),
    }
    return ps.app("row-functions", *(given.output(name, one) for name, one in rows.items()))
