"""Partitioners of users and rebalancing: the same results, rows in the buckets that were declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.operators.partitioners import ByRange
from penstock.operators.routes import ByKey, Partitioner
from penstock.query.compile import compile_app
from penstock.query.explain import explain_app
from penstock.state.buckets import HASH, buckets_of
from tests.operators.harness import (
    Cutting,
    History,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    modestly,
    run_query,
)


def by_length(keys: pl.DataFrame) -> pl.Series:
    return keys["user"].str.len_chars().fill_null(0) % 3


def wild(keys: pl.DataFrame) -> pl.Series:
    return pl.Series([7] * keys.height)


PARTITIONERS = [ps.by_range("user", ["b", "d"]), ps.by_function(by_length, 3), ps.by_range("user", ["zz"])]


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
@pytest.mark.parametrize("partition", PARTITIONERS, ids=str)
def test_answers_do_not_depend_on_the_partitioner(
    partition: Partitioner, history: History, cutting: Cutting
) -> None:
    def rows(events: ps.Stream, partition: Partitioner | None) -> ps.Stream:
        keyed = events.key_by("user", partition=partition)
        counts = keyed.last(2, "page", partial=True).key_by("user", partition=partition).window("5s").count()
        return counts.union(events.key_by("user", partition=partition).window("5s").count())

    hashed = run_query(lambda events: rows(events, None), history)
    assert in_any_order(run_query(lambda events: rows(events, partition), history, cutting)) == in_any_order(
        hashed
    )


@pytest.mark.parametrize("count", [1, 4, 64])
def test_the_keys_of_a_part_lie_in_neighbouring_buckets(count: int) -> None:
    rows = pl.DataFrame({"user": [f"{letter}{number}" for letter in "abcdxyz" for number in range(50)]})
    route = ByKey(("user",), ByRange("user", ("c", "x")))
    hashed = route.add_hash(rows, count)
    buckets = pl.Series(buckets_of(hashed[HASH].to_numpy(), count))
    part = pl.Series(np.where(rows["user"] < "c", 0, np.where(rows["user"] < "x", 1, 2)))
    spans = [(buckets.filter(part == p).min(), buckets.filter(part == p).max()) for p in range(3)]
    assert spans[0][1] <= spans[1][0]  # type: ignore[operator]
    assert spans[1][1] <= spans[2][0]  # type: ignore[operator]


def test_the_same_partitioner_again_needs_no_exchange_and_another_one_does() -> None:
    events = events_stream(History(()))
    by = ps.by_range("user", ["m"])
    last = events.key_by("user", partition=by).last(2, "page")
    same = compile_app(ps.app("a", ps.output("o", last.key_by("user", partition=by).window("1s").count())))
    other = compile_app(ps.app("a", ps.output("o", last.key_by("user").window("1s").count())))
    assert (same.levels, other.levels) == (1, 2)
    assert same.fingerprint != other.fingerprint


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_rebalanced_rows_are_the_same_rows(history: History, cutting: Cutting) -> None:
    def rows(events: ps.Stream) -> ps.Stream:
        return events.filter(col("n") > 0).rebalance().map(twice=col("n") * 2).select("user", "twice")

    expected = [{"user": e.user, "twice": e.n * 2} for e in history.on_time() if e.n is not None and e.n > 0]
    assert in_any_order(run_query(rows, history, cutting)) == in_any_order(expected)


def test_a_rebalanced_stream_goes_on_into_an_operator() -> None:
    events = events_stream(History(()))
    app = ps.app("a", ps.output("o", events.rebalance().key_by("user").last(2, "page")))
    assert "exchange round-robin" in explain_app(app)["stages"]


MISTAKES: list[Callable[[ps.Stream], object]] = [
    lambda events: events.key_by("user", partition=ps.by_range("page", ["m"])),
    lambda events: ps.by_range("user", ["m", "b"]),
    lambda events: ps.by_range("user", []),
    lambda events: ps.by_function(by_length, 0),
    lambda events: compile_app(
        ps.app(
            "a",
            ps.output(
                "o",
                events.key_by("user", partition=ps.by_range("user", ["m"])).join(
                    events.key_by("user"), within="1s"
                ),
            ),
        )
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_partitioners_that_cannot_be_are_refused(mistake: Callable[[ps.Stream], object]) -> None:
    with pytest.raises(UserError, match="BAD_PARTITION"):
        mistake(events_stream(History(())))


def test_a_part_that_does_not_exist_is_told_with_the_users_line(tmp_path: Path) -> None:
    from tests.operators.harness import Event

    history = History(((Event(0, 0, 1_000_000, "ada", "/a", 1, None),),))
    with pytest.raises(UserError) as caught:
        run_query(
            lambda events: events.key_by("user", partition=ps.by_function(wild, 3)).window("1s").count(),
            history,
        )
    assert caught.value.condition == "BAD_PARTITION"
    assert "wild" in caught.value.primary
