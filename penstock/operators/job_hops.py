"""Aggregates of many jobs at once over windows that overlap or leave gaps: the first key is the job.

Receives partial answers per job, key and pane; hands what the plain operators hand and, for jobs that are asked for
their open windows, those as they stand: what would be told if time ended now, of which nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.cells import PANE
from penstock.operators.contract import FOREVER, TIME, Progress, SliceState
from penstock.operators.job_windows import JOB, SOON
from penstock.operators.panes import together
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import to_datetime


class _Flushed(Aggregation):
    """Tells open windows when it is asked for them."""

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        early = self._early(frame, state, progress) if progress.flush else None
        return together(super().process(frame, state, replace(progress, flush=frozenset())), early)

    def _early(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        wanted = pl.col(JOB).is_in(sorted(progress.flush))
        mine = None if frame is None else frame.filter(wanted)
        told = super().process(mine, state.looked_at(wanted), Progress(progress.before, FOREVER))
        if told is None:
            return None
        now = pl.lit(max(progress.before, progress.after - 1), pl.Int64).alias(TIME)
        return told.filter(pl.col("window_end") > to_datetime(pl.lit(progress.after))).with_columns(now)


@dataclass(frozen=True)
class JobGaps(_Flushed):
    """Aggregates per job and key over windows with gaps between them."""

    kind: ClassVar[str] = "template-gap-window-aggregate"
    state_version: ClassVar[int] = 1

    def awaited(self, state: SliceState, after: int) -> Mapping[int, int]:
        open_ = self.window.start(self.window.first_open(after))
        counted = state.journal("open", time=PANE).counted(open_)
        return {start + self.window.size: rows for start, rows in counted.items()}


@dataclass(frozen=True)
class JobHops(_Flushed, SlidingAggregation):
    """Aggregates per job and key over windows that overlap."""

    kind: ClassVar[str] = "template-sliding-window-aggregate"
    state_version: ClassVar[int] = 1

    def awaited(self, state: SliceState, after: int) -> Mapping[int, int]:
        """What it takes to tell a window: the rows merged back from its end, those merged up to it, and what is new in
        it; where a block begins, all there is in the window once more."""
        window, first = self.window, self.window.first_open(after)
        panes = state.journal("open", time=PANE).counted(window.start(first))
        ends = state.journal("ends", time=PANE).counted(window.start(first))
        since = sum(state.journal("since", time=PANE).counted(window.end(first - 1)).values())
        if not panes and not ends:
            return {}
        earliest, latest = min((*panes, *ends)), max((*panes, *ends))
        first = max(first, (earliest - window.offset - window.size) // window.advance + 1)
        last = (latest - window.offset) // window.advance
        found: dict[int, int] = {}
        for number in range(first, min(last, first + SOON) + 1):
            start, end = window.start(number), window.end(number)
            new = start if number == first else window.end(number - 1)
            if number == first + SOON:  # and all after it
                end = FOREVER
            rows = ends.get(start, 0) + since + sum(n for pane, n in panes.items() if new <= pane < end)
            if self._block > 1 and not number % self._block:
                rows += sum(n for pane, n in panes.items() if start <= pane < new)
            found[window.end(number)] = rows
        return found
