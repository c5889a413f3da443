"""Operators after one another, beside one another and put together: the same rows however it is cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given

import penstock as ps
from penstock import col
from tests.operators.harness import (
    HISTORY,
    SECOND,
    Cutting,
    History,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    micros,
    modestly,
    run_app,
    run_query,
)

IN_PIECES = Cutting((frozenset({3, 8, 9, 20}), frozenset({1, 5})), (1, 3, 2))


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_the_last_counts_of_windows(history: History, cutting: Cutting) -> None:
    rows = run_query(
        lambda events: events.key_by("user").window("2s").count("n").key_by("user").last(2, "n"),
        history,
        cutting,
    )
    counts = Counter((event.time // (2 * SECOND), event.user) for event in history.on_time())
    per_user: dict[Any, list[int]] = defaultdict(list)
    expected = []
    for pane, user in sorted(counts, key=str):
        per_user[user].append(counts[pane, user])
        if len(per_user[user]) > 1:
            expected.append({"user": user, "n": per_user[user][-2:]})
    assert in_any_order(rows) == in_any_order(expected)


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_windows_over_windows(history: History, cutting: Cutting) -> None:
    rows = run_query(
        lambda events: (
            events.key_by("user", "page").window("1s").count("n").key_by("user").window("4s").sum("n")
        ),
        history,
        cutting,
    )
    counts = Counter((event.time // (4 * SECOND), event.user) for event in history.on_time())
    expected = [
        {
            "window_start": pane * 4 * SECOND,
            "window_end": (pane + 1) * 4 * SECOND,
            "user": user,
            "sum_n": n,
        }
        for (pane, user), n in counts.items()
    ]
    assert in_any_order(micros(rows)) == in_any_order(expected)


def test_rows_of_one_instant_follow_one_another_in_a_fixed_order() -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return (
            events.key_by("user", "page")
            .window("4s")
            .count("n")
            .map(all=ps.lit("all"))
            .key_by("all")
            .last(3, "page", "n")
        )

    assert run_query(query, HISTORY, IN_PIECES) == run_query(query, HISTORY) != []


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_a_union_is_its_parts(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        some = events.filter(col("n") > 0).select("user", "n")
        others = events.filter(col("n") <= 0).map(n=col("n") * 10).select("n", "user").select("user", "n")
        return some.union(others)

    expected = [
        {"user": event.user, "n": event.n if event.n > 0 else event.n * 10}
        for event in history.on_time()
        if event.n is not None
    ]
    assert in_any_order(run_query(query, history, cutting)) == in_any_order(expected)


def both(events: ps.Stream) -> dict[str, ps.Stream]:
    wide = events.filter(col("user") == "ada")
    narrow = events.filter(col("user") == "bob").select(*events.columns)
    totals = events.key_by("user").window("4s").count("n").select("user", "n")
    return {
        "one part selected, the other as read": narrow.union(wide),
        "parts with their columns in another order": events.select("user", "n").union(
            events.select("n", "user")
        ),
        "events and totals": events.select("user", "n").union(totals),
    }


@pytest.mark.parametrize("what", sorted(both(events_stream(HISTORY))))
def test_parts_of_any_make_can_be_united(what: str) -> None:
    rows = run_query(lambda events: both(events)[what], HISTORY, IN_PIECES)
    assert in_any_order(rows) == in_any_order(run_query(lambda events: both(events)[what], HISTORY)) != []


def test_columns_with_dots_in_their_names_are_the_users_own() -> None:
    def query(events: ps.Stream) -> ps.Stream:
        renamed = events.map(**{"v.n": col("user"), "v.s": col("page"), "v": col("x"), "n.1": col("page")})
        return renamed.key_by("v.n", "v.s").window("4s").aggregate(ps.avg("v", "v"), ps.count("c"))

    def last(events: ps.Stream) -> ps.Stream:
        return events.map(**{"n.1": col("user")}).key_by("n.1").last(2, "n")

    for build in (query, last):
        assert (
            in_any_order(run_query(build, HISTORY, IN_PIECES))
            == in_any_order(run_query(build, HISTORY))
            != []
        )


def test_outputs_of_one_app_do_not_disturb_one_another() -> None:
    def app(cutting: Cutting) -> ps.App:
        events = events_stream(HISTORY, cutting)
        counted = events.key_by("user").running("2s").count("n")
        return ps.app(
            "many",
            ps.output("raw", events.select("user", "n")),
            ps.output("last", events.key_by("user").last(2, "page", "x", partial=True)),
            ps.output("counts", counted),
            ps.output("most", counted.top(1)),
            ps.output("least", counted.top(2, least=True, changes_only=False)),
            ps.output("doubled", counted.top(1).map(n=col("n") * 2).select("user", "n")),
        )

    straight = run_app(app(Cutting((), (1,))))
    pieces = run_app(app(IN_PIECES), IN_PIECES)
    assert {name: in_any_order(rows) for name, rows in pieces.items()} == {
        name: in_any_order(rows) for name, rows in straight.items()
    }
    assert all(straight.values())
    assert [row["n"] for row in straight["doubled"]] == [2 * row["n"] for row in straight["most"]]


def test_a_batch_function_sees_every_event_once() -> None:
    def shouted(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(col("n") > 3).with_columns(loud=col("user").str.to_uppercase())

    def query(events: ps.Stream) -> ps.Stream:
        return events.map_batches(shouted, {"loud": pl.String(), "n": pl.Int64()})

    rows = run_query(query, HISTORY, IN_PIECES)
    assert rows == run_query(query, HISTORY)
    assert len(rows) == sum(event.n is not None and event.n > 3 for event in HISTORY.on_time())
