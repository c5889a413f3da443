"""Aggregates over windows of time that overlap: an event is taken in once, and a row told costs one merge.

Receives partial answers per key and pane; hands, once the watermark reaches a window's end, one row for every key
that had events in it.

As many windows one after the other as fit into a window's size are a *block*. All windows of a block hold the
instant at which the next block begins, its *middle*; so each is the end of the stretch before the middle and the
beginning of the stretch after it. When the first windows of a block close, the ends of its first stretch are made
for all the others, each from the one after it; what follows the middle is merged as it closes. So a pane is read
once or twice, however many windows hold it.

State: `open`, a journal of partial answers per pane, from the beginning of the next block on; `ends`, a journal of
the partial answers of a block's windows up to the middle, due when their windows close; `since`, a journal of the
partial answer of every key from the middle to the end of the last window that closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.cells import PANE, places
from penstock.operators.cells import cells as cells_of
from penstock.operators.contract import Progress, SliceState
from penstock.operators.panes import together
from penstock.operators.strict import Ordered
from penstock.operators.windows import Instants, spread
from penstock.state.buckets import HASH

#: with fewer windows at a time, or partial answers that grow, panes are read again rather than blocks kept
_FEW = 6
_NUMBER = "_number"


@dataclass(frozen=True)
class SlidingAggregation(Aggregation):
    """Aggregates per key over windows of time that overlap, told when a window closes."""

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        window = self.window
        first, past = window.first_open(progress.before), window.first_open(progress.after)
        fresh, kept = self._next_block(first), window.start(self._next_block(past))
        if first == past:
            self.taken(frame, state, kept, kept, kept)
            return None
        # windows of the block in which the last epoch stopped, then whole blocks and perhaps a beginning
        resumed = min(fresh, past)
        low = window.start(fresh) if fresh < past else window.end(first - 1)
        due = self.taken(frame, state, kept, low, window.end(past - 1))
        ends, since = state.journal("ends", time=PANE), state.journal("since", time=PANE)
        told = []
        if first < resumed:
            told.append(self._resumed(due, state, first, resumed))
        ends.empty(window.start(past))
        since.empty(window.end(past - 1))
        if fresh < past and due is not None:
            cells = cells_of(due, self.keys, self.aggregates)
            told.append(self._windows(cells, fresh, past - 1))
            if past % self._block:
                self._stop(cells, state, past)
        ends.compact(window.start(past))
        since.compact(window.end(past - 1))
        closed = together(*told)
        return None if closed is None else self.finished(closed)

    @property
    def _block(self) -> int:
        """How many windows make a block."""
        fit = self.window.size // self.window.advance
        return 1 if fit < _FEW or any(a.grows for a in self.aggregates) else fit

    def _next_block(self, number: int) -> int:
        """The first window, from this one on, that is the first of a block."""
        return -(-number // self._block) * self._block

    def _stop(self, cells: Ordered, state: SliceState, past: int) -> None:
        """Remember of the cells what the windows from `past` to the end of its block need."""
        middle = self._next_block(past)
        before = cells.rows[PANE].to_numpy() < self.window.start(middle)
        ends = self._ends(Ordered(cells.rows.filter(pl.Series(before)), _firsts(cells, before)), past, middle)
        if ends.height:
            state.journal("ends", time=PANE).insert(ends)
        self._remember(cells.rows.filter(pl.Series(~before)), state, past)

    def _remember(self, rows: pl.DataFrame, state: SliceState, past: int) -> None:
        """What came after the middle, up to the end of the last window that closed, merged for every key."""
        if rows.height:
            upto = pl.lit(self.window.end(past - 1), pl.Int64).alias(PANE)
            merged = cells_of(rows.with_columns(upto), self.keys, self.aggregates)
            state.journal("since", time=PANE).insert(merged.rows)

    def _resumed(
        self, due: pl.DataFrame | None, state: SliceState, first: int, past: int
    ) -> pl.DataFrame | None:
        """The windows from `first` to before `past`, of a block in which an earlier epoch stopped."""
        window, upto = self.window, self.window.end(first - 1)
        ends = state.journal("ends", time=PANE).rows(window.start(first), window.start(past - 1) + 1)
        since = state.journal("since", time=PANE).rows(upto, upto + 1)
        if due is not None:
            due = due.filter(pl.col(PANE).is_between(upto, window.end(past - 1), closed="left"))
        after = together(since, due)
        if after is None:
            return together(ends)
        cells = cells_of(after, self.keys, self.aggregates)
        if past % self._block:
            self._remember(cells.rows, state, past)
        begun = self._windows(cells, first, past - 1)
        both = together(ends, begun)
        return None if both is None else cells_of(both, self.keys, self.aggregates).rows

    def _windows(self, cells: Ordered, first: int, last: int) -> pl.DataFrame:
        """The partial answers of the windows with these numbers, as far as they hold a cell."""
        low, number = self._first_cells(cells, first, last)
        # a window ends where another key begins, or a pane that is not before its end
        place, panes = places(cells)
        ends = cells.number[low] * (len(panes) + 1) + np.searchsorted(panes, self.window.end(number))
        high = np.searchsorted(place, ends)
        return (
            cells.rows.select(HASH, *self.keys)[low]
            .with_columns(pl.Series(PANE, self.window.start(number)))
            .with_columns(column for a in self.aggregates for column in a.over(cells.rows, low, high))
        )

    def _ends(self, cells: Ordered, first: int, past: int) -> pl.DataFrame:
        """The partial answers of the windows with these numbers, each of all cells from its first on."""
        low, number = self._first_cells(cells, first, past - 1)
        backwards = cells.rows.with_columns(pl.Series(_NUMBER, cells.number)).reverse()
        merged = backwards.with_columns(e for a in self.aggregates for e in a.running(_NUMBER)).reverse()
        return merged.drop(_NUMBER)[low].with_columns(pl.Series(PANE, self.window.start(number)))

    def _first_cells(self, cells: Ordered, first: int, last: int) -> tuple[Instants, Instants]:
        """For each key and window with these numbers that holds a cell: the first such cell, and the window."""
        least, most = self.window.holding(cells.rows[PANE].to_numpy())
        least, most = np.maximum(least, first), np.minimum(most, last)
        # the windows that hold the cell before, too, are that one's
        same = ~cells.first[1:]
        least[1:][same] = np.maximum(least[1:], most[:-1] + 1)[same]
        return spread(least, most)


def _firsts(cells: Ordered, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where keys begin among the chosen cells."""
    keys = cells.number[chosen]
    return np.append(True, keys[1:] != keys[:-1])[: len(keys)]
