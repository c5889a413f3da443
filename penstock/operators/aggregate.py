"""Aggregates over windows of time, one after the other or with gaps: a window is one pane.

Receives partial answers per key and pane; hands, once the watermark reaches a window's end, one row for every key
that had events in it.
State: `open`, a journal of partial answers (inserting reads nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.panes import PaneOperator
from penstock.operators.partials import PANE, merge_partials
from penstock.operators.time_windows import TimeWindow, to_datetime
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Aggregation(PaneOperator):
    """Aggregates per key over windows of time of which no two overlap, told when a window closes."""

    kind: ClassVar[str] = "time-window-aggregate"
    state_version: ClassVar[int] = 1

    window: TimeWindow

    def drained_at(self, watermark: int) -> int | None:
        return int(self.window.end(self.window.first_open(watermark)))

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        floor = self.window.start(self.window.first_open(progress.before))
        below = self.window.start(self.window.first_open(progress.after))
        due = self.take_due(frame, state, below, floor, below)
        return None if due is None else self.result_rows(merge_partials(due, self.keys, self.aggregates).rows)

    def result_rows(self, closed: pl.DataFrame) -> pl.DataFrame:
        """Rows as they are told, from partial answers of windows, which stand where panes did."""
        start, end = pl.col(PANE), pl.col(PANE) + self.window.size
        return closed.select(
            HASH,
            # a result happens at the last instant of its window: before whatever comes at its end
            (end - 1).alias(TIME),
            to_datetime(start).alias("window_start"),
            to_datetime(end).alias("window_end"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )
