"""Aggregates over windows of time, told after every event that changes them.

Receives events in strict order; hands, after each event and for each window that holds it, the answer so far if it
is not the one before.
State: `waiting`, the events not yet in order; `answers`, a table of the partial answers of every key and open window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import ORDER, TIME, Progress, SliceState
from penstock.operators.functions import AggregateFunction
from penstock.operators.running import accumulate, lookup_totals
from penstock.operators.strict import (
    Ordered,
    StrictOperator,
    add_position,
    group_by_key,
    position_columns,
    take_ordered,
)
from penstock.operators.time_windows import WINDOW, TimeWindow, expand_ranges, key_by_window, to_datetime
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class OnChangeAggregation(StrictOperator):
    """Aggregates per key over windows of time, told after every event after which a window's answer is another.

    `running`: there is one window, all of time, and rows do not name it.
    """

    kind: ClassVar[str] = "window-changes"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    window: TimeWindow
    aggregates: tuple[AggregateFunction, ...]
    running: bool = False

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *(a.column for a in self.aggregates if a.column is not None)}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        held = self.window.held(pl.col(TIME))
        rows = add_position(frame).select(*ORDER, *sorted(self.needs()))
        return rows if held is None else rows.filter(held)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        identity, open_from = (*self.keys, WINDOW), self.window.start(self.window.first_open(progress.after))
        answers = state.table("answers", keys=identity, time=WINDOW)
        ordered = take_ordered(frame, self.keys, state, progress)
        told = None
        if ordered is not None:
            events = group_by_key(self._in_windows(ordered.rows), identity)
            before = lookup_totals(events, identity, answers, self.aggregates)
            rows = accumulate(events, before, self.aggregates)
            answers.insert(rows.filter(pl.Series(events.last) & (rows[WINDOW] >= open_from)).drop(ORDER))
            # with several windows an event has several rows, and they no place of their own
            place = position_columns(ordered.rows) if self.window.alone else (TIME,)
            told = self._changed(rows, before, events, place)
        answers.expire(open_from)
        answers.compact(open_from)
        return told

    def _in_windows(self, events: pl.DataFrame) -> pl.DataFrame:
        """The events as partial answers, each once for every window it is in."""
        row, number = expand_ranges(*self.window.holding(events[TIME].to_numpy()))
        parts = (e for a in self.aggregates for e in a.from_event())
        rows = events.select(HASH, *ORDER, *self.keys, *parts)
        return key_by_window(rows if self.window.alone else rows[row], self.window.start(number))

    def _changed(
        self, rows: pl.DataFrame, before: pl.DataFrame, events: Ordered, place: tuple[str, ...]
    ) -> pl.DataFrame:
        """The answers that are not those before them; a window's first always is told."""
        results = [a.result() for a in self.aggregates]
        now, known = rows.select(results), before[HASH].is_not_null()
        was = before.filter(known).select(results)
        # what stands before a row is the row above it, or what is remembered of its key
        at = np.arange(-1, rows.height - 1)
        at[events.first] = np.where(known, rows.height + np.cumsum(known) - 1, -1)
        new = at < 0
        earlier = pl.concat([now, was])[np.maximum(at, 0)]
        for name in now.columns:
            new |= now[name].ne_missing(earlier[name]).to_numpy()
        start, end = pl.col(WINDOW), pl.col(WINDOW) + self.window.size
        windows = [to_datetime(start).alias("window_start"), to_datetime(end).alias("window_end")]
        return (
            rows.select(
                *place,
                *([] if self.running else windows),
                to_datetime(pl.col(TIME)).alias("as_of"),
                *self.keys,
            )
            .hstack(now)
            .filter(pl.Series(new))
        )

    def describe(self) -> str:
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        over = "all so far" if self.running else self.window.describe()
        return f"{what} per {', '.join(self.keys) or 'everything'} over {over}, told at every change"
