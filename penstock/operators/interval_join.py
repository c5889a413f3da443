"""Joins of two inputs within time: pairs of a left and a right row with equal keys, not too far apart.

Receives the rows of both sides; hands a row for every pair as soon as both are there and, for outer joins, a
row for everyone who is proven to stay alone.
State: `left` and `right`, journals of the rows that somebody still to come may meet. A join of a stream with
itself has one port and one journal.

A pair (l, r) is one when -before <= time(r) - time(l) <= after, the keys are equal (a null equals nothing) and
the condition holds. It happens at the later of the two times. A left row stays alone if the watermark passes its
time plus `after` (a right one: plus `before`) and it has no pair; that happens at this sum.

Every pair is found once: among this epoch's rows, or between one of them and what earlier epochs left. The runs
of the journals are searched, never scanned, so the cost follows what comes and what is found, not what waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import (
    INPUT,
    PARTITION,
    SEQUENCE,
    TIME,
    Inputs,
    Operator,
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints, SortedRows, find_candidates
from penstock.operators.join_columns import (
    JoinColumns,
    JoinCondition,
    Mask,
    describe_keys,
    equal_keys,
    gather_columns,
)
from penstock.operators.routing import ByKey, Route
from penstock.operators.strict import add_position, take_due
from penstock.state.collection import Journal

#: of a row of an outer side: whether it had no partner when it came
_ALONE = "_alone"

_NAMES = ("left", "right")
#: into how many parts of its time what waits is cut, at least
_PARTS = 8


@dataclass(frozen=True)
class IntervalJoin(Operator):
    """Pairs within time; `how` is inner, left, right or full.

    `ports` is 1 for an inner join of a stream with itself by the same keys: both sides are then the same rows.
    `distinct`: of such a join every two different rows once, the earlier one (in total order) left.
    """

    kind: ClassVar[str] = "interval-join"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    columns: JoinColumns
    before: int
    after: int
    condition: JoinCondition | None = None
    how: str = "inner"
    strict: bool = False
    distinct: bool = False
    ports: int = 2

    @property
    def order(self) -> str:
        return "strict" if self.strict else "epoch"

    @property
    def needs_position(self) -> bool:
        return self.distinct

    @property
    def partitioning(self) -> tuple[str, ...] | None:
        # right rows that stay alone bring their key along only where it has the left key's name
        given = self.how in ("inner", "left") or self.columns.shared == self.keys
        return self.keys if given else None

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def route(self, port: int = 0) -> Route:
        return ByKey(self.right_keys if port else self.keys)

    def needs(self, port: int = 0) -> set[str]:
        left = {*self.keys, *(name for name, _ in self.columns.left)}
        right = {*self.right_keys, *(name for name, _, _ in self.columns.right)}
        return left | right if self.ports == 1 else right if port else left

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        if not self._outer(port):
            frame = frame.drop_nulls(list(self._keys(port)))
        place: tuple[str, ...] = ()
        if self.distinct:
            frame, place = add_position(frame), (PARTITION, SEQUENCE)
        return frame.select(TIME, *place, *sorted(self.needs(port)))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        left = self._side(0, inputs[0], state, progress)
        right = left if self.ports == 1 else self._side(1, inputs[1], state, progress)
        made = [rows for meeting in self._meetings(left, right) for rows in self._pairs(meeting)]
        if self._outer(0):
            made += self._lonely(left, right, progress)
        if self._outer(1):
            made += self._lonely(right, left, progress)
        self._put_by(left, progress)
        if right is not left:
            self._put_by(right, progress)
        return {"": pl.concat(made) if made else None}

    # -- pairs -----------------------------------------------------------------------------------

    def _meetings(self, left: _Side, right: _Side) -> Iterator[_Meeting]:
        """Whoever must be asked so that every new pair is found once."""
        if left.new is not None and right.new is not None:
            yield _Meeting(left.new, right.new, left.matched, right.matched)
        if left.new is not None:
            for run in right.waiting(left.new, self.before, self.after):
                yield _Meeting(left.new, run, left.matched, None)
        if right.new is not None:
            for run in left.waiting(right.new, self.after, self.before):
                yield _Meeting(run, right.new, None, right.matched)

    def _pairs(self, meeting: _Meeting) -> Iterator[pl.DataFrame]:
        left, right = meeting.left, meeting.right
        for at_left, at_right in self._partners(meeting):
            if not len(at_left):
                continue
            if meeting.left_matched is not None:
                meeting.left_matched[at_left] = True
            if meeting.right_matched is not None:
                meeting.right_matched[at_right] = True
            when = np.maximum(left.times[at_left], right.times[at_right])
            made = self.columns.join_rows(left.rows, at_left, right.rows, at_right)
            yield made.insert_column(0, pl.Series(TIME, when))

    def _partners(self, meeting: _Meeting) -> Iterator[tuple[Ints, Ints]]:
        """The row numbers (left, right) of all pairs of a meeting."""
        left, right = meeting.left, meeting.right
        if meeting.left_matched is not None:
            found = find_candidates(left, right, self.before, self.after)
        else:
            found = ((mine, theirs) for theirs, mine in find_candidates(right, left, self.after, self.before))
        for at_left, at_right in found:
            met = equal_keys(
                gather_columns(left.rows, self.keys, at_left),
                gather_columns(right.rows, self.right_keys, at_right),
            )
            if self.distinct:
                met &= _earlier(meeting, at_left, at_right)
            if not met.all():
                at_left, at_right = at_left[met], at_right[met]
            if self.condition is not None and len(at_left):
                met = self.condition.evaluate(self.columns, left.rows, at_left, right.rows, at_right)
                at_left, at_right = at_left[met], at_right[met]
            yield at_left, at_right

    # -- rows without a partner ------------------------------------------------------------------

    def _lonely(self, side: _Side, other: _Side, progress: Progress) -> Iterator[pl.DataFrame]:
        """The rows of an outer side of which it is proven now that they have no partner."""
        patience = self._patience(side.port)
        columns = self.columns.unmatched_right() if side.port else self.columns.unmatched_left()
        proven = (pl.col(TIME) + patience).alias(TIME)
        for rows in (side.new_alone(), side.keyless, self._still_alone(side, other, progress)):
            if rows is not None:
                yield rows.filter(pl.col(TIME) < progress.after - patience).select(proven, *columns)

    def _still_alone(self, side: _Side, other: _Side, progress: Progress) -> pl.DataFrame | None:
        """Of the rows due that had no partner when they came, those that have found none since."""
        patience = self._patience(side.port)
        rows = side.journal.rows(progress.before - patience, progress.after - patience)
        if rows is None or not rows.height:
            return None
        rows = rows.filter(pl.col(_ALONE))
        whole = pl.all_horizontal(pl.col(self._keys(side.port)).is_not_null())
        keyless, asking = rows.filter(~whole), SortedRows.sorted(rows.filter(whole))
        matched = np.zeros(asking.rows.height, dtype=bool)
        back, ahead = (self.after, self.before) if side.port else (self.before, self.after)
        for asked in (*other.waiting(asking, back, ahead), *([other.new] if other.new else [])):
            meeting = (
                _Meeting(asked, asking, None, matched)
                if side.port
                else _Meeting(asking, asked, matched, None)
            )
            for at_left, at_right in self._partners(meeting):
                matched[at_right if side.port else at_left] = True
        return pl.concat([keyless, asking.rows.filter(pl.Series(~matched))])

    # -- what came and what waits ----------------------------------------------------------------

    def _side(self, port: int, frame: pl.DataFrame | None, state: SliceState, progress: Progress) -> _Side:
        if self.strict:
            frame = take_due(frame, state.journal(f"waiting_{_NAMES[port]}", time=TIME), progress)
        journal = state.journal(_NAMES[port], time=TIME, by_time=True)
        keyless = None
        if frame is not None and self._outer(port):
            whole = pl.all_horizontal(pl.col(self._keys(port)).is_not_null())
            frame, keyless = frame.filter(whole), frame.filter(~whole)
        new = None if frame is None or not frame.height else SortedRows.sorted(frame)
        matched = np.zeros(0 if new is None else new.rows.height, dtype=bool)
        return _Side(port, new, matched, keyless, journal)

    def _put_by(self, side: _Side, progress: Progress) -> None:
        """Keep the rows that somebody still to come may meet, and forget those that nobody can meet any more."""
        floor = progress.after - self._patience(side.port)
        if self.ports == 1:
            floor = progress.after - max(self.before, self.after)
        elif self._outer(1 - side.port):
            # the other side's rows ask once more, at the end of their own patience
            floor -= self._patience(1 - side.port)
        rows = side.new_rows(self._outer(side.port))
        if rows is not None:
            rows = rows.filter(pl.col(TIME) >= floor)
            if rows.height:
                side.journal.insert(rows)
        side.journal.empty(floor)
        side.journal.compact(floor, parts=_PARTS)

    def _patience(self, port: int) -> int:
        """How long after a row its partners may come."""
        return self.before if port else self.after

    def _keys(self, port: int) -> tuple[str, ...]:
        return self.right_keys if port else self.keys

    def _outer(self, port: int) -> bool:
        return self.how == "full" or self.how == _NAMES[port]

    def describe(self) -> str:
        what = f"{self.how} join" + (" with itself" if self.ports == 1 else "")
        reach = f"from {spelled(self.before)} before to {spelled(self.after)} after"
        if self.before == self.after:
            reach = f"within {spelled(self.after)}"
        where = f" where {self.condition.text}" if self.condition else ""
        return f"{what} on {describe_keys(self.keys, self.right_keys)} {reach}{where}"


@dataclass
class _Side:
    """One side in one epoch: what came with a key, which of it has found partners, what came without, what waits."""

    port: int
    new: SortedRows | None
    matched: Mask
    keyless: pl.DataFrame | None
    journal: Journal

    def waiting(self, asking: SortedRows, back: int, ahead: int) -> Iterator[SortedRows]:
        """What earlier epochs left, as far as it can matter to those who ask."""
        if len(asking.times):
            low, high = int(asking.times.min()) - back, int(asking.times.max()) + ahead
            yield from (SortedRows.of(run) for run in self.journal.runs(low, high + 1))

    def new_alone(self) -> pl.DataFrame | None:
        return None if self.new is None else self.new.rows.filter(pl.Series(~self.matched))

    def new_rows(self, outer: bool) -> pl.DataFrame | None:
        """What came, as it is kept."""
        if not outer:
            return None if self.new is None else self.new.rows
        kept = []
        if self.new is not None:
            kept.append(self.new.rows.with_columns(pl.Series(_ALONE, ~self.matched)))
        if self.keyless is not None and self.keyless.height:
            kept.append(self.keyless.with_columns(pl.lit(True).alias(_ALONE)))
        return pl.concat(kept) if kept else None


@dataclass(frozen=True)
class _Meeting:
    """Rows of both sides that may be pairs. Rows of this epoch have marks for those who find partners."""

    left: SortedRows
    right: SortedRows
    left_matched: Mask | None
    right_matched: Mask | None


def _earlier(meeting: _Meeting, at_left: Ints, at_right: Ints) -> Mask:
    """For each pair whether its left row stands before its right one in total order.

    Equal answers of an operator share a place: of two such either may be the left one, but only one.
    """
    left, right = meeting.left, meeting.right
    before: Mask = left.times[at_left] < right.times[at_right]
    even = np.flatnonzero(left.times[at_left] == right.times[at_right])
    if not len(even):
        return before
    at_left, at_right = at_left[even], at_right[even]
    decided = np.zeros(len(even), dtype=bool)
    for name in (PARTITION, SEQUENCE, INPUT):
        if name in left.rows.columns:
            mine, theirs = left.rows[name].to_numpy()[at_left], right.rows[name].to_numpy()[at_right]
            before[even] |= ~decided & (mine < theirs)
            decided |= mine != theirs
    if meeting.left_matched is None:
        before[even] |= ~decided
    elif meeting.right_matched is not None:
        before[even] |= ~decided & (at_left < at_right)
    return before
