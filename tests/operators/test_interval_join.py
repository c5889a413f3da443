"""Joins within time against a loop over all pairs, for any history, cutting and number of slices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.testing.inline import run_inline
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    events_stream,
    fast_directory,
    histories,
    in_any_order,
    micros,
    modestly,
    run_query,
)
from tests.operators.two_streams import CONDITIONS, joined, row_of, run_two_streams

pytestmark = pytest.mark.slow

BOUNDS = [(0, 0), (2, 2), (0, 3), (1, 0), (2, 5), (30, 30)]
HOWS = ["inner", "left", "right", "full"]


@modestly
@given(
    histories(most_events=16),
    histories(most_events=16),
    cuttings(),
    cuttings(),
    st.sampled_from(BOUNDS),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(HOWS),
    st.sampled_from(["epoch", "strict"]),
)
def test_pairs_are_those_of_a_loop_over_all_rows(
    left: History,
    right: History,
    cutting: Cutting,
    other_cutting: Cutting,
    bounds: tuple[int, int],
    condition: str,
    how: Any,
    order: Any,
) -> None:
    before, after = bounds
    expr, where = CONDITIONS[condition]
    rows = run_two_streams(
        lambda one, other: one.key_by("user").join(
            other.key_by("user"), before=before, after=after, where=expr, how=how, order=order
        ),
        left,
        right,
        cutting,
        other_cutting,
    )
    expected = joined(left.on_time(), right.on_time(), before, after, where, how)
    assert in_any_order(rows) == in_any_order([row_of(pair) for _, pair in expected])


@modestly
@given(
    histories(most_events=16),
    histories(most_events=16),
    cuttings(),
    st.sampled_from(BOUNDS),
    st.sampled_from(HOWS),
)
def test_rows_happen_when_the_later_does_or_when_the_wait_is_over(
    left: History, right: History, cutting: Cutting, bounds: tuple[int, int], how: Any
) -> None:
    before, after = bounds
    rows = run_two_streams(
        lambda one, other: (
            one.key_by("user")
            .join(other.key_by("user"), before=before, after=after, how=how)
            .window("2s")
            .count("rows")
        ),
        left,
        right,
        cutting,
    )
    expected = Counter(
        when // (2 * SECOND) for when, _ in joined(left.on_time(), right.on_time(), before, after, how=how)
    )
    assert {row["window_start"] // (2 * SECOND): row["rows"] for row in rows} == expected


@modestly
@given(
    histories(),
    cuttings(),
    st.sampled_from(BOUNDS),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(HOWS),
)
def test_a_stream_meets_itself_as_it_would_another(
    history: History, cutting: Cutting, bounds: tuple[int, int], condition: str, how: Any
) -> None:
    before, after = bounds
    expr, where = CONDITIONS[condition]
    rows = run_query(
        lambda events: events.key_by("user").join(
            events.key_by("user"), before=before, after=after, where=expr, how=how
        ),
        history,
        cutting,
    )
    expected = joined(history.on_time(), history.on_time(), before, after, where, how)
    assert in_any_order(micros(rows)) == in_any_order([row_of(pair) for _, pair in expected])


@modestly
@given(
    histories(),
    cuttings(),
    st.sampled_from([0, 1, 2, 30]),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(["epoch", "strict"]),
)
def test_distinct_pairs_are_every_two_events_once(
    history: History, cutting: Cutting, within: int, condition: str, order: Any
) -> None:
    expr, where = CONDITIONS[condition]

    def query(events: ps.Stream) -> ps.Stream:
        users = events.key_by("user")
        return users.join(users, within=within, where=expr, distinct_pairs=True, order=order)

    events = history.on_time()
    expected = [
        (one, other)
        for at, one in enumerate(events)
        for other in events[at + 1 :]
        if one.user is not None
        and one.user == other.user
        and other.time - one.time <= within * SECOND
        and where(one, other)
    ]
    rows = micros(run_query(query, history, cutting))
    assert in_any_order(rows) == in_any_order([row_of(pair) for pair in expected])


@modestly
@given(histories(), cuttings())
def test_keys_of_other_names_and_several_columns(history: History, cutting: Cutting) -> None:
    """A stream with itself by other columns: two edges of one scan, two exchanges."""

    def query(events: ps.Stream) -> ps.Stream:
        named = events.select("n", who=col("user"), where=col("page"))
        return (
            events.select("user", "page", "x")
            .key_by("user", "page")
            .join(named.key_by("who", "where"), within="2s", how="full")
        )

    events = history.on_time()
    pairs = [
        (one, other)
        for one in events
        for other in events
        if None not in (one.user, one.page)
        and (one.user, one.page) == (other.user, other.page)
        and abs(one.time - other.time) <= 2 * SECOND
    ]
    alone: Row = {"user": None, "page": None, "x": None, "n": None, "who": None, "where": None}
    expected = [
        {"user": one.user, "page": one.page, "x": one.x, "n": b.n, "who": b.user, "where": b.page}
        for one, b in pairs
    ]
    expected += [
        alone | {"user": one.user, "page": one.page, "x": one.x}
        for one in events
        if one not in [mine for mine, _ in pairs]
    ]
    expected += [
        alone | {"n": one.n, "who": one.user, "where": one.page}
        for one in events
        if one not in [theirs for _, theirs in pairs]
    ]
    assert in_any_order(run_query(query, history, cutting)) == in_any_order(expected)


# -- plain cases ---------------------------------------------------------------------------------


def history_of(*times: float, user: str = "ada") -> History:
    return History(
        (tuple(Event(0, at, int(t * SECOND), user, f"/{at}", at, None) for at, t in enumerate(times)),)
    )


def every_event_an_epoch(history: History, *slices: int) -> Cutting:
    ends = tuple(frozenset(range(len(part) + 1)) for part in history.partitions)
    return Cutting(ends, slices or (1,))


def test_the_bounds_belong_to_the_window() -> None:
    left, right = history_of(100), history_of(94.999999, 95, 99, 100, 102, 102.000001)
    rows = run_two_streams(
        lambda one, other: one.key_by("user").join(other.key_by("user"), before="5s", after="2s"), left, right
    )
    assert sorted(row["page_right"] for row in rows) == ["/1", "/2", "/3", "/4"]


def test_pairs_are_found_across_many_epochs_and_compactions() -> None:
    history = history_of(*range(1_000, 1_060))

    def query(events: ps.Stream) -> ps.Stream:
        users = events.select("user", "n").key_by("user")
        return users.join(users, within="20s", distinct_pairs=True)

    rows = run_query(query, history, every_event_an_epoch(history, 1, 3, 2))
    expected = [(a, b) for a in range(60) for b in range(a + 1, min(60, a + 21))]
    assert sorted((row["n"], row["n_right"]) for row in rows) == expected


def test_a_pair_leaves_with_its_later_event_and_the_unmatched_with_the_watermark() -> None:
    """Events may be 3 s late: the watermark passes 101 with the event of 105."""
    history = history_of(100, 100.5, 101, 104, 105)
    cutting = every_event_an_epoch(history)

    def leaves(order: Any, how: Any) -> list[list[tuple[int | None, int | None]]]:
        """The rows that each epoch emits."""
        one = events_stream(history, cutting, "one").select("user", "n")
        other = events_stream(history, cutting, "other").filter(col("n") == 1).select("user", "n")
        made = one.key_by("user").join(other.key_by("user"), within="0.5s", order=order, how=how)
        with fast_directory() as folder:
            reports = run_inline(ps.app("test", ps.output("out", made)), Path(folder) / "state")
        row_frames = [report.rows.get("out") for report in reports]
        return [[] if rows is None else list(rows.select("n", "n_right").iter_rows()) for rows in row_frames]

    pairs = [(0, 1), (1, 1), (2, 1)]
    assert leaves("epoch", "inner") == [[], pairs[:2], pairs[2:], [], []]
    assert leaves("strict", "inner") == [[], [], [], pairs[:2], pairs[2:]]
    assert leaves("epoch", "left") == [[], pairs[:2], pairs[2:], [], [(3, None), (4, None)]]


def test_two_parts_of_a_union_share_a_position_and_are_distinguished() -> None:
    history = history_of(100, 101, 102)

    def query(events: ps.Stream) -> ps.Stream:
        some = events.select("user", "n")
        both = some.union(events.select("user", n=col("n") + 10)).key_by("user")
        return both.join(both, within=0, distinct_pairs=True)

    expected = [{"user": "ada", "n": n, "n_right": n + 10} for n in range(3)]
    assert (
        run_query(query, history) == run_query(query, history, every_event_an_epoch(history, 2)) == expected
    )


def test_equal_answers_of_an_operator_are_different_rows() -> None:
    """Two windows' counts may be equal in all columns; they are two rows, and one pair."""
    history = History(
        tuple(
            tuple(Event(p, at, (100 + at) * SECOND, "ada", f"/{p}", at, None) for at in range(4))
            for p in (0, 1)
        )
    )

    def query(events: ps.Stream) -> ps.Stream:
        counts = events.key_by("user", "page").window("2s").count().select("user", "count").key_by("user")
        return counts.join(counts, within=0, distinct_pairs=True)

    rows = run_query(query, history, every_event_an_epoch(history, 2))
    assert rows == run_query(query, history) == [{"user": "ada", "count": 2, "count_right": 2}] * 2


