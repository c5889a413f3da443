"""What engines do besides: several sinks, checkpoints that are epochs apart, deaths, moved buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock as ps
from penstock import col
from tests.golden.given import Given

Emit = Callable[[dict[str, Any]], None]


def before(last: int | None, row: dict[str, Any], emit: Emit) -> int:
    """Each number with the user's before it."""
    emit({"who": row["user"], "n": row["n"], "last": last})
    return int(row["n"] or 0)


def some_of_each(given: Given) -> ps.App:
    """A few operators of each way to keep state, small enough to be archived often."""
    events, other = given.stream("events"), given.stream("other")
    users = events.key_by("user")
    near = other.filter(col("n") > 2).select("time", "user", "n").key_by("user")
    rows = {
        "sums": users.window("15s").aggregate(ps.count("n"), ps.sum_("amount", "sum")),
        "sliding": users.window("24s", every="8s").count("n"),
        "sessions": users.session("3s").aggregate(ps.count("n"), ps.last("page", "page")),
        "last": users.last(3, "page"),
        "best": users.running("6s").sum("n", "total").top(2),
        "joined": users.join(near, within="3s").select("user", "n", "n_right"),
        "before": users.apply_rows(before, {"who": ps.String(), "n": ps.Int64(), "last": ps.Int64()}),
        "pattern": users.pattern(
            ps.step("a", col("page") == "/a"), ps.step("b", col("page") == "/b"), within="20s", columns=["n"]
        ),
    }
    return ps.app("some-of-each", *(given.output(name, one) for name, one in rows.items()))


def sinks(given: Given) -> ps.App:
    """Rows in files of JSON lines, in Parquet, in tables of SQLite; some in all of them."""
    events = given.stream("events")
    users = events.key_by("user")
    counts = users.window("15s").aggregate(
        ps.count("n"), ps.sum_("amount", "sum"), ps.collect("page", "pages")
    )
    pages = events.key_by("page").running("6s").count("n").top(2)
    database = given.out / "rows.db"
    return ps.app(
        "sinks",
        ps.output(
            "counts",
            counts,
            ps.jsonl(given.out / "counts"),
            ps.parquet(given.out / "counts_parquet"),
            ps.sqlite(database, "counts"),
        ),
        ps.output("pages", pages, ps.sqlite(database, "pages"), ps.parquet(given.out / "pages_parquet")),
        ps.output("last", users.last(2, "n"), ps.jsonl(given.out / "last")),
    )
