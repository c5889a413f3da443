"""Join two inputs within time: pairs of a left and a right row with equal keys whose times are near enough.

A pair (l, r) matches when -before <= time(r) - time(l) <= after, the keys are equal (a null equals nothing) and the
condition is true. Its row is emitted as soon as both rows are there; its time is the later of the two. An outer join
also emits rows without a match. A left row has none if the watermark passes its time plus `after` (a right row: plus
`before`) and it has no pair; the time of the result is this sum.

State: `left` and `right`, journals of the rows that a later row may still match. A join of a stream with itself has one
port and one journal.

Every pair is found once: among the rows of this epoch, or between one of them and what earlier epochs left. The runs of
the journals are searched, never scanned, so the cost depends on what arrives and what matches, not on what is stored.
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
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints, SortedRows, find_candidates
from penstock.operators.join_columns import (
    JoinCondition,
    KeyedJoin,
    Mask,
    describe_keys,
    equal_keys,
    gather_columns,
)
from penstock.operators.strict import add_position, take_due
from penstock.state.journal import Journal

#: of a row of an outer side: whether it had no match in the epoch in which it arrived
_UNMATCHED = "_alone"

_NAMES = ("left", "right")
#: into how many parts of its time the journal of a side is cut, at least
_PARTS = 8


@dataclass(frozen=True)
class IntervalJoin(KeyedJoin):
    """A join within time; `how` is inner, left, right or full.

    `ports` is 1 for an inner join of a stream with itself by the same keys: both sides are then the same rows.
    `distinct`: such a join emits every pair of different rows once, with the earlier one (in total order) as left.
    """

    kind: ClassVar[str] = "interval-join"
    state_version: ClassVar[int] = 1

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
        # unmatched right rows have the left key only where both keys have the same name
        has_keys = self.how in ("inner", "left") or self.columns.shared == self.keys
        return self.keys if has_keys else None

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        if not self._outer(port):
            frame = frame.drop_nulls(list(self.keys_of(port)))
        position: tuple[str, ...] = ()
        if self.distinct:
            frame, position = add_position(frame), (PARTITION, SEQUENCE)
        return frame.select(TIME, *position, *sorted(self.needs(port)))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        left = self._side(0, inputs[0], state, progress)
        right = left if self.ports == 1 else self._side(1, inputs[1], state, progress)
        results = [rows for pairing in self._pairings(left, right) for rows in self._join_pairs(pairing)]
        if self._outer(0):
            results += self._unmatched_results(left, right, progress)
        if self._outer(1):
            results += self._unmatched_results(right, left, progress)
        self._store(left, progress)
        if right is not left:
            self._store(right, progress)
        return {"": pl.concat(results) if results else None}

    # -- pairs -----------------------------------------------------------------------------------

    def _pairings(self, left: _Side, right: _Side) -> Iterator[_Pairing]:
        """The rows to compare so that every new pair is found once."""
        if left.new is not None and right.new is not None:
            yield _Pairing(left.new, right.new, left.matched, right.matched)
        if left.new is not None:
            for run in right.stored(left.new, self.before, self.after):
                yield _Pairing(left.new, run, left.matched, None)
        if right.new is not None:
            for run in left.stored(right.new, self.after, self.before):
                yield _Pairing(run, right.new, None, right.matched)

    def _join_pairs(self, pairing: _Pairing) -> Iterator[pl.DataFrame]:
        left, right = pairing.left, pairing.right
        for at_left, at_right in self._find_pairs(pairing):
            if not len(at_left):
                continue
            if pairing.left_matched is not None:
                pairing.left_matched[at_left] = True
            if pairing.right_matched is not None:
                pairing.right_matched[at_right] = True
            time = np.maximum(left.times[at_left], right.times[at_right])
            rows = self.columns.join_rows(left.rows, at_left, right.rows, at_right)
            yield rows.insert_column(0, pl.Series(TIME, time))

    def _find_pairs(self, pairing: _Pairing) -> Iterator[tuple[Ints, Ints]]:
        """The row numbers (left, right) of all pairs of a pairing."""
        left, right = pairing.left, pairing.right
        if pairing.left_matched is not None:
            found = find_candidates(left, right, self.before, self.after)
        else:
            swapped = find_candidates(right, left, self.after, self.before)
            found = ((at_left, at_right) for at_right, at_left in swapped)
        for at_left, at_right in found:
            matches = equal_keys(
                gather_columns(left.rows, self.keys, at_left),
                gather_columns(right.rows, self.right_keys, at_right),
            )
            if self.distinct:
                matches &= _left_is_earlier(pairing, at_left, at_right)
            if not matches.all():
                at_left, at_right = at_left[matches], at_right[matches]
            if self.condition is not None and len(at_left):
                matches = self.condition.evaluate(self.columns, left.rows, at_left, right.rows, at_right)
                at_left, at_right = at_left[matches], at_right[matches]
            yield at_left, at_right

    # -- rows without a match --------------------------------------------------------------------

    def _unmatched_results(self, side: _Side, other: _Side, progress: Progress) -> Iterator[pl.DataFrame]:
        """The rows of an outer side that can have no match any more, as of this epoch."""
        reach = self._reach(side.port)
        columns = self.columns.unmatched_right() if side.port else self.columns.unmatched_left()
        time = (pl.col(TIME) + reach).alias(TIME)
        for rows in (side.new_unmatched(), side.keyless, self._still_unmatched(side, other, progress)):
            if rows is not None:
                yield rows.filter(pl.col(TIME) < progress.after - reach).select(time, *columns)

    def _still_unmatched(self, side: _Side, other: _Side, progress: Progress) -> pl.DataFrame | None:
        """The stored rows due now that had no match when they arrived and have none since."""
        reach = self._reach(side.port)
        rows = side.journal.rows(progress.before - reach, progress.after - reach)
        if rows is None or not rows.height:
            return None
        rows = rows.filter(pl.col(_UNMATCHED))
        has_key = pl.all_horizontal(pl.col(self.keys_of(side.port)).is_not_null())
        keyless, probe = rows.filter(~has_key), SortedRows.sorted(rows.filter(has_key))
        matched = np.zeros(probe.rows.height, dtype=bool)
        back, ahead = (self.after, self.before) if side.port else (self.before, self.after)
        for build in (*other.stored(probe, back, ahead), *([other.new] if other.new else [])):
            if side.port:
                pairing = _Pairing(build, probe, None, matched)
            else:
                pairing = _Pairing(probe, build, matched, None)
            for at_left, at_right in self._find_pairs(pairing):
                matched[at_right if side.port else at_left] = True
        return pl.concat([keyless, probe.rows.filter(pl.Series(~matched))])

    # -- new and stored rows ---------------------------------------------------------------------

    def _side(self, port: int, frame: pl.DataFrame | None, state: SliceState, progress: Progress) -> _Side:
        if self.strict:
            frame = take_due(frame, state.journal(f"waiting_{_NAMES[port]}", time=TIME), progress)
        journal = state.journal(_NAMES[port], time=TIME, by_time=True)
        keyless = None
        if frame is not None and self._outer(port):
            has_key = pl.all_horizontal(pl.col(self.keys_of(port)).is_not_null())
            frame, keyless = frame.filter(has_key), frame.filter(~has_key)
        new = None if frame is None or not frame.height else SortedRows.sorted(frame)
        matched = np.zeros(0 if new is None else new.rows.height, dtype=bool)
        return _Side(port, new, matched, keyless, journal)

    def _store(self, side: _Side, progress: Progress) -> None:
        """Store the new rows that a later row may match, and drop stored rows that none can match any more."""
        floor = progress.after - self._reach(side.port)
        if self.ports == 1:
            floor = progress.after - max(self.before, self.after)
        elif self._outer(1 - side.port):
            # unmatched rows of the other side are compared once more when they are due
            floor -= self._reach(1 - side.port)
        rows = side.rows_to_store(self._outer(side.port))
        if rows is not None:
            rows = rows.filter(pl.col(TIME) >= floor)
            if rows.height:
                side.journal.insert(rows)
        side.journal.empty(floor)
        side.journal.compact(floor, parts=_PARTS)

    def _reach(self, port: int) -> int:
        """How long after a row of this side its matches may come."""
        return self.before if port else self.after

    def _outer(self, port: int) -> bool:
        return self.how == "full" or self.how == _NAMES[port]

    def describe(self) -> str:
        what = f"{self.how} join" + (" with itself" if self.ports == 1 else "")
        span = f"from {spelled(self.before)} before to {spelled(self.after)} after"
        if self.before == self.after:
            span = f"within {spelled(self.after)}"
        where = f" where {self.condition.text}" if self.condition else ""
        return f"{what} on {describe_keys(self.keys, self.right_keys)} {span}{where}"


@dataclass
class _Side:
    """One side in one epoch: new rows with a key and whether each has a match, new rows without, stored rows."""

    port: int
    new: SortedRows | None
    matched: Mask
    keyless: pl.DataFrame | None
    journal: Journal

    def stored(self, probe: SortedRows, back: int, ahead: int) -> Iterator[SortedRows]:
        """The stored runs whose times the probe rows can match."""
        if len(probe.times):
            low, high = int(probe.times.min()) - back, int(probe.times.max()) + ahead
            yield from (SortedRows.of(run) for run in self.journal.runs(low, high + 1))

    def new_unmatched(self) -> pl.DataFrame | None:
        return None if self.new is None else self.new.rows.filter(pl.Series(~self.matched))

    def rows_to_store(self, outer: bool) -> pl.DataFrame | None:
        """The new rows, with a mark on those without a match if the side is outer."""
        if not outer:
            return None if self.new is None else self.new.rows
        parts = []
        if self.new is not None:
            parts.append(self.new.rows.with_columns(pl.Series(_UNMATCHED, ~self.matched)))
        if self.keyless is not None and self.keyless.height:
            parts.append(self.keyless.with_columns(pl.lit(True).alias(_UNMATCHED)))
        return pl.concat(parts) if parts else None


@dataclass(frozen=True)
class _Pairing:
    """Rows of both sides to compare. Rows of this epoch have a mask in which matches are marked."""

    left: SortedRows
    right: SortedRows
    left_matched: Mask | None
    right_matched: Mask | None


def _left_is_earlier(pairing: _Pairing, at_left: Ints, at_right: Ints) -> Mask:
    """Whether the left row of each pair is before the right one in total order.

    Equal results of an operator have the same position: of two such rows either may be left, but only one.
    """
    left, right = pairing.left, pairing.right
    earlier: Mask = left.times[at_left] < right.times[at_right]
    tied = np.flatnonzero(left.times[at_left] == right.times[at_right])
    if not len(tied):
        return earlier
    at_left, at_right = at_left[tied], at_right[tied]
    decided = np.zeros(len(tied), dtype=bool)
    for name in (PARTITION, SEQUENCE, INPUT):
        if name in left.rows.columns:
            of_left, of_right = left.rows[name].to_numpy()[at_left], right.rows[name].to_numpy()[at_right]
            earlier[tied] |= ~decided & (of_left < of_right)
            decided |= of_left != of_right
    if pairing.left_matched is None:
        earlier[tied] |= ~decided
    elif pairing.right_matched is not None:
        earlier[tied] |= ~decided & (at_left < at_right)
    return earlier