def test_values_of_any_type_wait_and_are_null_where_nobody_came() -> None:
    history = history_of(100, 101)
    columns = {
        "list": pl.concat_list("n", "n"),
        "word": col("page").cast(pl.Categorical),
        "cents": col("n").cast(pl.Decimal(10, 2)),
        "day": col("time").dt.date(),
        "both": pl.struct("page", "n"),
    }
    rows = run_two_streams(
        lambda one, other: (
            one.select("user", **columns)
            .key_by("user")
            .join(
                other.filter(col("n") > 5).select("user", **columns).key_by("user"), within="1s", how="left"
            )
        ),
        history,
        history,
        every_event_an_epoch(history),
    )
    assert [row["both"] for row in rows] == [{"page": "/0", "n": 0}, {"page": "/1", "n": 1}]
    assert all(row[f"{name}_right"] is None for row in rows for name in columns)


def test_a_condition_that_fails_names_its_line() -> None:
    history = history_of(100, 101)
    with pytest.raises(UserError) as failure:
        run_query(
            lambda events: events.key_by("user").join(
                events.key_by("user"), within="1s", where=col("page").cast(pl.Int64) > 1
            ),
            history,
        )
    assert failure.value.condition == "EXPRESSION_FAILED"
    assert "test_interval_join.py" in str(failure.value.where)
