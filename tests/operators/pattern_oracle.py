"""Patterns drawn at random, and their matches worked out by a list that is taken on one event after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from tests.operators.harness import SECOND, Event, History, Row

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

    def to_api(self) -> Any:
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


WITHIN = st.sampled_from([1, 250_000, SECOND, 3 * SECOND, 10 * SECOND, 60 * SECOND])


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
        self.emitted: list[tuple[int, Taken, bool]] = []

    def time_passes(self, now: int | None) -> None:
        for match in sorted(self.open, key=lambda m: m.due):
            if match in self.open and (now is None or match.due < now):
                self.open.remove(match)
                rest = self.steps[match.at :]
                if self.waits_at_end and not match.failed and all(step.absent for step in rest):
                    self.emitted.append((match.due, match.taken, True))
                    if self.skip:
                        self.open = []
                elif self.timeouts:
                    self.emitted.append((match.due, match.taken, False))

    def happens(self, event: Event) -> None:
        self.time_passes(event.time)
        whole = []
        for match in self.open:
            if not match.failed:
                self.fed(match, event)
                if match.at == len(self.steps):
                    whole.append(match)
        if whole and self.skip:
            self.emitted.append((event.time, whole[0].taken, True))
            self.open = []
            return
        for match in whole:
            self.emitted.append((event.time, match.taken, True))
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
    """(instant, row) for every row emitted."""
    keys: dict[Any, Oracle] = defaultdict(lambda: Oracle(steps, within, contiguous, skip, timeouts))
    for event in history.on_time():
        keys[event.user].happens(event)
    rows = []
    for user, one in keys.items():
        one.time_passes(None)
        for instant, taken, matched in one.emitted:
            row: Row = {"user": user}
            for step in steps:
                if not step.absent:
                    event = taken.get(step.name)
                    for name in ("time", "n", "page"):
                        row[f"{step.name}_{name}"] = None if event is None else getattr(event, name)
            rows.append((instant, row | ({"matched": matched} if timeouts else {})))
    return rows
