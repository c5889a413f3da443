"""The best rows: of windows and of running totals, at the end of a query and within it, of all and of each group."""

from __future__ import annotations

import penstock as ps
from penstock import col
from tests.golden.given import Given


def tops(given: Given) -> ps.App:
    events = given.stream("events")
    pages, pairs = events.key_by("page"), events.key_by("user", "page")
    # the best of two seconds is the same for fifteen: what was emitted last must be known
    periods = events.map(period=col("time").dt.epoch("s") // 15).key_by("period")
    newest = ps.max_("period", "newest")
    steady = periods.window("2s").aggregate(newest).top(1, changes_only=True).select("newest")
    totals = pairs.running("6s").sum("n", "sum")
    rows = {
        "of_windows": pages.window("20s").count("n").top(2),
        "of_windows_changes": pages.window("6s").count("n").top(1, by="n", changes_only=True).select("page"),
        "least": pages.window("20s").sum("n", "sum").top(1, least=True),
        "running": pages.running("7s").sum("n", "sum").top(2),
        "running_all_told": pages.running("9s").count("n").top(2, changes_only=False),
        "per_user": pairs.window("20s").count("n").top(1, per="user"),
        "per_user_changes": pairs.window("10s").count("n").top(1, per="user", changes_only=True),
        "running_per_user": totals.top(2, per="user"),
        "steady": steady,
        "running_everything": pairs.running("9s").sum("n", "sum").top(50),
        "running_steady": periods.running("2s").aggregate(newest).top(1),
        "within_the_query": pairs.running("5s").sum("n", "sum").top(50).key_by("user").last(2, "sum"),
        "within_windows": steady.map(one=ps.lit(1)).key_by("one").window("200s").count("times"),
    }
    return ps.app("tops", *(given.output(name, one) for name, one in rows.items()))
