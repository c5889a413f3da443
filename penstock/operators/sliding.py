"""Aggregates over windows of time that overlap: an event is taken in once, and a row told costs one merge.

Receives partial answers per key and pane; hands, once the watermark reaches a window's end, one row for every key
that had events in it.

Windows one after the other are a *block*: at most as many as fit into a window's size. So all windows of a block
hold the instant at which the next block begins, its *middle*: each is the end of the stretch before the middle and
the beginning of what follows it. When the first windows of a block close, the ends of its stretch are made for all
the others, each from the one after it; what follows the middle is merged as it closes. So a pane is read a few
times, however many windows hold it.

State: `open`, a journal of partial answers per pane, from the beginning of the next block on; `ends`, a journal of
the partial answers of a block's windows up to the middle, due when their windows close; `since`, a journal of the
partial answer of every key from the middle to the end of the last window that closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Progress, SliceState
from penstock.operators.panes import concat_frames, partial_columns
from penstock.operators.partials import PANE, merge_partials, pane_positions
from penstock.operators.strict import Ordered
from penstock.operators.time_windows import Instants, expand_ranges
from penstock.state.buckets import HASH

#: with fewer windows at a time, or partial answers that grow, panes are read again rather than blocks kept
_FEW = 6
#: how many windows make a block, at most, unless there are thousands at a time
_MOST = 64
_GROUP = "_group"


@dataclass(frozen=True)
class SlidingAggregation(Aggregation):
    """Aggregates per key over windows of time that overlap, told when a window closes."""

    kind: ClassVar[str] = "sliding-window-aggregate"
    state_version: ClassVar[int] = 1

    def drained_at(self, watermark: int) -> int | None:
        """Never: when a window ends, others that hold some of its events are open."""
        return None

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        window = self.window
        first, past = window.first_open(progress.before), window.first_open(progress.after)
        fresh, kept = self._next_block(first), window.start(self._next_block(past))
        if first == past:
            self.take_panes(frame, state, kept, kept, kept)
            return None
        # windows of the block in which the last epoch stopped, then whole blocks and perhaps a beginning
        resumed = min(fresh, past)
        low = window.start(fresh) if fresh < past else window.end(first - 1)
        due = self.take_panes(frame, state, kept, low, window.end(past - 1))
        ends, since = state.journal("ends", time=PANE), state.journal("since", time=PANE)
        told = []
        if first < resumed:
            told.append(self._resumed(due, state, first, resumed))
        ends.empty(window.start(past))
        since.empty(window.end(past - 1))
        if fresh < past and due is not None:
            cells = merge_partials(due, self.keys, self.aggregates)
            told.append(self._windows(cells, fresh, past - 1))
            if past % self._block:
                self._stop(cells, state, past)
        ends.compact(window.start(past))
        since.compact(window.end(past - 1))
        closed = concat_frames(*told)
        return None if closed is None else self.result_rows(closed)

    @property
    def _fit(self) -> int:
        """How many windows one after the other fit into a window's size."""
        return self.window.size // self.window.advance

    @property
    def _halved(self) -> bool:
        """Whether to make windows of two parts each."""
        return self._fit >= _FEW and not any(a.grows for a in self.aggregates)

    @property
    def _block(self) -> int:
        """How many windows make a block."""
        return min(self._fit, max(_MOST, isqrt(self._fit))) if self._halved else 1

    def _next_block(self, number: int) -> int:
        """The first window, from this one on, that is the first of a block."""
        return -(-number // self._block) * self._block

    def _stop(self, cells: Ordered, state: SliceState, past: int) -> None:
        """Remember of the cells what the windows from `past` to the end of its block need."""
        middle = self._next_block(past)
        ends = self._ends(cells, past, middle - 1, self._block)
        if ends.height:
            state.journal("ends", time=PANE).insert(ends)
        after = cells.rows.filter(pl.col(PANE) >= self.window.start(middle))
        if after.height:
            last_end = pl.lit(self.window.end(past - 1), pl.Int64).alias(PANE)
            merged = merge_partials(after.with_columns(last_end), self.keys, self.aggregates)
            state.journal("since", time=PANE).insert(merged.rows)

    def _resumed(
        self, due: pl.DataFrame | None, state: SliceState, first: int, past: int
    ) -> pl.DataFrame | None:
        """The windows from `first` to before `past`, of a block in which an earlier epoch stopped."""
        window, done = self.window, self.window.end(first - 1)
        ends = state.journal("ends", time=PANE).rows(window.start(first), window.start(past - 1) + 1)
        since = state.journal("since", time=PANE)
        if due is not None:
            due = due.filter(pl.col(PANE).is_between(done, window.end(past - 1), closed="left"))
        after = concat_frames(since.rows(done, done + 1), due)
        if after is None:
            return ends
        cells = merge_partials(after, self.keys, self.aggregates)
        so_far = self._merged(cells.rows, cells.number)
        if past % self._block:
            now = pl.lit(window.end(past - 1), pl.Int64).alias(PANE)
            since.insert(so_far.filter(pl.Series(cells.last)).with_columns(now))
        return self._both(ends, self._beginnings(cells, so_far, cells.last, first, past))

    def _both(self, ends: pl.DataFrame | None, beginnings: pl.DataFrame) -> pl.DataFrame | None:
        """Windows of their parts before and after the middle."""
        parts = concat_frames(ends, beginnings)
        return None if parts is None else merge_partials(parts, self.keys, self.aggregates).rows

    def _windows(self, cells: Ordered, first: int, last: int) -> pl.DataFrame | None:
        """The partial answers of the windows from number `first`, the first of a block, to `last`."""
        if self._halved and not all(a.subtracts for a in self.aggregates):
            stretch, new = self._stretches(cells, self._fit)
            so_far = self._merged(cells.rows, np.cumsum(new, dtype=np.int64))
            past = np.minimum(stretch * self._fit, last + 1)
            beginnings = self._beginnings(cells, so_far, np.append(new[1:], True), first, past)
            return self._both(self._ends(cells, first, last, self._fit), beginnings)
        least, most = self.window.find_windows(cells.rows[PANE].to_numpy())
        # the windows that hold the cell before, too, are that one's
        least[1:] = np.where(cells.first[1:], least[1:], np.maximum(least[1:], most[:-1] + 1))
        low, number = expand_ranges(np.maximum(least, first), np.minimum(most, last))
        # a window ends where another key begins, or a pane that is not before its end
        place, panes = pane_positions(cells)
        ends = cells.number[low] * (len(panes) + 1) + np.searchsorted(panes, self.window.end(number))
        high = np.searchsorted(place, ends)
        return (
            cells.rows.select(HASH, *self.keys)[low]
            .with_columns(pl.Series(PANE, self.window.start(number)))
            .with_columns(column for a in self.aggregates for column in a.merge_ranges(cells.rows, low, high))
        )

    def _ends(self, cells: Ordered, first: int, last: int, block: int) -> pl.DataFrame:
        """The partial answers of these windows up to the middles of their blocks: of a window's first cell and all
        after it, as far as there is one."""
        stretch, new = self._stretches(cells, block)
        most = (cells.rows[PANE].to_numpy() - self.window.offset) // self.window.advance
        # the windows that hold the cell before, too, are that one's
        least = np.where(new, stretch * block, np.append(0, most[:-1] + 1))
        row, number = expand_ranges(np.maximum(least, first), np.minimum(most, last))
        merged = self._merged(cells.rows.reverse(), np.cumsum(new, dtype=np.int64)[::-1]).reverse()
        return merged[row].with_columns(pl.Series(PANE, self.window.start(number)))

    def _beginnings(
        self,
        cells: Ordered,
        so_far: pl.DataFrame,
        final: npt.NDArray[np.bool_],
        first: int,
        past: Instants | int,
    ) -> pl.DataFrame:
        """The partial answers of windows, from `first` to before `past`, from the middles of their blocks on: of a
        window's last cell and all before it (`so_far`), as far as there is one. `final` marks the last cells of
        all."""
        least, _ = self.window.find_windows(cells.rows[PANE].to_numpy())
        # the windows that hold the cell after, too, are that one's
        most = np.minimum(np.where(final, past, np.append(least[1:], 0)), past) - 1
        row, number = expand_ranges(np.maximum(least, first), most)
        return so_far[row].with_columns(pl.Series(PANE, self.window.start(number)))

    def _stretches(self, cells: Ordered, block: int) -> tuple[Instants, npt.NDArray[np.bool_]]:
        """The block in which the windows are that begin in each cell's stretch, and where a stretch or key begins."""
        stretch = (cells.rows[PANE].to_numpy() - self.window.offset) // (self.window.advance * block)
        return stretch, cells.first | np.append(True, stretch[1:] != stretch[:-1])

    def _merged(self, rows: pl.DataFrame, group: Instants) -> pl.DataFrame:
        """Each row's partial answers merged with those of the rows before it of the same group; groups lie together.

        A row that is alone in its group stays as it is: most are, where few keys come in every pane.
        """
        new = np.append(True, group[1:] != group[:-1])
        some = np.flatnonzero(~(new & np.append(new[1:], True)))
        if not len(some):
            return rows
        parts = rows.select(partial_columns(self.aggregates))
        ran = parts[some].with_columns(pl.Series(_GROUP, group[some]))
        ran = ran.with_columns(e for a in self.aggregates for e in a.merge_running(_GROUP)).drop(_GROUP)
        at = np.arange(rows.height)
        at[some] = rows.height + np.arange(len(some))
        return rows.with_columns(pl.concat([parts, ran], rechunk=True)[at].get_columns())
