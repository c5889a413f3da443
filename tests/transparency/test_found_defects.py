"""Defects that random queries found, each as a minimal query: the rows are correct, and the same in any epochs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock import col
from tests.operators.harness import (
    HISTORY,
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    in_any_order,
    run_query,
)

CUTTINGS = [
    Cutting((frozenset({3, 8, 9, 20}), frozenset({1, 5})), (1, 3, 2)),
    Cutting((frozenset(range(24)), frozenset(range(9))), (5, 1, 4)),
]


def run_in_any_epochs(query: Callable[[ps.Stream], ps.Stream]) -> list[Row]:
    undisturbed = run_query(query, HISTORY)
    assert undisturbed
    for cutting in CUTTINGS:
        assert in_any_order(run_query(query, HISTORY, cutting)) == in_any_order(undisturbed)
    return undisturbed


def union_with_itself(events: ps.Stream) -> ps.Stream:
    """Union events with some of them again: these have the same position in the log."""
    return events.union(events.filter(col("n") > 3).map(n=col("n") * 2))


def order_all(rows: ps.Stream) -> ps.Stream:
    """Emit lists over all rows, so that their order is visible."""
    return rows.map(all=ps.lit("all")).key_by("all").last(3, "page", "n")


@pytest.mark.parametrize("partial", [False, True])
def test_the_last_of_lists_are_lists_of_lists(partial: bool) -> None:
    rows = run_in_any_epochs(
        lambda events: (
            events.key_by("user").last(2, "n", partial=partial).key_by("user").last(3, "n", partial=partial)
        )
    )
    full = [[-i, -i - 1] for i in range(8)]
    lists = [[0], *full] if partial else full
    expected = [lists[max(0, i - 3) : i] for i in range(1 if partial else 3, len(lists) + 1)]
    assert [row["n"] for row in rows if row["user"] == "cyd"] == expected


def test_a_filtered_union_has_the_same_order_for_all_readers() -> None:
    run_in_any_epochs(lambda events: order_all(union_with_itself(events).distinct("user", "n", within="3s")))


def test_the_last_rows_of_a_union_have_the_same_order_for_all_readers() -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return order_all(
            union_with_itself(events).key_by("page").last(1, "n", "user").map(n=col("n").list.first())
        )

    run_in_any_epochs(query)


def test_changes_of_a_union_have_the_same_order_for_all_readers() -> None:
    def query(events: ps.Stream) -> ps.Stream:
        windows = union_with_itself(events).key_by("page", "user").window("3s").emit("change")
        return order_all(windows.aggregate(ps.sum_("n", "n")))

    run_in_any_epochs(query)


def test_a_rebalanced_union_has_the_same_order() -> None:
    rows = run_in_any_epochs(lambda events: union_with_itself(events).rebalance().key_by("user").last(2, "n"))
    assert in_any_order(rows) == in_any_order(
        run_query(lambda events: union_with_itself(events).key_by("user").last(2, "n"), HISTORY)
    )


def test_a_union_of_events_and_results_can_be_rebalanced() -> None:
    def both(events: ps.Stream) -> ps.Stream:
        counts = events.key_by("user").window("2s").count("n").select("user", "n")
        return events.select("user", "n").union(counts)

    rows = run_in_any_epochs(lambda events: both(events).rebalance().key_by("user").last(2, "n"))
    assert in_any_order(rows) == in_any_order(
        run_query(lambda events: both(events).key_by("user").last(2, "n"), HISTORY)
    )


def test_a_key_may_be_called_window_start_in_a_running_top() -> None:
    history = History(
        (
            (
                Event(0, 0, 1_000 * SECOND, "ada", None, 2, None),
                Event(0, 1, 1_001 * SECOND, "ada", None, -1, None),
                Event(0, 2, 1_001 * SECOND, "bob", None, 2, None),
            ),
        )
    )

    def query(events: ps.Stream) -> ps.Stream:
        return events.map(window_start=col("user")).key_by("window_start").running("1s").sum("n", "n").top(1)

    assert [(row["window_start"], row["n"]) for row in run_query(query, history)] == [("ada", 2), ("bob", 2)]


def test_at_one_instant_results_come_after_events_for_first_and_last_too() -> None:
    at = 1_000 * SECOND + 999_999
    history = History(((Event(0, 0, at, "ada", None, 7, None), Event(0, 1, at, "ada", None, 5, None)),))

    def query(events: ps.Stream) -> ps.Stream:
        counts = events.key_by("user").window("1s").count("n").select("user", "n")
        both = events.select("user", "n").union(counts)
        return both.key_by("user").window("1s").aggregate(ps.first("n", "first"), ps.collect("n", "all"))

    (row,) = run_query(query, history)
    assert (row["first"], row["all"]) == (7, [7, 5, 2])
