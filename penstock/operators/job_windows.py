"""Aggregate over time windows for all jobs of a template group at once: the first key is the job.

The jobs are rows here, not operators of their own. Jobs with windows that touch may each have another window size
(`JobAggregation`); jobs with windows that overlap or leave gaps share one window. Once the watermark reaches the end of
a window, the operator emits one row for every key of the job that had events in it. Jobs that are flushed also emit
their open windows as they stand, as if time ended now; this changes no state.

State of `JobAggregation`: `open`, a journal of partial aggregates. A pane is a whole window and is named by its end, so
that the windows that end together lie together whatever their sizes. What ends at one instant can be emitted in several
epochs, one closing batch of jobs after another. The windows of one job are emitted together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import FOREVER, TIME, Progress, SliceState
from penstock.operators.panes import PANE, PaneOperator, concat_frames, describe_aggregation, merge_partials
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import to_datetime
from penstock.state.buckets import HASH

#: the number of the job that a row belongs to (UInt32)
JOB = "_job"
#: into how many closing batches jobs are divided: what ends at one instant may be emitted batch by batch
CLOSING_BATCHES = 16
#: for how many instants to come pending rows are counted one by one; those of all later ones are one more
NEAR_INSTANTS = 32
_GOLDEN = np.uint32(0x9E3779B1)


def closing_batches(jobs: pl.Series) -> npt.NDArray[np.uint32]:
    """The closing batch of each job, which depends on its number alone."""
    return (jobs.to_numpy().astype(np.uint32) * _GOLDEN) >> np.uint32(28)


@dataclass(frozen=True)
class JobWindows:
    """Windows of many jobs, which touch: for each job its number (ascending), window size and offset."""

    kind: ClassVar[str] = "template-windows"
    state_version: ClassVar[int] = 1

    windows: tuple[tuple[int, int, int], ...]

    @cached_property
    def _tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sizes and offsets by the jobs' numbers; zero where there is no job."""
        most = max((job for job, _, _ in self.windows), default=0)
        sizes, offsets = np.zeros(most + 2, np.int64), np.zeros(most + 2, np.int64)
        for job, size, offset in self.windows:
            sizes[job], offsets[job] = size, offset
        return sizes, offsets

    @property
    def step(self) -> int:
        return gcd(*(part for _, size, offset in self.windows for part in (size, offset))) or 1

    def covers(self, time: pl.Expr) -> pl.Expr | None:
        return None

    def pane(self, time: pl.Expr) -> pl.Expr:
        return pl.struct(time.alias("t"), pl.col(JOB)).map_batches(self._ends, return_dtype=pl.Int64)

    def sizes(self, jobs: pl.Series) -> npt.NDArray[np.int64]:
        """The window size of each job; zero for a job that is gone."""
        return self._sizes_and_offsets(jobs)[0]

    def has_jobs(self, jobs: pl.Series) -> pl.Series:
        """Whether each job exists."""
        return pl.Series(self.sizes(jobs) > 0)

    def _sizes_and_offsets(self, jobs: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        sizes, offsets = self._tables
        at = np.minimum(jobs.to_numpy(), len(sizes) - 1)
        return sizes[at], offsets[at]

    def _ends(self, rows: pl.Series) -> pl.Series:
        times = rows.struct.field("t").to_numpy()
        sizes, offsets = self._sizes_and_offsets(rows.struct.field(JOB))
        return pl.Series(times - (times - offsets) % sizes + sizes)

    def describe(self) -> str:
        return f"windows of {len(self.windows)} jobs"


@dataclass(frozen=True)
class JobAggregation(PaneOperator):
    """Aggregates per job and key over time windows, emitted when a window closes."""

    kind: ClassVar[str] = "template-window-aggregate"
    state_version: ClassVar[int] = 1

    window: JobWindows

    @property
    def closes_in_batches(self) -> bool:
        return True

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        return state.journal("open", time=PANE).counted(after + 1)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        early = self._open_windows(frame, state, progress) if progress.flush else None
        next_ = progress.after + 1
        due = self.take_panes(frame, state, next_, progress.before + 1, next_ + bool(progress.ahead[1]))
        if due is not None and any(progress.ahead):
            due = due.filter(self._closes_now(due, progress))
        closed = None if due is None else self._result_rows(due)
        return concat_frames(closed, early)

    @staticmethod
    def _closes_now(rows: pl.DataFrame, progress: Progress) -> pl.Series:
        """Whether each row is emitted in this epoch.

        Rows before the watermark are, except those emitted ahead of it; so are those to emit ahead of it now.
        """
        (ahead_before, ahead), batch = progress.ahead, closing_batches(rows[JOB])
        panes = rows[PANE].to_numpy()
        already = (panes == progress.before + 1) & (batch < ahead_before)
        closes = (panes <= progress.after) | ((panes == progress.after + 1) & (batch < ahead))
        return pl.Series(closes & ~already)

    def _open_windows(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The open windows of flushed jobs, as they stand."""
        stored = state.journal("open", time=PANE).rows(progress.after + 1, 2**63 - 1)
        rows = concat_frames(stored, frame)
        if rows is None:
            return None
        rows = rows.filter(pl.col(JOB).is_in(sorted(progress.flush)) & (pl.col(PANE) > progress.after))
        if progress.ahead[1]:
            batch, panes = closing_batches(rows[JOB]), rows[PANE].to_numpy()
            closed = (panes == progress.after + 1) & (batch < progress.ahead[1])
            rows = rows.filter(pl.Series(~closed))
        return self._result_rows(rows, at=max(progress.before, progress.after - 1))

    def _result_rows(self, due: pl.DataFrame, at: int | None = None) -> pl.DataFrame:
        """The rows to emit, of the jobs that still exist; `at`: their time, if it is not the end of the window."""
        closed = merge_partials(due.filter(self.window.has_jobs(due[JOB])), self.keys, self.aggregates).rows
        start, end = pl.Series("start", self.window.sizes(closed[JOB])), pl.col(PANE)
        return closed.select(
            HASH,
            (end - 1 if at is None else pl.lit(at, pl.Int64)).alias(TIME),
            to_datetime(end - start).alias("window_start"),
            to_datetime(end).alias("window_end"),
            *self.keys,
            *(a.result() for a in self.aggregates),
        )

    def describe(self) -> str:
        return describe_aggregation(self.aggregates, self.keys[1:], self.describe_windows())


class _FlushableAggregation(Aggregation):
    """An aggregation that also emits the open windows of flushed jobs."""

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        early = self._open_windows(frame, state, progress) if progress.flush else None
        return concat_frames(super().process(frame, state, replace(progress, flush=frozenset())), early)

    def _open_windows(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The open windows of flushed jobs, as they stand: what would be emitted if time ended now."""
        flushed = pl.col(JOB).is_in(sorted(progress.flush))
        frame = None if frame is None else frame.filter(flushed)
        rows = super().process(frame, state.read_only(flushed), Progress(progress.before, FOREVER))
        if rows is None:
            return None
        now = pl.lit(max(progress.before, progress.after - 1), pl.Int64).alias(TIME)
        return rows.filter(pl.col("window_end") > to_datetime(pl.lit(progress.after))).with_columns(now)


@dataclass(frozen=True)
class JobGapAggregation(_FlushableAggregation):
    """Aggregates per job and key over windows with gaps between them."""

    kind: ClassVar[str] = "template-gap-window-aggregate"
    state_version: ClassVar[int] = 1

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        panes = state.journal("open", time=PANE).counted(self.window.start(self.window.first_open(after)))
        return {start + self.window.size: rows for start, rows in panes.items()}


@dataclass(frozen=True)
class JobSlidingAggregation(_FlushableAggregation, SlidingAggregation):
    """Aggregates per job and key over windows that overlap."""

    kind: ClassVar[str] = "template-sliding-window-aggregate"
    state_version: ClassVar[int] = 1

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        """The cost of a window: its rows merged back from the middle, those merged up to it, and the new ones.

        For the first window of a block, all rows of the window are added.
        """
        window, first = self.window, self.window.first_open(after)
        panes = state.journal("open", time=PANE).counted(window.start(first))
        ends = state.journal("ends", time=PANE).counted(window.start(first))
        since = sum(state.journal("since", time=PANE).counted(window.end(first - 1)).values())
        if not panes and not ends:
            return {}
        earliest, latest = min((*panes, *ends)), max((*panes, *ends))
        first = max(first, (earliest - window.offset - window.size) // window.advance + 1)
        last = (latest - window.offset) // window.advance
        pending: dict[int, int] = {}
        for number in range(first, min(last, first + NEAR_INSTANTS) + 1):
            start, end = window.start(number), window.end(number)
            new = start if number == first else window.end(number - 1)
            if number == first + NEAR_INSTANTS:  # with all later windows
                end = FOREVER
            rows = ends.get(start, 0) + since + sum(n for pane, n in panes.items() if new <= pane < end)
            if self._block > 1 and not number % self._block:
                rows += sum(n for pane, n in panes.items() if start <= pane < new)
            pending[window.end(number)] = rows
        return pending
