"""Aggregates of many jobs at once, each over windows of its own size: jobs are rows here, not programs.

Receives partial answers per job, key and window; hands, once the watermark reaches a window's end, one row for every
key of the job that had events in it.
State: `open`, a journal of partial answers. A pane is a whole window and named by its end, so that the windows that
are over lie together whatever their sizes.

What ends at one instant can be told in several epochs, lot by lot: a job's windows are told together all the same.
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
from penstock.operators.panes import PaneOperator, concat_frames
from penstock.operators.partials import PANE, merge_partials
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import to_datetime
from penstock.state.buckets import HASH

#: the number of the job a row belongs to (UInt32)
JOB = "_job"
#: what ends at one instant may be told lot by lot, in several epochs: jobs are dealt out to so many
CLOSING_BATCHES = 16
#: of how many instants to come it is said how many rows wait for them; what waits for later ones counts for one more
NEAR_INSTANTS = 32
_GOLDEN = np.uint32(0x9E3779B1)


def closing_batches(jobs: pl.Series) -> npt.NDArray[np.uint32]:
    """The lot of each job: by its number, for life."""
    return (jobs.to_numpy().astype(np.uint32) * _GOLDEN) >> np.uint32(28)


@dataclass(frozen=True)
class JobWindows:
    """The windows of many jobs, one after the other: a job's number (ascending), its windows' size and offset."""

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

    def held(self, time: pl.Expr) -> pl.Expr | None:
        return None

    def pane(self, time: pl.Expr) -> pl.Expr:
        return pl.struct(time.alias("t"), pl.col(JOB)).map_batches(self._ends, return_dtype=pl.Int64)

    def sizes(self, jobs: pl.Series) -> npt.NDArray[np.int64]:
        """The size of each job's windows; those of a job that is gone are zero."""
        return self._of(jobs)[0]

    def known(self, jobs: pl.Series) -> pl.Series:
        """Whether each job is there."""
        return pl.Series(self._of(jobs)[0] > 0)

    def _of(self, jobs: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        sizes, offsets = self._tables
        at = np.minimum(jobs.to_numpy(), len(sizes) - 1)
        return sizes[at], offsets[at]

    def _ends(self, rows: pl.Series) -> pl.Series:
        times = rows.struct.field("t").to_numpy()
        sizes, offsets = self._of(rows.struct.field(JOB))
        return pl.Series(times - (times - offsets) % sizes + sizes)

    def describe(self) -> str:
        return f"windows of {len(self.windows)} jobs"


@dataclass(frozen=True)
class JobAggregation(PaneOperator):
    """Aggregates per job and key over windows of time, told when a window closes. The first key is the job."""

    kind: ClassVar[str] = "template-window-aggregate"
    state_version: ClassVar[int] = 1

    window: JobWindows

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        early = self._flushed(frame, state, progress) if progress.flush else None
        next_ = progress.after + 1
        due = self.take_due(frame, state, next_, progress.before + 1, next_ + bool(progress.ahead[1]))
        if due is not None and any(progress.ahead):
            due = due.filter(self._in_turn(due, progress))
        closed = None if due is None else self._finished(due)
        return concat_frames(closed, early)

    @property
    def closes_in_batches(self) -> bool:
        return True

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        return state.journal("open", time=PANE).counted(after + 1)

    @staticmethod
    def _in_turn(rows: pl.DataFrame, progress: Progress) -> pl.Series:
        """Which rows are told in this epoch: those before the watermark but for what was told ahead of it, and what is
        told ahead of it now."""
        (begun, ahead), lot, panes = progress.ahead, closing_batches(rows[JOB]), rows[PANE].to_numpy()
        told = (panes == progress.before + 1) & (lot < begun)
        wanted = (panes <= progress.after) | ((panes == progress.after + 1) & (lot < ahead))
        return pl.Series(wanted & ~told)

    def _flushed(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The windows that are still open, as they stand, of jobs that are asked for them."""
        waiting = state.journal("open", time=PANE).rows(progress.after + 1, 2**63 - 1)
        rows = concat_frames(waiting, frame)
        if rows is None:
            return None
        rows = rows.filter(pl.col(JOB).is_in(sorted(progress.flush)) & (pl.col(PANE) > progress.after))
        if progress.ahead[1]:  # these are over
            ahead = (rows[PANE].to_numpy() == progress.after + 1) & (
                closing_batches(rows[JOB]) < progress.ahead[1]
            )
            rows = rows.filter(pl.Series(~ahead))
        return self._finished(rows, at=max(progress.before, progress.after - 1))

    def _finished(self, due: pl.DataFrame, at: int | None = None) -> pl.DataFrame:
        """Rows as they are told, of the jobs that are still there; `at`: when, if not as the window ends."""
        closed = merge_partials(due.filter(self.window.known(due[JOB])), self.keys, self.aggregates).rows
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
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        return f"{what} per {', '.join(self.keys[1:]) or 'everything'} over {self.describe_windows()}"


class _FlushableAggregation(Aggregation):
    """Tells open windows when it is asked for them."""

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        early = self._early(frame, state, progress) if progress.flush else None
        return concat_frames(super().process(frame, state, replace(progress, flush=frozenset())), early)

    def _early(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        wanted = pl.col(JOB).is_in(sorted(progress.flush))
        mine = None if frame is None else frame.filter(wanted)
        told = super().process(mine, state.read_only(wanted), Progress(progress.before, FOREVER))
        if told is None:
            return None
        now = pl.lit(max(progress.before, progress.after - 1), pl.Int64).alias(TIME)
        return told.filter(pl.col("window_end") > to_datetime(pl.lit(progress.after))).with_columns(now)


@dataclass(frozen=True)
class JobGapAggregation(_FlushableAggregation):
    """Aggregates per job and key over windows with gaps between them."""

    kind: ClassVar[str] = "template-gap-window-aggregate"
    state_version: ClassVar[int] = 1

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        open_ = self.window.start(self.window.first_open(after))
        counted = state.journal("open", time=PANE).counted(open_)
        return {start + self.window.size: rows for start, rows in counted.items()}


@dataclass(frozen=True)
class JobSlidingAggregation(_FlushableAggregation, SlidingAggregation):
    """Aggregates per job and key over windows that overlap."""

    kind: ClassVar[str] = "template-sliding-window-aggregate"
    state_version: ClassVar[int] = 1

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
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
        for number in range(first, min(last, first + NEAR_INSTANTS) + 1):
            start, end = window.start(number), window.end(number)
            new = start if number == first else window.end(number - 1)
            if number == first + NEAR_INSTANTS:  # and all after it
                end = FOREVER
            rows = ends.get(start, 0) + since + sum(n for pane, n in panes.items() if new <= pane < end)
            if self._block > 1 and not number % self._block:
                rows += sum(n for pane, n in panes.items() if start <= pane < new)
            found[window.end(number)] = rows
        return found
