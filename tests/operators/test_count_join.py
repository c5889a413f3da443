"""Joins over the last rows against two deques a key, for any history, cutting and number of slices."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    cuttings,
    histories,
    in_any_order,
    micros,
    modestly,
    run_query,
)
from tests.operators.two_streams import CONDITIONS, Pair, Where, row_of, run_two_streams

pytestmark = pytest.mark.slow


def in_turn(left: list[Event], right: list[Event], partitions: int, n: int, where: Where) -> list[Pair]:
    """One row after the other; partitions of the right stream stand after those of the left, `partitions` in all."""
    turns = [(one.time, one.partition, one.offset, 0, one) for one in left]
    turns += [(one.time, one.partition + partitions, one.offset, 1, one) for one in right]
    last: dict[tuple[int, str | None], deque[Event]] = defaultdict(lambda: deque(maxlen=n))
    pairs: list[Pair] = []
    for *_, side, event in sorted(turns, key=lambda turn: turn[:4]):
        if event.user is not None:
            for other in last[1 - side, event.user]:
                pair = (other, event) if side else (event, other)
                if where(*pair):
                    pairs.append(pair)
            last[side, event.user].append(event)
    return pairs


@modestly
@given(
    histories(most_events=16),
    histories(most_events=16),
    cuttings(),
    cuttings(),
    st.sampled_from([1, 2, 3, 9]),
    st.sampled_from(sorted(CONDITIONS)),
)
def test_pairs_are_those_of_one_row_after_the_other(
    left: History, right: History, cutting: Cutting, other_cutting: Cutting, n: int, condition: str
) -> None:
    expr, where = CONDITIONS[condition]
    rows = run_two_streams(
        lambda one, other: one.key_by("user").join(other.key_by("user"), events=n, where=expr),
        left,
        right,
        cutting,
        other_cutting,
    )
    expected = in_turn(left.on_time(), right.on_time(), len(left.partitions), n, where)
    assert in_any_order(rows) == in_any_order([row_of(pair) for pair in expected])


@modestly
@given(histories(), cuttings(), st.sampled_from([1, 2, 5]), st.sampled_from(sorted(CONDITIONS)))
def test_a_stream_meets_its_own_last_rows(history: History, cutting: Cutting, n: int, condition: str) -> None:
    """A row comes left, then right: as the right one it meets itself too."""
    expr, where = CONDITIONS[condition]
    rows = run_query(
        lambda events: events.key_by("user").join(events.key_by("user"), events=n, where=expr),
        history,
        cutting,
    )
    expected = in_turn(history.on_time(), history.on_time(), 0, n, where)
    assert in_any_order(micros(rows)) == in_any_order([row_of(pair) for pair in expected])


@modestly
@given(histories(), cuttings(), st.sampled_from([1, 2, 5]))
def test_distinct_pairs_are_those_with_the_rows_before(history: History, cutting: Cutting, n: int) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        users = events.key_by("user")
        return users.join(users, events=n, distinct_pairs=True)

    before: dict[str, list[Event]] = defaultdict(list)
    expected = []
    for event in history.on_time():
        if event.user is not None:
            expected += [row_of((other, event)) for other in before[event.user][-n:]]
            before[event.user].append(event)
    assert in_any_order(micros(run_query(query, history, cutting))) == in_any_order(expected)


def test_last_rows_are_remembered_over_many_epochs_with_keys_of_other_names() -> None:
    history = History((tuple(Event(0, i, (1_000 + i) * SECOND, "ada", "/a", i, None) for i in range(40)),))
    cutting = Cutting((frozenset(range(40)),), (1, 3, 2))

    def query(events: ps.Stream) -> ps.Stream:
        even = events.filter(col("n") % 2 == 0).select("user", "n")
        odd = events.filter(col("n") % 2 == 1).select(who=col("user"), m=col("n"))
        return even.key_by("user").join(odd.key_by("who"), events=2)

    rows = run_query(query, history, cutting)
    expected = [
        {"user": "ada", "n": n, "who": "ada", "m": m}
        for n in range(0, 40, 2)
        for m in range(1, 40, 2)
        if -4 < m - n < 4
    ]
    assert in_any_order(rows) == in_any_order(expected)
