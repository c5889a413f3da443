"""Patterns against a list of matches taken on one event after the other, for any history, cutting and slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.operators import matching
from penstock.operators.contract import TIME
from penstock.operators.pattern import Pattern
from penstock.state.directory import StateDirectory
from penstock.testing.inline import run_inline
from penstock.words.errors import UserError
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    micros,
    modestly,
    told,
)
from tests.operators.test_collisions import EVENTS, driven

Taken = dict[str, Event]


@dataclass(frozen=True)
class Condition:
    """A condition twice: as an expression, and for one event."""

    expr: pl.Expr
    holds: Callable[[Event, Taken], bool]


@dataclass(frozen=True)
class Step:
    name: str
    condition: Condition
    absent: bool

    def said(self) -> Any:
        return ps.step(self.name, self.condition.expr, absent=self.absent)


PLAIN = [
    Condition(col("n") > 0, lambda e, _: e.n is not None and e.n > 0),
    Condition(col("n") <= 1, lambda e, _: e.n is not None and e.n <= 1),
    Condition(col("page") == "/b", lambda e, _: e.page == "/b"),
    Condition(col("page").is_null(), lambda e, _: e.page is None),
    Condition(ps.lit(True), lambda e, _: True),
]


def above(name: str) -> Condition:
    return Condition(
        col("n") > ps.prev(name, "n"),
        lambda e, taken: e.n is not None and (n := taken[name].n) is not None and e.n > n,
    )


def elsewhere(name: str) -> Condition:
    return Condition(
        (col("page") != ps.prev(name, "page")) & (col("time") > ps.prev(name, "time")),
        lambda e, taken: (
            e.page is not None
            and taken[name].page is not None
            and e.page != taken[name].page
            and e.time > taken[name].time
        ),
    )


@st.composite
def patterns(draw: st.DrawFn, *, absent_inside: bool = True, absent_last: bool = True) -> list[Step]:
    """Two to four steps, some of which look back, some of which must not come."""
    steps: list[Step] = []
    names = "abcd"[: draw(st.integers(2, 4))]
    for at, name in enumerate(names):
        earlier = [one.name for one in steps if not one.absent]
        choices = PLAIN + [make(one) for one in earlier for make in (above, elsewhere)] * 2
        last = at == len(names) - 1
        may_be_absent = at > 0 and (absent_last if last else absent_inside)
        steps.append(Step(name, draw(st.sampled_from(choices)), may_be_absent and draw(st.booleans())))
    return steps


@dataclass
class Match:
    start: int
    due: int
    taken: Taken
    #: the step that comes next
    at: int = 1
    failed: bool = field(default=False)


class Oracle:
    """One key's matches, one event after the other."""

    def __init__(
        self, steps: Sequence[Step], within: int, contiguous: bool, skip: bool, timeouts: bool
    ) -> None:
        self.steps, self.within, self.contiguous = steps, within, contiguous
        self.skip, self.timeouts = skip, timeouts
        self.waits_at_end = steps[-1].absent
        self.open: list[Match] = []
        #: (instant, events taken, whether it is a match)
        self.told: list[tuple[int, Taken, bool]] = []

    def time_passes(self, now: int | None) -> None:
        for match in sorted(self.open, key=lambda m: m.due):
            if match in self.open and (now is None or match.due < now):
                self.open.remove(match)
                rest = self.steps[match.at :]
                if self.waits_at_end and not match.failed and all(step.absent for step in rest):
                    self.told.append((match.due, match.taken, True))
                    if self.skip:
                        self.open = []
                elif self.timeouts:
                    self.told.append((match.due, match.taken, False))

    def happens(self, event: Event) -> None:
        self.time_passes(event.time)
        whole = []
        for match in self.open:
            if not match.failed:
                self.fed(match, event)
                if match.at == len(self.steps):
                    whole.append(match)
        if whole and self.skip:
            self.told.append((event.time, whole[0].taken, True))
            self.open = []
            return
        for match in whole:
            self.told.append((event.time, match.taken, True))
        self.open = [m for m in self.open if m not in whole and (self.timeouts or m.failed is not True)]
        if self.steps[0].condition.holds(event, {}):
            self.open.append(Match(event.offset, event.time + self.within, {self.steps[0].name: event}))

    def fed(self, match: Match, event: Event) -> None:
        rest = self.steps[match.at :]
        unwanted = []
        wanted = None
        for step in rest:
            if not step.absent:
                wanted = step
                break
            unwanted.append(step)
        if wanted is not None and wanted.condition.holds(event, match.taken):
            match.taken = {**match.taken, wanted.name: event}
            match.at = self.steps.index(wanted) + 1
        elif any(step.condition.holds(event, match.taken) for step in unwanted):
            match.failed = True
        elif self.contiguous:
            if wanted is not None:
                match.failed = True
            else:  # nothing can spoil it any more
                match.at = len(self.steps) + 1


