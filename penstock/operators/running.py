"""Running aggregates: totals of all events so far, emitted at the end of every step of time.

The input is partial aggregates per key and step, reduced by the senders. For every step that has ended, the operator
emits the totals of the keys that had events in it.
State: `open`, a journal of partial aggregates; `totals`, a table of every key's total up to the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.functions import AggregateFunction
from penstock.operators.panes import PANE, PaneOperator, merge_partials, partial_columns
from penstock.operators.strict import Ordered
from penstock.operators.time_windows import TimeWindow, to_datetime
from penstock.state.buckets import HASH
from penstock.state.table import Table

_BEFORE = ".before"
_NUMBER = "_number"


@dataclass(frozen=True)
class RunningAggregation(PaneOperator):
    """Aggregates per key over all events so far, emitted at the end of every window in which the key had events.

    The windows are tumbling.
    """

    kind: ClassVar[str] = "running-aggregate"
    state_version: ClassVar[int] = 1

    window: TimeWindow

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        floor = self.window.start(self.window.first_open(progress.before))
        below = self.window.start(self.window.first_open(progress.after))
        due = self.take_panes(frame, state, below, floor, below)
        if due is None:
            return None
        totals = self._totals(state)
        totals.compact()
        cells = merge_partials(due, self.keys, self.aggregates)
        rows = accumulate(cells, lookup_totals(cells, self.keys, totals, self.aggregates), self.aggregates)
        totals.insert(rows.filter(pl.Series(cells.last)))
        return self._finish(rows)

    def current(self, state: SliceState) -> pl.DataFrame | None:
        """The totals of all keys of the slice as of the last epoch."""
        rows = self._totals(state).all()
        return None if rows is None else self._finish(rows)

    def _totals(self, state: SliceState) -> Table:
        return state.table("totals", keys=self.keys)

    def _finish(self, totals: pl.DataFrame) -> pl.DataFrame:
        end = pl.col(PANE) + self.window.size
        return totals.select(
            HASH,
            (end - 1).alias(TIME),
            to_datetime(end).alias("as_of"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )

    def describe_windows(self) -> str:
        return f"running, every {spelled(self.window.size)}"


def lookup_totals(
    cells: Ordered, keys: Sequence[str], totals: Table, aggregates: Sequence[AggregateFunction]
) -> pl.DataFrame:
    """The total so far of every key in the cells; nulls, also in `_hash`, where there is none."""
    heads, parts = cells.rows.select(HASH, *keys).filter(pl.Series(cells.first)), partial_columns(aggregates)
    found = totals.lookup(heads, [HASH, *parts])
    return found.select(pl.col(name).cast(cells.rows.schema[name]) for name in (HASH, *parts))


def accumulate(cells: Ordered, before: pl.DataFrame, aggregates: Sequence[AggregateFunction]) -> pl.DataFrame:
    """The cells with totals instead of partial aggregates: of the key's total `before` and all its cells so far."""
    rows, first, parts = cells.rows, cells.first, partial_columns(aggregates)
    # the first cell of a key continues from its total so far, the others from the cell before
    at = pl.Series(np.where(first, cells.number, -1)).replace(-1, None)
    earlier = before.select(pl.col(part).gather(at).alias(part + _BEFORE) for part in parts)
    rows = rows.hstack(earlier).with_columns(e for a in aggregates for e in a.merge_columns(_BEFORE))
    rows = rows.select(cells.rows.columns)
    if first.all():
        return rows
    rows = rows.with_columns(pl.Series(_NUMBER, cells.number))
    return rows.with_columns(e for a in aggregates for e in a.merge_running(_NUMBER)).drop(_NUMBER)
