"""Aggregates over windows of time, told again and again while the windows are open.

Receives partial answers per key and pane; hands, at every multiple of `every` and at its window's end, the answer so
far of every key and window that had events since it was last told.
State: `open`, a journal of partial answers not told yet; `answers`, a table of the partial answers told, one for
every key and open window. Telling costs what is told, not what is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.panes import PaneOperator
from penstock.operators.partials import PANE, merge_partials
from penstock.operators.running import accumulate, lookup_totals
from penstock.operators.strict import Ordered
from penstock.operators.time_windows import WINDOW, TimeWindow, expand_ranges, key_by_window, to_datetime


@dataclass(frozen=True)
class PeriodicAggregation(PaneOperator):
    """Aggregates per key over windows of time, told every so many microseconds and when a window closes.

    A window is told at `as_of`, a multiple of `every` on the clock or its end, if the key had events in it since
    the last such instant.
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
        floor, kept = self._multiple(before), self._multiple(after)
        # a pane is told at the end of its window, or at the next multiple where its other windows go on
        below = after if kept > floor or still_open > first else floor
        due, open_from = self.take_due(frame, state, kept, floor, below), self.window.start(still_open)
        told = None
        if due is not None:
            told = self._told(merge_partials(due, self.keys, self.aggregates), first, after)
        answers = state.table("answers", keys=self._identity, time=WINDOW)
        rows = None
        if told is not None:
            before_it = lookup_totals(told, self._identity, answers, self.aggregates)
            rows = accumulate(told, before_it, self.aggregates)
            last = rows.filter(pl.Series(told.last) & (rows[WINDOW] >= open_from))
            answers.insert(last.drop(PANE))
        answers.expire(open_from)
        answers.compact(open_from)
        return None if rows is None else self._finished(rows)

    def _told(self, cells: Ordered, first: int, after: int) -> Ordered | None:
        """The partial answers to tell by now: for every key and window from `first` on, in order of their instants."""
        panes = cells.rows[PANE].to_numpy()
        least, most = self.window.holding(panes)
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
        """The last multiple of `every` that is not after an instant, or each of an array."""
        return at - at % self.every

    @property
    def _identity(self) -> list[str]:
        return [*self.keys, WINDOW]

    def _finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            (pl.col(PANE) - 1).alias(TIME),
            to_datetime(pl.col(WINDOW)).alias("window_start"),
            to_datetime(pl.col(WINDOW) + self.window.size).alias("window_end"),
            to_datetime(pl.col(PANE)).alias("as_of"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )

    def describe_windows(self) -> str:
        return f"{self.window.describe()}, told every {spelled(self.every)}"
