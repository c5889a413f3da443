"""Aggregate over landmark windows: one event opens a window, a later one closes it.

All events of the key from the one to the other are in the window. The operator reads events in strict order, with two
Boolean columns: whether an event opens, and whether it closes. It emits the result of a window at the closing event.

While a window is open, events that would open one are in it like any other. One event can open and close. Events while
no window is open are in none. With `longest`, a window that started at s ends at s + longest if nothing has closed it
before; its row has a flag and the time of the last instant before the end.
State: `open`, a table of one row per open window: its start, its end, its partial aggregate. A window that closes
leaves a row that deletes its key, until all runs with rows of the key have been merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import FOREVER, NEVER, TIME, Progress, SliceState
from penstock.operators.event_windows import (
    DUE,
    START,
    EventWindows,
    Ints,
    drop_keys,
    first_from,
)
from penstock.operators.strict import Ordered, position_columns, take_ordered
from penstock.operators.timeline import mark_chain
from penstock.state.buckets import HASH
from penstock.state.table import Table

#: whether an event opens a window, and whether it closes one (Boolean; null is no)
OPENS, CLOSES = "_opens", "_closes"
_GONE = "_gone"
#: the number of the key whose open window continues, or -1
_FROM = "_from"


@dataclass(frozen=True)
class LandmarkWindows(EventWindows):
    """Windows from an opening event to the next closing one, at the latest `longest` microseconds later."""

    kind: ClassVar[str] = "landmark-window"
    state_version: ClassVar[int] = 1

    longest: int | None = None

    def needs(self, port: int = 0) -> set[str]:
        return super().needs(port) | {OPENS, CLOSES}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        open_ = state.table("open", keys=self.keys, time=DUE, gone=_GONE)
        open_.expire(progress.before)
        open_.compact(progress.before)
        ended = None if self.longest is None else open_.due(progress.before, progress.after)
        ordered = take_ordered(frame, self.keys, state, progress)
        results = []
        if ordered is not None:
            closed, others, continued = self._windows(ordered, open_)
            still_open = others.filter(pl.col(DUE) >= progress.after)
            self._store(still_open, closed.filter(pl.col(DUE) >= progress.after), open_)
            ended_now = others.filter(pl.col(DUE) < progress.after)
            if ended is None:
                ended = ended_now
            else:
                ended = self._concat(drop_keys(ended, continued, self.keys), ended_now)
            results.append(closed)
        if ended is not None and self.longest is not None:
            instants = ((pl.col(DUE) + 1).alias("_end"), pl.col(DUE).alias(TIME))
            results.append(ended.with_columns(*instants, pl.lit(False).alias("closed")))
        flag = () if self.longest is None else ("closed",)
        return pl.concat([self.result_rows(rows, *flag) for rows in results]) if results else None

    def _concat(self, some: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
        columns = [HASH, *self.keys, START, DUE, *self.parts()]
        return pl.concat([some.select(columns), others.select(columns)])

    def _store(self, still_open: pl.DataFrame, closed: pl.DataFrame, open_: Table) -> None:
        """Store the open windows, and a deletion for every other key whose stored window was closed."""
        deleted = drop_keys(closed.filter(pl.col(_FROM) >= 0), still_open, self.keys)
        nulls = [pl.lit(None, dtype=deleted.schema[part]).alias(part) for part in self.parts()]
        rows = self._concat(still_open, deleted.with_columns(nulls))
        open_.insert(rows.with_columns(pl.Series(_GONE, np.arange(rows.height) >= still_open.height)))

    def _windows(self, ordered: Ordered, open_: Table) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """The windows that an event closed, the others, and the keys of those that were open before."""
        rows, first = ordered.rows, ordered.first
        heads = rows.select(HASH, *self.keys).filter(pl.Series(first))
        stored = open_.lookup(heads, [START, DUE, *self.parts()])
        times = rows[TIME].to_numpy()
        continues = times[first] <= stored[DUE].cast(pl.Int64).fill_null(NEVER).to_numpy()
        closes = rows[CLOSES].fill_null(False).to_numpy()
        low, high, started, from_ = self._ranges(ordered, continues, stored, closes)
        due = started + self.longest - 1 if self.longest is not None else np.full(len(low), FOREVER)
        is_closed = closes[high - 1]
        windows = rows.select(HASH, *self.keys)[low].with_columns(
            pl.Series(START, started),
            pl.Series(DUE, due),
            pl.Series(_FROM, from_),
            *self.range_partials(rows, low, high),
        )
        windows = self.continue_partials(windows, stored, from_)
        closing = rows[high[is_closed] - 1].select(
            *((TIME,) if self.longest is not None else position_columns(rows)),
            pl.col(TIME).alias("_end"),
            pl.lit(True).alias("closed"),
        )
        closed = windows.filter(pl.Series(is_closed)).hstack(closing)
        return closed, windows.filter(pl.Series(~is_closed)), heads.filter(pl.Series(continues))

    def _ranges(
        self, ordered: Ordered, continues: np.ndarray, stored: pl.DataFrame, closes: np.ndarray
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The rows [low, high) of windows, when they started, and the numbers of the keys that they continue, or -1.

        A block is the stretch between two closing events of a key. After a closing event no window is open. So the
        first opening event of a block opens a window, and then the first opening event after the end of that window.
        """
        times, count = ordered.rows[TIME].to_numpy(), len(closes)
        starts_block = ordered.first.copy()
        starts_block[1:] |= closes[:-1]
        block = np.cumsum(starts_block) - 1
        block_end = np.append(np.flatnonzero(starts_block)[1:], count)
        old = np.flatnonzero(ordered.first)[continues]
        old_started = stored[START].cast(pl.Int64).fill_null(0).to_numpy()[continues]
        old_high = self._end_of(times, old_started, old, block_end[block[old]])
        # from here on among the opening events only
        opener = np.flatnonzero(ordered.rows[OPENS].fill_null(False).to_numpy())
        free = np.zeros(count, dtype=np.int64)  # the rows before this are in windows that were open before
        free[old] = old_high
        free = np.maximum.accumulate(free)
        opener = opener[opener >= free[opener]]
        of = block[opener]
        starts = np.append(True, of[1:] != of[:-1])[: len(opener)]
        if self.longest is not None and len(opener):
            last = np.append(np.flatnonzero(starts)[1:], len(opener))[np.cumsum(starts) - 1]
            here = np.arange(len(opener))
            to = first_from(times[opener], times[opener] + self.longest, here, last)
            starts = mark_chain(np.flatnonzero(starts), np.where(to < last, to, len(opener)))
        new = opener[starts]
        new_high = self._end_of(times, times[new], new, block_end[block[new]])
        return (
            np.append(old, new),
            np.append(old_high, new_high),
            np.append(old_started, times[new]),
            np.append(np.flatnonzero(continues), np.full(len(new), -1)),
        )

    def _end_of(self, times: Ints, started: Ints, low: Ints, block_end: Ints) -> Ints:
        """The end of the rows of windows that started then and have rows from `low` on."""
        return (
            block_end if self.longest is None else first_from(times, started + self.longest, low, block_end)
        )

    def describe_windows(self) -> str:
        capped = "" if self.longest is None else f", of {spelled(self.longest)} at most"
        return f"landmark windows{capped}"
