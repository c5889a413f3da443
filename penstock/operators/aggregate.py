"""Aggregates over windows of time: panes are reduced where the events are, kept as runs, put together when their
windows close.

Receives partial answers per key and pane; hands, once the watermark reaches a window's end, one row for every key
that had events in it.
State: `open`, a journal of partial answers (inserting reads nothing). A pane stays until its last window has closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.cells import PANE
from penstock.operators.cells import cells as cells_of
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.panes import PaneOperator, together
from penstock.operators.strict import Ordered
from penstock.operators.windows import WINDOW, instant, spread
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Aggregation(PaneOperator):
    """Aggregates per key over windows of time that may overlap, told when a window closes."""

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        first, still_open = self.window.first_open(progress.before), self.window.first_open(progress.after)
        # the panes of the windows that close now, and those that are needed later
        floor, kept = self.window.start(first), self.window.start(still_open)
        below = self.window.end(still_open - 1) if still_open > first else floor
        panes = state.journal("open", time=PANE)
        earlier = panes.rows(floor, below) if below > floor else None
        panes.empty(kept)
        if frame is not None and frame.height:
            later = frame.filter(pl.col(PANE) >= kept)
            if later.height:
                panes.insert(self.combine(later))
                frame = frame.filter(pl.col(PANE) < below)
        panes.compact(kept, self.combine)
        due = together(earlier, frame)
        if due is None:
            return None
        cells = cells_of(due, self.keys, self.aggregates)
        if self.window.alone:  # a cell is a window
            return self._finished(cells.rows.rename({PANE: WINDOW}))
        return self._finished(self._windows(cells, first, still_open - 1))

    def _windows(self, cells: Ordered, first: int, last: int) -> pl.DataFrame:
        """The answers of the windows with these numbers, as far as they hold a cell; each is a range of cells."""
        panes, key = cells.rows[PANE].to_numpy(), cells.number
        least, most = self.window.holding(panes)
        least, most = np.maximum(least, first), np.minimum(most, last)
        # a window belongs to the first of its cells: to the one before go all windows that hold that one
        same = ~cells.first[1:]
        least[1:][same] = np.maximum(least[1:], most[:-1] + 1)[same]
        low, number = spread(least, most)
        # and it ends where another key begins, or a pane that is not before its end
        distinct = np.unique(panes)
        width = len(distinct) + 1
        place = key * width + np.searchsorted(distinct, panes)
        ends = key[low] * width + np.searchsorted(distinct, self.window.end(number))
        high = np.searchsorted(place, ends)
        return (
            cells.rows.select(HASH, *self.keys)[low]
            .with_columns(pl.Series(WINDOW, self.window.start(number)))
            .with_columns(column for a in self.aggregates for column in a.over(cells.rows, low, high))
        )

    def _finished(self, closed: pl.DataFrame) -> pl.DataFrame:
        start, end = pl.col(WINDOW), pl.col(WINDOW) + self.window.size
        return closed.select(
            HASH,
            # a result happens at the last instant of its window: before whatever comes at its end
            (end - 1).alias(TIME),
            instant(start).alias("window_start"),
            instant(end).alias("window_end"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )
