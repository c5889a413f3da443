"""Every aggregate function, of every type that is summed or compared in a way of its own, in windows that keep parts of
answers in different ways."""

from __future__ import annotations

from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from tests.golden.given import Given


def typed(events: ps.Stream) -> ps.Stream:
    """The events with columns of further types."""
    return events.map(
        price=col("n").cast(pl.Decimal(18, 2)),
        small=col("n").cast(pl.Int16),
        single=col("amount").cast(pl.Float32),
        took=pl.duration(milliseconds=col("n").fill_null(4)),
        day=col("time").dt.date(),
        good=col("n") > 1,
    )


def functions() -> tuple[Any, ...]:
    """Every function there is."""
    return (
        ps.count("n_all"),
        ps.count_of("n", "n_n"),
        ps.sum_("n", "sum_n"),
        ps.sum_("small", "sum_small"),
        ps.sum_("amount", "sum_amount"),
        ps.sum_("single", "sum_single"),
        ps.sum_("price", "sum_price"),
        ps.sum_("took", "sum_took"),
        ps.avg("n", "avg_n"),
        ps.avg("amount", "avg_amount"),
        ps.avg("price", "avg_price"),
        ps.min_("n", "min_n"),
        ps.min_("page", "min_page"),
        ps.min_("time", "min_time"),
        ps.max_("amount", "max_amount"),
        ps.max_("price", "max_price"),
        ps.max_("day", "max_day"),
        ps.variance("n", "var_n"),
        ps.variance("amount", "var_amount"),
        ps.stddev("amount", "dev_amount"),
        ps.first("page", "first_page"),
        ps.last("n", "last_n"),
        ps.earliest("earliest"),
        ps.latest("latest"),
        ps.collect("page", "pages"),
        ps.median("amount", "median_amount"),
        ps.median("n", "median_n"),
        ps.quantile("n", 0.9, "q90"),
        ps.approx_quantile("amount", 0.75, "near_q75"),
        ps.count_distinct("page", "distinct_pages"),
        ps.count_distinct("n", "distinct_n"),
        ps.approx_count_distinct("n", "near_distinct_n"),
        ps.approx_count_distinct("user", "near_distinct_users"),
    )


def in_windows(given: Given) -> ps.App:
    """In windows of time: tumbling, and sliding so far that parts are subtracted."""
    events = typed(given.stream("events"))
    rows = {
        "tumbling": events.key_by("page").window("25s").aggregate(*functions()),
        "sliding": events.key_by("page").window("60s", every="6s").aggregate(*functions()),
        "all_keys": events.window("40s").aggregate(*functions()),
    }
    return ps.app("aggregates-in-windows", *(given.output(name, one) for name, one in rows.items()))


def running(given: Given) -> ps.App:
    """Since the beginning, and whenever an answer changes."""
    events = typed(given.stream("events"))
    rows = {
        "running": events.key_by("page").running("15s").aggregate(*functions()),
        "periodic": events.key_by("page").window("60s").emit(every="20s").aggregate(*functions()),
        "on_change": events.filter(col("n") > 2)
        .key_by("page")
        .running()
        .emit("change")
        .aggregate(*functions()),
    }
    return ps.app("aggregates-running", *(given.output(name, one) for name, one in rows.items()))


def of_events(given: Given) -> ps.App:
    """In sessions, by number, and between landmarks."""
    users = typed(given.stream("events")).key_by("user")
    marks = col("page") == "/a", col("page") == "/c"
    rows = {
        "sessions": users.session("5s").aggregate(*functions()),
        "counted": users.count_window(8, 4).aggregate(*functions()),
        "landmarks": users.landmark(*marks, longest="20s").aggregate(*functions()),
    }
    return ps.app("aggregates-of-events", *(given.output(name, one) for name, one in rows.items()))
