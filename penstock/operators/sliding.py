"""Aggregates over overlapping (hopping) windows of time: an event is aggregated once, and a row costs one merge.

The input is partial aggregates per key and pane. When the watermark reaches a window's end, the operator emits one row
for every key that had events in it.

Consecutive windows form a *block*: at most as many as fit into a window's size. So all windows of a block include the
instant at which the next block starts, its *middle*. Each window has a tail of the stretch before the middle, its
*suffix*, and the start of what follows, its *prefix*. When the first windows of a block close, the suffixes of all the
others are computed, each from the one after it. What follows the middle is merged as windows close. So a pane is read a
few times, however many windows it is in.

State: `open`, a journal of partial aggregates per pane, from the start of the next block on; `ends`, a journal of the
suffixes of a block's windows, due when their windows close; `since`, a journal of every key's partial aggregate from
the middle to the end of the last window that closed.
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
from penstock.operators.panes import PANE, concat_frames, merge_partials, pane_positions, partial_columns
from penstock.operators.strict import Ordered
from penstock.operators.time_windows import Instants, expand_ranges
from penstock.state.buckets import HASH

#: with fewer windows at a time, or partial aggregates that grow, panes are read again and no blocks are stored
_FEW = 6
#: the most windows of a block, unless there are thousands at a time
_MOST = 64
_GROUP = "_group"


@dataclass(frozen=True)
class SlidingAggregation(Aggregation):
    """Aggregates per key over overlapping windows of time, emitted when a window closes."""

    kind: ClassVar[str] = "sliding-window-aggregate"
    state_version: ClassVar[int] = 1

    def drained_at(self, watermark: int) -> int | None:
        """Never: when a window ends, others with some of its events are open."""
        return None

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        window = self.window
        first, end = window.first_open(progress.before), window.first_open(progress.after)
        next_block, keep_from = self._next_block(first), window.start(self._next_block(end))
        if first == end:
            self.take_panes(frame, state, keep_from, keep_from, keep_from)
            return None
        # windows of the block in which the last epoch stopped, then whole blocks and perhaps the start of one
        resume_end = min(next_block, end)
        low = window.start(next_block) if next_block < end else window.end(first - 1)
        due = self.take_panes(frame, state, keep_from, low, window.end(end - 1))
        ends, since = state.journal("ends", time=PANE), state.journal("since", time=PANE)
        closed = []
        if first < resume_end:
            closed.append(self._resume_block(due, state, first, resume_end))
        ends.empty(window.start(end))
        since.empty(window.end(end - 1))
        if next_block < end and due is not None:
            cells = merge_partials(due, self.keys, self.aggregates)
            closed.append(self._aggregate_windows(cells, next_block, end - 1))
            if end % self._block:
                self._store_block(cells, state, end)
        ends.compact(window.start(end))
        since.compact(window.end(end - 1))
        rows = concat_frames(*closed)
        return None if rows is None else self.result_rows(rows)

    @property
    def _fit(self) -> int:
        """How many window starts fit into a window's size."""
        return self.window.size // self.window.advance

    @property
    def _splits_windows(self) -> bool:
        """Whether to merge each window from a suffix and a prefix."""
        return self._fit >= _FEW and not any(a.grows for a in self.aggregates)

    @property
    def _block(self) -> int:
        """The number of windows of a block."""
        return min(self._fit, max(_MOST, isqrt(self._fit))) if self._splits_windows else 1

    def _next_block(self, number: int) -> int:
        """The first window, from this one on, that starts a block."""
        return -(-number // self._block) * self._block

    def _store_block(self, cells: Ordered, state: SliceState, end: int) -> None:
        """Store what the windows from `end` to the end of its block need of the cells."""
        middle = self._next_block(end)
        ends = self._suffixes(cells, end, middle - 1, self._block)
        if ends.height:
            state.journal("ends", time=PANE).insert(ends)
        after = cells.rows.filter(pl.col(PANE) >= self.window.start(middle))
        if after.height:
            last_end = pl.lit(self.window.end(end - 1), pl.Int64).alias(PANE)
            merged = merge_partials(after.with_columns(last_end), self.keys, self.aggregates)
            state.journal("since", time=PANE).insert(merged.rows)

    def _resume_block(
        self, due: pl.DataFrame | None, state: SliceState, first: int, end: int
    ) -> pl.DataFrame | None:
        """The windows from `first` to before `end`, of a block in which an earlier epoch stopped."""
        window, done = self.window, self.window.end(first - 1)
        ends = state.journal("ends", time=PANE).rows(window.start(first), window.start(end - 1) + 1)
        since = state.journal("since", time=PANE)
        if due is not None:
            due = due.filter(pl.col(PANE).is_between(done, window.end(end - 1), closed="left"))
        after = concat_frames(since.rows(done, done + 1), due)
        if after is None:
            return ends
        cells = merge_partials(after, self.keys, self.aggregates)
        so_far = self._merge_running(cells.rows, cells.number)
        if end % self._block:
            now = pl.lit(window.end(end - 1), pl.Int64).alias(PANE)
            since.insert(so_far.filter(pl.Series(cells.last)).with_columns(now))
        return self._merge_parts(ends, self._prefixes(cells, so_far, cells.last, first, end))

    def _merge_parts(self, ends: pl.DataFrame | None, prefixes: pl.DataFrame) -> pl.DataFrame | None:
        """Merge windows from their suffixes before the middle and their prefixes after it."""
        parts = concat_frames(ends, prefixes)
        return None if parts is None else merge_partials(parts, self.keys, self.aggregates).rows

    def _aggregate_windows(self, cells: Ordered, first: int, last: int) -> pl.DataFrame | None:
        """The partial aggregates of the windows from number `first`, the first of a block, to `last`."""
        if self._splits_windows and not all(a.subtracts for a in self.aggregates):
            stretch, new = self._stretches(cells, self._fit)
            so_far = self._merge_running(cells.rows, np.cumsum(new, dtype=np.int64))
            end = np.minimum(stretch * self._fit, last + 1)
            prefixes = self._prefixes(cells, so_far, np.append(new[1:], True), first, end)
            return self._merge_parts(self._suffixes(cells, first, last, self._fit), prefixes)
        least, most = self.window.find_windows(cells.rows[PANE].to_numpy())
        # a window that also includes the cell before belongs to that cell
        least[1:] = np.where(cells.first[1:], least[1:], np.maximum(least[1:], most[:-1] + 1))
        low, number = expand_ranges(np.maximum(least, first), np.minimum(most, last))
        # a window ends where another key starts, or a pane that is not before its end
        place, panes = pane_positions(cells)
        ends = cells.number[low] * (len(panes) + 1) + np.searchsorted(panes, self.window.end(number))
        high = np.searchsorted(place, ends)
        return (
            cells.rows.select(HASH, *self.keys)[low]
            .with_columns(pl.Series(PANE, self.window.start(number)))
            .with_columns(column for a in self.aggregates for column in a.merge_ranges(cells.rows, low, high))
        )

    def _suffixes(self, cells: Ordered, first: int, last: int, block: int) -> pl.DataFrame:
        """The suffixes of these windows, up to the middles of their blocks: a window's first cell and all after it,
        where there is one."""
        stretch, new = self._stretches(cells, block)
        most = (cells.rows[PANE].to_numpy() - self.window.offset) // self.window.advance
        # a window that also includes the cell before belongs to that cell
        least = np.where(new, stretch * block, np.append(0, most[:-1] + 1))
        row, number = expand_ranges(np.maximum(least, first), np.minimum(most, last))
        merged = self._merge_running(cells.rows.reverse(), np.cumsum(new, dtype=np.int64)[::-1]).reverse()
        return merged[row].with_columns(pl.Series(PANE, self.window.start(number)))

    def _prefixes(
        self,
        cells: Ordered,
        so_far: pl.DataFrame,
        final: npt.NDArray[np.bool_],
        first: int,
        end: Instants | int,
    ) -> pl.DataFrame:
        """The prefixes of windows from `first` to before `end`, from the middles of their blocks on: a window's last
        cell and all before it (`so_far`), where there is one. `final` marks the last cells of all."""
        least, _ = self.window.find_windows(cells.rows[PANE].to_numpy())
        # a window that also includes the cell after belongs to that cell
        most = np.minimum(np.where(final, end, np.append(least[1:], 0)), end) - 1
        row, number = expand_ranges(np.maximum(least, first), most)
        return so_far[row].with_columns(pl.Series(PANE, self.window.start(number)))

    def _stretches(self, cells: Ordered, block: int) -> tuple[Instants, npt.NDArray[np.bool_]]:
        """The block of the windows that start in each cell's stretch, and the rows where a stretch or key starts."""
        stretch = (cells.rows[PANE].to_numpy() - self.window.offset) // (self.window.advance * block)
        return stretch, cells.first | np.append(True, stretch[1:] != stretch[:-1])

    def _merge_running(self, rows: pl.DataFrame, group: Instants) -> pl.DataFrame:
        """Merge each row's partial aggregates with those of the rows before it in its group. Groups are contiguous.

        A row that is alone in its group stays as it is. Most are, where few keys are in every pane.
        """
        new = np.append(True, group[1:] != group[:-1])
        some = np.flatnonzero(~(new & np.append(new[1:], True)))
        if not len(some):
            return rows
        parts = rows.select(partial_columns(self.aggregates))
        merged = parts[some].with_columns(pl.Series(_GROUP, group[some]))
        merged = merged.with_columns(e for a in self.aggregates for e in a.merge_running(_GROUP)).drop(_GROUP)
        at = np.arange(rows.height)
        at[some] = rows.height + np.arange(len(some))
        return rows.with_columns(pl.concat([parts, merged], rechunk=True)[at].get_columns())