def oracle(
    history: History, steps: Sequence[Step], within: int, contiguous: bool, skip: bool, timeouts: bool
) -> list[tuple[int, Row]]:
    """(instant, row) for every row told."""
    keys: dict[Any, Oracle] = defaultdict(lambda: Oracle(steps, within, contiguous, skip, timeouts))
    for event in history.on_time():
        keys[event.user].happens(event)
    rows = []
    for user, one in keys.items():
        one.time_passes(None)
        for instant, taken, matched in one.told:
            row: Row = {"user": user}
            for step in steps:
                if not step.absent:
                    event = taken.get(step.name)
                    for name in ("time", "n", "page"):
                        row[f"{step.name}_{name}"] = None if event is None else getattr(event, name)
            rows.append((instant, row | ({"matched": matched} if timeouts else {})))
    return rows


def said(
    events: ps.Stream, steps: Sequence[Step], within: int, contiguous: bool, skip: bool, timeouts: bool
) -> ps.Stream:
    return events.key_by("user").pattern(
        *(step.said() for step in steps),
        within=within / SECOND,
        matching="contiguous" if contiguous else "next",
        after="skip" if skip else "overlap",
        timeouts=timeouts,
        columns=["n", "page"],
    )


WITHIN = st.sampled_from([1, 250_000, SECOND, 3 * SECOND, 10 * SECOND, 60 * SECOND])


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
    straight = told(lambda events: said(events, *how), history)
    expected = [row for _, row in oracle(history, *how)]
    assert in_any_order(micros(straight)) == in_any_order(expected)
    assert told(lambda events: said(events, *how), history, cutting) == straight


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
    rows = told(lambda events: said(events, *how).key_by("user").window("2s").count("n"), history, cutting)
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
    before = matching._PAIRS
    try:
        matching._PAIRS = 3
        agree(history, cutting, steps, within, False, skip)
    finally:
        matching._PAIRS = before


