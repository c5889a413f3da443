"""Landmark windows: an event opens one, an event closes it, and all events of the key from one to the other are in it.

Receives events in strict order, with two Boolean columns: whether an event opens, and whether it closes; hands the
answer of every window at the event that closes it.

While a window is open, events that would open one are in it like any other; one event can open and close. Events
while none is open are in nothing. With `longest`, a window that began at s ends at s + longest if nothing has
closed it before, and its row, flagged, happens at the last instant before.
State: `open`, a table of one row per open window: when it began, when it ends, its partial answer. A window that is
closed leaves a row that says so, until all runs with rows of its key have been merged.
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
#: the number of the key whose open window goes on, or -1
_FROM = "_from"


@dataclass(frozen=True)
class LandmarkWindows(EventWindows):
    """Windows from an event that opens to the next that closes, at the latest `longest` microseconds after."""

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
        if ordered is not None:
            closed, others, gone_on = self._windows(ordered, open_)
            still = others.filter(pl.col(DUE) >= progress.after)
            self._keep(still, closed.filter(pl.col(DUE) >= progress.after), open_)
            late = others.filter(pl.col(DUE) < progress.after)
            ended = late if ended is None else self._both(drop_keys(ended, gone_on, self.keys), late)
        made = [] if ordered is None else [closed]
        if ended is not None and self.longest is not None:
            instants = ((pl.col(DUE) + 1).alias("_end"), pl.col(DUE).alias(TIME))
            made.append(ended.with_columns(*instants, pl.lit(False).alias("closed")))
        flag = () if self.longest is None else ("closed",)
        return pl.concat([self.result_rows(rows, *flag) for rows in made]) if made else None

    def _both(self, some: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
        columns = [HASH, *self.keys, START, DUE, *self.parts()]
        return pl.concat([some.select(columns), others.select(columns)])

    def _keep(self, still: pl.DataFrame, closed: pl.DataFrame, open_: Table) -> None:
        """Write down the windows still open and, where there is nothing else to write of a key, that it has none."""
        gone = drop_keys(closed.filter(pl.col(_FROM) >= 0), still, self.keys)
        nothing = [pl.lit(None, dtype=gone.schema[part]).alias(part) for part in self.parts()]
        rows = self._both(still, gone.with_columns(nothing))
        open_.insert(rows.with_columns(pl.Series(_GONE, np.arange(rows.height) >= still.height)))

    def _windows(self, ordered: Ordered, open_: Table) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """The windows that an event closed, the others, and the keys of those that were open before."""
        rows, first = ordered.rows, ordered.first
        heads = rows.select(HASH, *self.keys).filter(pl.Series(first))
        kept = open_.lookup(heads, [START, DUE, *self.parts()])
        times = rows[TIME].to_numpy()
        goes_on = times[first] <= kept[DUE].cast(pl.Int64).fill_null(NEVER).to_numpy()
        closes = rows[CLOSES].fill_null(False).to_numpy()
        low, high, began, from_ = self._ranges(ordered, goes_on, kept, closes)
        due = began + self.longest - 1 if self.longest is not None else np.full(len(low), FOREVER)
        is_closed = closes[high - 1]
        made = rows.select(HASH, *self.keys)[low].with_columns(
            pl.Series(START, began),
            pl.Series(DUE, due),
            pl.Series(_FROM, from_),
            *self.range_partials(rows, low, high),
        )
        made = self.continue_partials(made, kept, from_)
        by = rows[high[is_closed] - 1].select(
            *((TIME,) if self.longest is not None else position_columns(rows)),
            pl.col(TIME).alias("_end"),
            pl.lit(True).alias("closed"),
        )
        closed = made.filter(pl.Series(is_closed)).hstack(by)
        return closed, made.filter(pl.Series(~is_closed)), heads.filter(pl.Series(goes_on))

    def _ranges(
        self, ordered: Ordered, goes_on: np.ndarray, kept: pl.DataFrame, closes: np.ndarray
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The windows' rows [low, high), when they began, and the numbers of the keys they go on from, or -1.

        A block is what lies between two closing events of a key: after one, no window is open. So the first
        opening event of a block opens a window, and after that the first that comes when that one has ended.
        """
        times, count = ordered.rows[TIME].to_numpy(), len(closes)
        starts_block = ordered.first.copy()
        starts_block[1:] |= closes[:-1]
        block = np.cumsum(starts_block) - 1
        block_end = np.append(np.flatnonzero(starts_block)[1:], count)
        old = np.flatnonzero(ordered.first)[goes_on]
        old_began = kept[START].cast(pl.Int64).fill_null(0).to_numpy()[goes_on]
        old_high = self._end_of(times, old_began, old, block_end[block[old]])
        # from here on among the opening events only
        opener = np.flatnonzero(ordered.rows[OPENS].fill_null(False).to_numpy())
        free = np.zeros(count, dtype=np.int64)  # no window that was open before reaches as far as this
        free[old] = old_high
        free = np.maximum.accumulate(free)
        opener = opener[opener >= free[opener]]
        of = block[opener]
        begins = np.append(True, of[1:] != of[:-1])[: len(opener)]
        if self.longest is not None and len(opener):
            last = np.append(np.flatnonzero(begins)[1:], len(opener))[np.cumsum(begins) - 1]
            here = np.arange(len(opener))
            to = first_from(times[opener], times[opener] + self.longest, here, last)
            begins = mark_chain(np.flatnonzero(begins), np.where(to < last, to, len(opener)))
        new = opener[begins]
        new_high = self._end_of(times, times[new], new, block_end[block[new]])
        return (
            np.append(old, new),
            np.append(old_high, new_high),
            np.append(old_began, times[new]),
            np.append(np.flatnonzero(goes_on), np.full(len(new), -1)),
        )

    def _end_of(self, times: Ints, began: Ints, low: Ints, block_end: Ints) -> Ints:
        """Where windows end that began then and have rows from `low` on."""
        return block_end if self.longest is None else first_from(times, began + self.longest, low, block_end)

    def describe_windows(self) -> str:
        capped = "" if self.longest is None else f", of {spelled(self.longest)} at most"
        return f"landmark windows{capped}"
