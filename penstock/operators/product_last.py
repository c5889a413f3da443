"""Cartesian product over counts: every row meets the last n rows of the other side that came before it.

Both sides are in strict order. The operator emits one row, with the later time, per pair that passes the predicate.
State: `left` and `right`, journals of the last n rows of each side; `waiting_left` and `waiting_right`, rows that wait
for their turn in the order.

The last n of all rows are known only where all rows are, so one bucket gets them. That is little work: n pairs per row.
At one position in the total order the left row comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import (
    INPUT,
    NEVER,
    ORDER,
    TIME,
    Inputs,
    Operator,
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints
from penstock.operators.join_columns import JoinCondition
from penstock.operators.product import describe_condition, describe_span, join_pairs
from penstock.operators.product_pairs import PairFinder
from penstock.operators.strict import add_position, take_due
from penstock.state.buckets import HASH
from penstock.state.journal import Journal

_ENDLESS = 2**63 - 1
_POSITION = (*ORDER, INPUT)
_NAMES = ("left", "right")


@dataclass(frozen=True)
class LastProduct(Operator):
    """Pairs of a row and the last `n` rows of the other side before it, no more than `before` and `after` apart
    (None: however far).

    `left` and `right` are the columns of both, no name in both. With `distinct` only right rows look back: the
    left row comes before the right one in the total order.
    """

    kind: ClassVar[str] = "count-window-cross-join"
    state_version: ClassVar[int] = 1

    left: tuple[str, ...]
    right: tuple[str, ...]
    n: int
    before: int | None = None
    after: int | None = None
    condition: JoinCondition | None = None
    distinct: bool = False

    keys = ()
    ports = 2

    @property
    def order(self) -> str:
        return "strict"

    def needs(self, port: int = 0) -> set[str]:
        return set(self.right if port else self.left)

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return add_position(frame).select(*ORDER, *(self.right if port else self.left))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        now = [self._due(port, inputs[port], state, progress) for port in (0, 1)]
        if now[0] is None and now[1] is None:
            return {}
        journals = [state.journal(name, time=TIME) for name in _NAMES]
        sides = [_last_rows(journal, rows, self.n) for journal, rows in zip(journals, now, strict=True)]
        found = []
        for port in (1,) if self.distinct else (0, 1):
            outer, inner = now[port], sides[1 - port]
            if outer is not None and inner is not None:
                found.append(self._look_back(outer, inner, now[1 - port], port))
        pairs = [rows for rows in found if rows.height]
        return {"": pl.concat(pairs) if pairs else None}

    def _due(
        self, port: int, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The rows of a side before the watermark, in total order."""
        if frame is not None:
            if INPUT not in frame.columns:
                frame = frame.with_columns(pl.lit(0, pl.UInt8).alias(INPUT))
            frame = frame.select(HASH, *_POSITION, *(self.right if port else self.left))
        rows = take_due(frame, state.journal(f"waiting_{_NAMES[port]}", time=TIME), progress)
        return None if rows is None else rows.sort(_POSITION, maintain_order=True)

    def _look_back(
        self, outer: pl.DataFrame, inner: pl.DataFrame, new: pl.DataFrame | None, port: int
    ) -> pl.DataFrame:
        """The pairs of rows due now with the rows of the other side before them; `new` are those of these due now."""
        stored = inner.height - (0 if new is None else new.height)
        high = stored + _count_before(outer, new, first=port == 0 or self.distinct)
        low = np.maximum(high - self.n, 0)
        span = self.after if port else self.before
        if span is not None:
            near = np.searchsorted(inner[TIME].to_numpy(), outer[TIME].to_numpy() - span, side="left")
            low = np.maximum(low, near)
        ones, others = PairFinder(outer, self.condition, inner.schema).find(inner, low, high)
        left, right = (inner, outer) if port else (outer, inner)
        lefts, rights = (others, ones) if port else (ones, others)
        return join_pairs(left, right, lefts, rights, self.left, self.right)

    def describe(self) -> str:
        span = (
            "" if self.before is None or self.after is None else f" {describe_span(self.before, self.after)}"
        )
        different = " of different rows" if self.distinct else ""
        return f"product{different} with the last {self.n}{span}{describe_condition(self.condition)}"


def _last_rows(journal: Journal, due: pl.DataFrame | None, n: int) -> pl.DataFrame | None:
    """The last n rows of a side before this epoch, then those due now. Stores the last n of all these."""
    held = journal.rows(NEVER, _ENDLESS)
    before = None if held is None else held.sort(_POSITION, maintain_order=True).tail(n)
    both = [rows for rows in (before, due) if rows is not None]
    if not both:
        return None
    rows = pl.concat(both)
    if due is not None:
        journal.insert(due.tail(n))
        oldest: int = rows[TIME][-min(n, rows.height)]
        journal.empty(oldest)
        journal.compact(oldest)
    return rows


def _count_before(outer: pl.DataFrame, inner: pl.DataFrame | None, *, first: bool) -> Ints:
    """The number of inner rows before each outer row. At one position the outer row comes first, if `first`."""
    if inner is None:
        return np.zeros(outer.height, dtype=np.int64)
    sides = pl.concat(
        [
            _number_positions(outer).with_columns(pl.lit(0 if first else 1, pl.UInt8).alias("side")),
            _number_positions(inner).with_columns(pl.lit(1 if first else 0, pl.UInt8).alias("side")),
        ]
    )
    order = sides.select(pl.arg_sort_by(*_POSITION, "copy", "side")).to_series().to_numpy()
    is_inner = order >= outer.height
    counted = np.cumsum(is_inner)
    found = np.empty(outer.height, dtype=np.int64)
    found[order[~is_inner]] = counted[~is_inner]
    return found


def _number_positions(rows: pl.DataFrame) -> pl.DataFrame:
    """The positions of rows in total order; rows that share one are numbered."""
    positions = rows.select(_POSITION)
    same = positions.select(
        pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in _POSITION).fill_null(False)
    ).to_series()
    at = np.arange(rows.height)
    first = np.maximum.accumulate(np.where(same.to_numpy(), 0, at))
    return positions.with_columns(pl.Series("copy", at - first))
