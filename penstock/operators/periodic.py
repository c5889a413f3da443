"""Aggregates over windows of time, emitted periodically while the windows are open.

The input is partial aggregates per key and pane. At every multiple of `every` and at its window's end, the operator
emits the result so far of every key and window that had events since its last emission.
State: `open`, a journal of partial aggregates not emitted yet; `answers`, a table of those emitted, one for every key
and open window. The cost of an emission depends on what is emitted, not on the size of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.panes import PANE, PaneOperator, merge_partials
from penstock.operators.running import accumulate, lookup_totals
from penstock.operators.strict import Ordered
from penstock.operators.time_windows import WINDOW, TimeWindow, expand_ranges, key_by_window, to_datetime


@dataclass(frozen=True)
class PeriodicAggregation(PaneOperator):
    """Aggregates per key over windows of time, emitted every `every` microseconds and when a window closes.

    A window's result is emitted at `as_of`, a multiple of `every` on the clock or its end, if the key had events in it
    since the last such instant.
    """

    kind: ClassVar[str] = "periodic-window-aggregate"
    state_version: ClassVar[int] = 1

    window: TimeWindow
    every: int

    def pane(self) -> pl.Expr:
        return self.window.pane(pl.col(TIME), self.every)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        before, after = progress.before, progress.after
        first, still_open = self.window.first_open(before), self.window.first_open(after)
        floor, keep_from = self._multiple(before), self._multiple(after)
        # a pane is emitted at the end of its window, or at the next multiple where its other windows continue
        below = after if keep_from > floor or still_open > first else floor
        due, open_from = self.take_panes(frame, state, keep_from, floor, below), self.window.start(still_open)
        emitted = None
        if due is not None:
            emitted = self._select_due(merge_partials(due, self.keys, self.aggregates), first, after)
        totals = state.table("answers", keys=self._identity, time=WINDOW)
        rows = None
        if emitted is not None:
            earlier = lookup_totals(emitted, self._identity, totals, self.aggregates)
            rows = accumulate(emitted, earlier, self.aggregates)
            last = rows.filter(pl.Series(emitted.last) & (rows[WINDOW] >= open_from))
            totals.insert(last.drop(PANE))
        totals.expire(open_from)
        totals.compact(open_from)
        return None if rows is None else self._finish(rows)

    def _select_due(self, cells: Ordered, first: int, after: int) -> Ordered | None:
        """The partial aggregates to emit by `after`: for every key and window from `first` on, in order of time."""
        panes = cells.rows[PANE].to_numpy()
        least, most = self.window.find_windows(panes)
        row, number = expand_ranges(np.maximum(least, first), most)
        at = np.minimum(self._multiple(panes)[row] + self.every, self.window.end(number))
        due = at <= after
        if not due.any():
            return None
        rows = cells.rows[row[due]].with_columns(pl.Series(PANE, at[due]))
        return merge_partials(
            key_by_window(rows, self.window.start(number[due])), tuple(self._identity), self.aggregates
        )

    def _multiple(self, at: Any) -> Any:
        """The last multiple of `every` that is not after an instant (or each of an array)."""
        return at - at % self.every

    @property
    def _identity(self) -> list[str]:
        return [*self.keys, WINDOW]

    def _finish(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            (pl.col(PANE) - 1).alias(TIME),
            to_datetime(pl.col(WINDOW)).alias("window_start"),
            to_datetime(pl.col(WINDOW) + self.window.size).alias("window_end"),
            to_datetime(pl.col(PANE)).alias("as_of"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )

    def describe_windows(self) -> str:
        return f"{self.window.describe()}, emitted every {spelled(self.every)}"
