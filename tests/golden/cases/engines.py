"""What engines do besides: several sinks, checkpoints that are epochs apart, deaths, moved buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock as ps
from penstock import col
from tests.golden.given import COLUMNS, Given

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


def over_files(given: Given) -> ps.App:
    """Text files, which are named by a relative glob."""
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    log = ps.files("logs/*", finished=True)
    events = ps.stream("events", log, decoder, time="time", lateness="4s")
    users = events.key_by("user")
    rows = {
        "counts": users.window("15s").count("n"),
        "last": users.last(3, "page"),
        "sessions": users.session("3s").count("n"),
    }
    return ps.app("over-files", *(given.output(name, one) for name, one in rows.items()))


def over_a_log(given: Given) -> ps.App:
    """A stream whose log the case has. It waits for all partitions, however long one is silent."""
    events = given.stream("events", idle_after=None)
    users = events.key_by("user")
    rows = {
        "counts": users.window("15s").aggregate(ps.count("n"), ps.sum_("amount", "sum")),
        "last": users.last(3, "page"),
        "sessions": users.session("3s").count("n"),
        "best": users.running("6s").sum("n", "total").top(2),
    }
    return ps.app("over-a-log", *(given.output(name, one) for name, one in rows.items()))


def over_calls(given: Given) -> ps.App:
    """Call records, which are made from numbers: nobody has to be given them, and all versions make the same."""
    log = ps.call_records(
        total=400, callers=20, districts=5, call_seconds=20, rate=4, impossible=0.05, seed=5, live=False
    )
    calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness="5s", idle_after=None)
    latest = ps.latest("latest")
    rows = {
        "districts": calls.key_by("district").window("30s", every="10s").aggregate(ps.count("n"), latest),
        "callers": calls.key_by("src").session("8s").aggregate(ps.count("n"), ps.min_("lat", "lat")),
        "last": calls.key_by("src").last(2, "dst"),
    }
    return ps.app("over-calls", *(given.output(name, one) for name, one in rows.items()))


def reduced(given: Given) -> ps.App:
    """What agents can begin: windows and totals of functions whose partial answers are small."""
    events = given.stream("events")
    simple = (
        ps.count("n_all"),
        ps.sum_("n", "sum"),
        ps.avg("amount", "mean"),
        ps.max_("page", "most"),
        ps.stddev("amount", "spread"),
    )
    rows = {
        "tumbling": events.key_by("user").window("15s").aggregate(*simple),
        "hopping": events.key_by("page").window("24s", every="8s").aggregate(*simple),
        "periodic": events.key_by("user").window("30s").emit(every="10s").aggregate(ps.avg("n", "mean")),
        "running": events.key_by("user").running("8s").aggregate(*simple),
    }
    return ps.app("reduced", *(given.output(name, one) for name, one in rows.items()))
