"""Aggregate over time windows and emit after every event that changes a result.

The operator reads events in strict order. After each event it emits the result so far of every window that contains the
event, unless it equals the one before.
State: `waiting`, events not yet in order; `answers`, a table of the partial aggregates of every key and open window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import ORDER, TIME, Progress, SliceState
from penstock.operators.functions import AggregateFunction
from penstock.operators.panes import describe_aggregation
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
    """Aggregates per key over time windows, emitted after every event that changes the result of a window.

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
        held = self.window.covers(pl.col(TIME))
        rows = add_position(frame).select(*ORDER, *sorted(self.needs()))
        return rows if held is None else rows.filter(held)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        identity, open_from = (*self.keys, WINDOW), self.window.start(self.window.first_open(progress.after))
        answers = state.table("answers", keys=identity, time=WINDOW)
        ordered = take_ordered(frame, self.keys, state, progress)
        results = None
        if ordered is not None:
            events = group_by_key(self._in_windows(ordered.rows), identity)
            before = lookup_totals(events, identity, answers, self.aggregates)
            rows = accumulate(events, before, self.aggregates)
            answers.insert(rows.filter(pl.Series(events.last) & (rows[WINDOW] >= open_from)).drop(ORDER))
            # with several windows an event makes several rows, which have no position of their own
            position = position_columns(ordered.rows) if self.window.is_disjoint else (TIME,)
            results = self._changed_rows(rows, before, events, position)
        answers.expire(open_from)
        answers.compact(open_from)
        return results

    def _in_windows(self, events: pl.DataFrame) -> pl.DataFrame:
        """The events as partial aggregates, once for every window that contains them."""
        row, number = expand_ranges(*self.window.find_windows(events[TIME].to_numpy()))
        parts = (e for a in self.aggregates for e in a.from_event())
        rows = events.select(HASH, *ORDER, *self.keys, *parts)
        return key_by_window(rows if self.window.is_disjoint else rows[row], self.window.start(number))

    def _changed_rows(
        self, rows: pl.DataFrame, before: pl.DataFrame, events: Ordered, position: tuple[str, ...]
    ) -> pl.DataFrame:
        """The results that differ from the ones before them; the first of a window always does."""
        results = [a.result() for a in self.aggregates]
        now, known = rows.select(results), before[HASH].is_not_null()
        stored = before.filter(known).select(results)
        # the result before a row is that of the row above, or of the key's stored totals
        at = np.arange(-1, rows.height - 1)
        at[events.first] = np.where(known, rows.height + np.cumsum(known) - 1, -1)
        changed = at < 0
        earlier = pl.concat([now, stored])[np.maximum(at, 0)]
        for name in now.columns:
            changed |= now[name].ne_missing(earlier[name]).to_numpy()
        start, end = pl.col(WINDOW), pl.col(WINDOW) + self.window.size
        windows = [to_datetime(start).alias("window_start"), to_datetime(end).alias("window_end")]
        return (
            rows.select(
                *position,
                *([] if self.running else windows),
                to_datetime(pl.col(TIME)).alias("as_of"),
                *self.keys,
            )
            .hstack(now)
            .filter(pl.Series(changed))
        )

    def describe(self) -> str:
        windows = "all so far" if self.running else self.window.describe()
        return f"{describe_aggregation(self.aggregates, self.keys, windows)}, emitted at every change"
