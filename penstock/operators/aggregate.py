"""Aggregate over time windows that do not overlap (tumbling, or with gaps): each window is one pane.

Once the watermark reaches the end of a window, the operator emits one row for every key that had events in it.
State: `open`, a journal of the partial aggregates of open windows. An insert reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.panes import PANE, PaneOperator, merge_partials
from penstock.operators.time_windows import TimeWindow, to_datetime
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Aggregation(PaneOperator):
    """Aggregates per key over time windows that do not overlap, emitted when a window closes."""

    kind: ClassVar[str] = "time-window-aggregate"
    state_version: ClassVar[int] = 1

    window: TimeWindow

    def drained_at(self, watermark: int) -> int | None:
        return int(self.window.end(self.window.first_open(watermark)))

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        low = self.window.start(self.window.first_open(progress.before))
        high = self.window.start(self.window.first_open(progress.after))
        due = self.take_panes(frame, state, high, low, high)
        return None if due is None else self.result_rows(merge_partials(due, self.keys, self.aggregates).rows)

    def result_rows(self, closed: pl.DataFrame) -> pl.DataFrame:
        """The rows to emit, from the partial aggregates of closed windows (their pane is the window)."""
        start, end = pl.col(PANE), pl.col(PANE) + self.window.size
        return closed.select(
            HASH,
            # the last instant of the window: the result comes before any event at the window's end
            (end - 1).alias(TIME),
            to_datetime(start).alias("window_start"),
            to_datetime(end).alias("window_end"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )
