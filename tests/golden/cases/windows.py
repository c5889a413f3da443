"""Windows of time, of events, and totals since the beginning; whatever they emit, and whenever."""

from __future__ import annotations

import penstock as ps
from penstock import col
from tests.golden.given import Given


def time_windows(given: Given) -> ps.App:
    """Tumbling, sliding, with gaps, shifted, over all keys; in strict order."""
    events = given.stream("events")
    users = events.key_by("user")
    rows = {
        "tumbling": users.window("15s").aggregate(ps.count("n"), ps.sum_("amount", "sum")),
        "shifted": users.window("20s", offset="7s").count("n"),
        "all_keys": events.window("25s").aggregate(ps.count("n"), ps.max_("n", "most")),
        "two_keys": events.key_by("user", "page").window("30s").sum("n", "sum"),
        "gaps": users.window("9s", every="20s").count("n"),
        "sliding": users.window("30s", every="10s").aggregate(ps.count("n"), ps.last("page", "page")),
        "sliding_total": events.window("20s", every="5s").sum("n", "sum"),
        "in_order": events.key_by("page", order="strict").window("15s").aggregate(ps.collect("n", "all")),
        "windows_of_windows": users.window("5s")
        .count("n")
        .key_by("user")
        .window("40s")
        .aggregate(ps.max_("n", "most"), ps.count("windows")),
    }
    return ps.app("time-windows", *(given.output(name, one) for name, one in rows.items()))


def emissions(given: Given) -> ps.App:
    """Windows and totals that emit before they close: periodically, and on every change."""
    events = given.stream("events")
    users = events.key_by("user")
    rows = {
        "periodic": users.window("30s").emit(every="6s").aggregate(ps.count("n"), ps.avg("amount", "mean")),
        "periodic_sliding": users.window("30s", every="10s").emit(every="5s").count("n"),
        "on_change": users.window("20s").emit("change").aggregate(ps.count_distinct("page", "pages")),
        "on_change_sliding": users.window("20s", every="10s").emit("change").aggregate(ps.max_("n", "most")),
        "running": users.running("8s").aggregate(ps.count("n"), ps.sum_("n", "sum")),
        "running_total": events.running("10s").count("n"),
        "running_on_change": users.running().emit("change").aggregate(ps.min_("amount", "least")),
    }
    return ps.app("emissions", *(given.output(name, one) for name, one in rows.items()))


def event_windows(given: Given) -> ps.App:
    """Sessions, counts, the last n, landmarks."""
    users = given.stream("events").key_by("user")
    marks = col("page") == "/a", col("page") == "/d"
    rows = {
        "session": users.session("3s").aggregate(ps.count("n"), ps.first("page", "one")),
        "session_longest": users.session("4s", longest="12s").count("n"),
        "counted": users.count_window(7).aggregate(ps.collect("page", "pages")),
        "counted_sliding": users.count_window(6, 2).aggregate(ps.min_("amount", "least"), ps.count("n")),
        "counted_gaps": users.count_window(2, 5).count("n"),
        "counted_partial": users.count_window(50, partial=True).count("n"),
        "counted_forgetting": users.count_window(4, forget_after="6s").count("n"),
        "last_window": users.last_window(5).aggregate(ps.sum_("n", "sum"), ps.count("n")),
        "last_window_whole": users.last_window(4, whole=True, forget_after="20s").aggregate(
            ps.median("amount", "middle")
        ),
        "landmark": users.landmark(*marks, longest="25s").aggregate(ps.count("n"), ps.last("page", "page")),
        "landmark_open": users.landmark(*marks, keep_open=True).aggregate(ps.collect("n", "all")),
    }
    return ps.app("event-windows", *(given.output(name, one) for name, one in rows.items()))
