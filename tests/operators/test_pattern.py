"""Patterns against a list of matches taken on one event after the other, for any history, cutting and slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.operators import pattern_matching
from penstock.operators.contract import TIME
from penstock.operators.pattern import Pattern
from penstock.state.directory import StateDirectory
from penstock.testing.inline import run_inline
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    micros,
    modestly,
    run_query,
)
from tests.operators.pattern_oracle import WITHIN, Condition, Step, oracle, patterns
from tests.operators.test_collisions import EVENTS, driven

pytestmark = pytest.mark.slow


def match_pattern(
    events: ps.Stream, steps: Sequence[Step], within: int, contiguous: bool, skip: bool, timeouts: bool
) -> ps.Stream:
    return events.key_by("user").pattern(
        *(step.to_api() for step in steps),
        within=within / SECOND,
        matching="contiguous" if contiguous else "next",
        after="skip" if skip else "overlap",
        timeouts=timeouts,
        columns=["n", "page"],
    )


def agree(
    history: History,
    cutting: Cutting,
    steps: Sequence[Step],
    within: int,
    contiguous: bool,
    skip: bool,
    timeouts: bool = False,
) -> None:
    how = (steps, within, contiguous, skip, timeouts)
    straight = run_query(lambda events: match_pattern(events, *how), history)
    expected = [row for _, row in oracle(history, *how)]
    assert in_any_order(micros(straight)) == in_any_order(expected)
    assert run_query(lambda events: match_pattern(events, *how), history, cutting) == straight


@modestly
@given(histories(), cuttings(), patterns(), WITHIN, st.booleans())
def test_the_first_event_that_fits_is_taken(
    history: History, cutting: Cutting, steps: list[Step], within: int, skip: bool
) -> None:
    agree(history, cutting, steps, within, False, skip)


@modestly
@given(histories(), cuttings(), patterns(absent_inside=False), WITHIN, st.booleans())
def test_contiguous_events_follow_one_another_at_once(
    history: History, cutting: Cutting, steps: list[Step], within: int, skip: bool
) -> None:
    agree(history, cutting, steps, within, True, skip)


@modestly
@given(
    histories(),
    cuttings(),
    st.one_of(
        st.tuples(patterns(absent_last=False), st.just(False)),
        st.tuples(patterns(absent_last=False, absent_inside=False), st.just(True)),
    ),
    WITHIN,
    st.booleans(),
)
def test_every_start_is_told_if_asked_for(
    history: History, cutting: Cutting, pattern: tuple[list[Step], bool], within: int, skip: bool
) -> None:
    steps, contiguous = pattern
    agree(history, cutting, steps, within, contiguous, skip, timeouts=True)


@modestly
@given(histories(), cuttings(), patterns(absent_inside=False), WITHIN, st.booleans())
def test_a_match_happens_when_its_last_event_does_or_its_time_is_over(
    history: History, cutting: Cutting, steps: list[Step], within: int, skip: bool
) -> None:
    how = (steps, within, False, skip, False)
    rows = run_query(
        lambda events: match_pattern(events, *how).key_by("user").window("2s").count("n"), history, cutting
    )
    counts = Counter((at // (2 * SECOND), row["user"]) for at, row in oracle(history, *how))
    expected = [
        {"window_start": pane * 2 * SECOND, "window_end": (pane + 1) * 2 * SECOND, "user": user, "n": n}
        for (pane, user), n in counts.items()
    ]
    assert in_any_order(micros(rows)) == in_any_order(expected)


@modestly
@given(histories(), cuttings(), patterns(), WITHIN, st.booleans())
def test_a_few_pairs_at_a_time_are_as_good_as_many(
    history: History, cutting: Cutting, steps: list[Step], within: int, skip: bool
) -> None:
    before = pattern_matching._PAIRS
    try:
        pattern_matching._PAIRS = 3
        agree(history, cutting, steps, within, False, skip)
    finally:
        pattern_matching._PAIRS = before


def events_of(*events: tuple[float, str, str, float, float]) -> History:
    """(second, card, kind, latitude, longitude)"""
    return History(
        (tuple(Event(0, i, round(t * SECOND), u, k, int(a), b) for i, (t, u, k, a, b) in enumerate(events)),)
    )


def test_a_request_that_is_not_answered_in_time_is_told() -> None:
    history = events_of(
        (1, "r1", "start", 0, 0),
        (2, "r2", "start", 0, 0),
        (3, "r1", "end", 0, 0),
        (4.5, "r2", "end", 0, 0),
        (5, "r3", "start", 0, 0),
        (7, "r3", "end", 0, 0),
    )

    def query(events: ps.Stream) -> ps.Stream:
        return events.key_by("user").pattern(
            ps.step("start", col("page") == "start"),
            ps.step("end", col("page") == "end", absent=True),
            within="2s",
            columns=[],
        )

    assert micros(run_query(query, history)) == [{"user": "r2", "start_time": 2 * SECOND}]


def test_a_card_that_is_used_at_two_places_too_far_apart_is_told() -> None:
    history = events_of(
        (0, "c1", "", 0, 0), (60, "c1", "", 3, 4), (90, "c1", "", 0, 9), (100, "c2", "", 90, 9)
    )

    def query(events: ps.Stream) -> ps.Stream:
        moved = (col("n") - ps.prev("first", "n")) ** 2 + (col("x") - ps.prev("first", "x")) ** 2
        return (
            events.key_by("user")
            .pattern(
                ps.step("first", ps.lit(True)),
                ps.step(
                    "second",
                    moved.sqrt() / (col("time") - ps.prev("first", "time")).dt.total_seconds() > 0.09,
                ),
                within="10m",
                columns=["x"],
            )
            .select("user", "first_x", "second_x")
        )

    assert run_query(query, history) == [
        {"user": "c1", "first_x": 0.0, "second_x": 9.0},
        {"user": "c1", "first_x": 4.0, "second_x": 9.0},
    ]


def test_what_was_not_seen_in_time_ends_the_matches_that_began_meanwhile() -> None:
    """Also where the key has no event in the epoch in which that is noticed."""
    events = [(0, "a", 1), (2, "a", 1), (6, "b", 0), (7, "b", 0), (30, "b", 0)]
    history = History(
        (tuple(Event(0, i, t * SECOND, u, None, n, None) for i, (t, u, n) in enumerate(events)),)
    )
    started = Condition(col("n") > 0, lambda e, _: e.n is not None and e.n > 0)
    steps = [Step("a", started, False), Step("b", Condition(col("n") > 5, lambda e, _: False), True)]
    for ends in (frozenset({1, 2, 3, 4}), frozenset({2, 4}), frozenset({3})):
        agree(history, Cutting((ends,), (1, 2)), steps, 3 * SECOND, False, True)
    assert len(oracle(history, steps, 3 * SECOND, False, True, False)) == 1


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_keys_of_one_hash_are_kept_apart(cut: int, tmp_path: Path) -> None:
    steps = (ps.step("a", col("n") % 2 == 0), ps.step("b", col("n") % 3 > 0))
    rows = driven(Pattern(("user",), steps, 9, ("n",)), tmp_path, cut)
    expected = []
    for start, user, n in EVENTS:
        after = [at for at, who, m in EVENTS if who == user and start < at <= start + 9 and m % 3 > 0]
        if n % 2 == 0 and after:
            expected.append((after[0], user, n))
    assert sorted([(row[TIME], row["user"], row["a_n"]) for row in rows], key=str) == sorted(
        expected, key=str
    )


def test_what_came_to_nothing_is_forgotten(tmp_path: Path) -> None:
    history = History((tuple(Event(0, i, i * SECOND, f"u{i % 7}", None, i, None) for i in range(200)),))
    stream = events_stream(history, Cutting((frozenset(range(200)),), (1,)))
    found = stream.key_by("user").pattern(
        ps.step("a", ps.lit(True)), ps.step("b", col("n") < ps.prev("a", "n")), within="15s"
    )
    run_inline(ps.app("p", ps.output("out", found)), tmp_path, slices=1, buckets=1, epochs=190)
    runs = StateDirectory(tmp_path).manifests.latest().collections["1-pattern"]["open"]
    assert sum(run.rows for run in runs) < 60