def events_of(*said: tuple[float, str, str, float, float]) -> History:
    """(second, card, kind, latitude, longitude)"""
    return History(
        (tuple(Event(0, i, round(t * SECOND), u, k, int(a), b) for i, (t, u, k, a, b) in enumerate(said)),)
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

    assert micros(told(query, history)) == [{"user": "r2", "start_time": 2 * SECOND}]


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

    assert told(query, history) == [
        {"user": "c1", "first_x": 0.0, "second_x": 9.0},
        {"user": "c1", "first_x": 4.0, "second_x": 9.0},
    ]


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
    runs = StateDirectory(tmp_path).latest().collections["1-pattern"]["open"]
    assert sum(run.rows for run in runs) < 60


MISTAKES: dict[str, tuple[str, str, Callable[[ps.Stream], object]]] = {
    "one step": ("BAD_PATTERN", "two steps", lambda s: s.key_by("user").pattern(A, within=1)),
    "a name twice": ("BAD_PATTERN", "same name", lambda s: s.key_by("user").pattern(A, A, within=1)),
    "a name that is none": (
        "BAD_PATTERN",
        "plain word",
        lambda s: s.key_by("user").pattern(A, ps.step("b.c", col("n") > 0), within=1),
    ),
    "nothing to begin with": (
        "BAD_PATTERN",
        "begin",
        lambda s: s.key_by("user").pattern(ps.step("z", col("n") > 0, absent=True), A, within=1),
    ),
    "no time": ("BAD_WINDOW", "time", lambda s: s.key_by("user").pattern(A, B, within=0)),
    "timeouts of what is absent": (
        "BAD_PATTERN",
        "timeouts",
        lambda s: s.key_by("user").pattern(A, GONE, within=1, timeouts=True),
    ),
    "nothing between neighbours": (
        "BAD_PATTERN",
        "between",
        lambda s: s.key_by("user").pattern(A, GONE, B, within=1, matching="contiguous"),
    ),
    "a strategy nobody knows": (
        "BAD_PATTERN",
        "matching",
        lambda s: s.key_by("user").pattern(A, B, within=1, matching="any"),  # type: ignore[arg-type]
    ),
    "a condition over no column": (
        "UNKNOWN_COLUMN",
        "'page'",
        lambda s: s.key_by("user").pattern(A, ps.step("b", col("pag") == "x"), within=1),
    ),
    "a condition over no column of an earlier step": (
        "UNKNOWN_COLUMN",
        "'a.page'",
        lambda s: s.key_by("user").pattern(A, ps.step("b", ps.prev("a", "pag") == "x"), within=1),
    ),
    "a look ahead": (
        "BAD_PATTERN",
        "'b.n'",
        lambda s: s.key_by("user").pattern(ps.step("a", ps.prev("b", "n") > 1), B, within=1),
    ),
    "a look at what is absent": (
        "BAD_PATTERN",
        "'gone.n'",
        lambda s: s.key_by("user").pattern(A, GONE, ps.step("b", ps.prev("gone", "n") > 1), within=1),
    ),
    "a condition that is none": (
        "TYPE_MISMATCH",
        "condition",
        lambda s: s.key_by("user").pattern(A, ps.step("b", col("n")), within=1),
    ),
    "a column called like a step's": (
        "NAME_TAKEN",
        "'a.n'",
        lambda s: (
            s.map(**{"a.n": col("n")})
            .key_by("user")
            .pattern(A, ps.step("b", ps.prev("a", "n") > 1), within=1)
        ),
    ),
    "two columns of one name": (
        "NAME_TAKEN",
        "'a_b_n'",
        lambda s: s.map(b_n=col("n")).key_by("user").pattern(A, ps.step("a_b", col("n") > 0), within=1),
    ),
    "columns that are none": (
        "UNKNOWN_COLUMN",
        "'page'",
        lambda s: s.key_by("user").pattern(A, B, within=1, columns=["pages"]),
    ),
}
A, B = ps.step("a", col("n") > 0), ps.step("b", col("n") > 0)
GONE = ps.step("gone", col("n") > 0, absent=True)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as told_error:
        make(events_stream(History(((),))))
    assert told_error.value.condition == condition
    assert named in str(told_error.value)
    assert "test_pattern.py" in str(told_error.value.where)


def test_what_was_not_seen_in_time_ends_the_matches_that_began_meanwhile() -> None:
    """Also where the key has no event in the epoch in which that is noticed."""
    said = [(0, "a", 1), (2, "a", 1), (6, "b", 0), (7, "b", 0), (30, "b", 0)]
    history = History((tuple(Event(0, i, t * SECOND, u, None, n, None) for i, (t, u, n) in enumerate(said)),))
    started = Condition(col("n") > 0, lambda e, _: e.n is not None and e.n > 0)
    steps = [Step("a", started, False), Step("b", Condition(col("n") > 5, lambda e, _: False), True)]
    for ends in (frozenset({1, 2, 3, 4}), frozenset({2, 4}), frozenset({3})):
        agree(history, Cutting((ends,), (1, 2)), steps, 3 * SECOND, False, True)
    assert len(oracle(history, steps, 3 * SECOND, False, True, False)) == 1
