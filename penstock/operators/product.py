"""Cartesian product over time: every pair of a left and a right row near each other in time that passes a predicate.

Rows of both sides are routed over a grid of buckets in which every pair meets once (StreamCloud, IV.A.b). The operator
emits one row per pair, with the later of the two times, in the epoch of the second row.
State: `left` and `right`, journals of the rows that a future row may pair with. A row is stored once for every bucket
of its side of the grid.

A new left row meets the stored and the new right rows; a new right row meets the stored left rows. So every pair is
found once, however epochs are cut. Both sides are sorted by time, so a row's partners are a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import (
    INPUT,
    ORDER,
    PARTITION,
    SEQUENCE,
    TIME,
    Inputs,
    Operator,
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints, SortedRows
from penstock.operators.join_columns import JoinCondition, gather_columns
from penstock.operators.product_pairs import PairFinder, ranges_within
from penstock.operators.routes import Grid, Route
from penstock.operators.strict import add_position
from penstock.state.buckets import HASH
from penstock.state.journal import Journal

_ENDLESS = 2**63 - 1
#: the least number of parts, by time, of a compacted journal
_PARTS = 2


class Ties(Enum):
    """What to do with a pair whose rows share their position, where each pair of different rows is wanted once."""

    DROPPED = 0
    KEPT = 1
    #: equal rows of one epoch meet each other both ways: one way is kept
    HALVED = 2


@dataclass(frozen=True)
class Product(Operator):
    """Pairs of which the right row is at most `before` earlier and `after` later than the left one.

    `left` and `right` are the columns of both, no name in both. With `distinct` the left row comes before the
    right one in the total order.
    """

    kind: ClassVar[str] = "interval-cross-join"
    state_version: ClassVar[int] = 1

    left: tuple[str, ...]
    right: tuple[str, ...]
    before: int
    after: int
    condition: JoinCondition | None = None
    distinct: bool = False

    keys = ()
    ports = 2

    @property
    def needs_position(self) -> bool:
        return self.distinct

    def route(self, port: int = 0) -> Route:
        return Grid(left=port == 0)

    def needs(self, port: int = 0) -> set[str]:
        return set(self.right if port else self.left)

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        # the position spreads the rows over the grid
        return add_position(frame).select(*ORDER, *(self.right if port else self.left))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        left, right = (self._new(frame, port) for port, frame in enumerate(inputs))
        lefts, rights = (state.journal(name, time=TIME, by_time=True) for name in ("left", "right"))
        found: list[pl.DataFrame] = []
        if left is not None:
            sides = [] if right is None else [(right, Ties.HALVED)]
            runs = rights.runs(progress.before - self.before, _ENDLESS)
            sides += [(SortedRows.of(run), Ties.DROPPED) for run in runs]
            found += self._join(left, sides, state)
        if right is not None:
            runs = lefts.runs(progress.before - self.after, _ENDLESS)
            found += self._join(right, [(SortedRows.of(run), Ties.KEPT) for run in runs], state, swapped=True)
        # a row stays while one still to come may be near enough to it
        _store(lefts, left, progress.after - self.after)
        _store(rights, right, progress.after - self.before)
        return {"": pl.concat(found) if found else None}

    def _new(self, frame: pl.DataFrame | None, port: int) -> SortedRows | None:
        """The new rows, with the columns to store; their position only if it matters."""
        if frame is None or not frame.height:
            return None
        place = [name for name in (PARTITION, SEQUENCE, INPUT) if self.distinct and name in frame.columns]
        return SortedRows.sorted(frame.select(HASH, TIME, *place, *(self.right if port else self.left)))

    def _join(
        self,
        outer: SortedRows,
        sides: list[tuple[SortedRows, Ties]],
        state: SliceState,
        *,
        swapped: bool = False,
    ) -> Iterator[pl.DataFrame]:
        """Join outer rows with the rows of several sides; `swapped` if the outer rows are the right ones."""
        before = 0 if self.distinct else self.before
        below, above = (self.after, before) if swapped else (before, self.after)
        matcher = None
        for inner, ties in sides:
            low, high = ranges_within(outer, inner, state.bucket_count, below, above)
            matcher = matcher or PairFinder(outer.rows, self.condition, inner.rows.schema)
            ones, others = matcher.find(inner.rows, low, high)
            left, right = (inner.rows, outer.rows) if swapped else (outer.rows, inner.rows)
            lefts, rights = (others, ones) if swapped else (ones, others)
            if self.distinct and len(lefts):
                lefts, rights = _earlier_first(left, right, lefts, rights, ties)
            if len(lefts):
                yield join_pairs(left, right, lefts, rights, self.left, self.right)

    def describe(self) -> str:
        span = describe_span(self.after if self.distinct else self.before, self.after)
        different = " of different rows" if self.distinct else ""
        return f"product{different} {span}{describe_condition(self.condition)}"


def describe_span(before: int, after: int) -> str:
    """A span of time, for `explain`."""
    if before == after:
        return f"within {spelled(after)}"
    return f"from {spelled(before)} before to {spelled(after)} after"


def describe_condition(condition: JoinCondition | None) -> str:
    """A condition, for `explain`."""
    return f" where {condition.text}" if condition else ""


def join_pairs(
    left: pl.DataFrame,
    right: pl.DataFrame,
    lefts: Ints,
    rights: Ints,
    left_names: tuple[str, ...],
    right_names: tuple[str, ...],
) -> pl.DataFrame:
    """The rows of pairs: the columns of both, and the later time."""
    later = np.maximum(left[TIME].to_numpy()[lefts], right[TIME].to_numpy()[rights])
    mine, theirs = gather_columns(left, left_names, lefts), gather_columns(right, right_names, rights)
    return pl.DataFrame([pl.Series(TIME, later), *mine, *theirs])


def _store(journal: Journal, new: SortedRows | None, floor: int) -> None:
    if new is not None:
        rows = new.rows.filter(pl.col(TIME) >= floor)
        if rows.height:
            journal.insert(rows)
    journal.empty(floor)
    journal.compact(floor, parts=_PARTS)


def _earlier_first(
    left: pl.DataFrame, right: pl.DataFrame, lefts: Ints, rights: Ints, ties: Ties
) -> tuple[Ints, Ints]:
    """The pairs whose left row comes first in the total order."""
    places = [name for name in (TIME, PARTITION, SEQUENCE, INPUT) if name in left.columns]
    equal, earlier = np.ones(len(lefts), dtype=bool), np.zeros(len(lefts), dtype=bool)
    mine, theirs = (
        pl.DataFrame(gather_columns(side, places, at)) for side, at in ((left, lefts), (right, rights))
    )
    for name in places:
        one, other = mine[name].to_numpy(), theirs[name].to_numpy()
        earlier |= equal & (one < other)
        equal &= one == other
    if ties is Ties.KEPT:
        earlier |= equal
    elif ties is Ties.HALVED and equal.any():
        rank = pl.DataFrame({"one": lefts[equal], "other": rights[equal]}).hstack(
            mine.filter(pl.Series(equal))
        )
        ahead = rank.select(
            pl.col("one").rank("dense").over(places) < pl.col("other").rank("dense").over(places)
        )
        earlier[np.flatnonzero(equal)] = ahead.to_series().to_numpy()
    return lefts[earlier], rights[earlier]
