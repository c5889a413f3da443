"""Session windows: a session is a range of events of one key without a gap between them.

The input is in strict order. A session's result is emitted when its key has been silent for `gap`, or when the session
has the greatest length allowed.

A session whose last event is at time t continues with an event before t + gap, and ends at t + gap. With `longest`, one
that started at s ends at s + longest at the latest. The time of its row is the last instant before its end. A job that
is flushed also emits its open sessions, including the events that wait for their turn; they are emitted again when they
end.
State: `open`, a table of one row per open session: its start, its end if no event follows, and its partial aggregate.
Rows expire with their ends, so nothing deletes sessions that have ended.
"""

from __future__ import annotations

from collections.abc import Callable
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
from penstock.operators.panes import concat_frames
from penstock.operators.strict import Ordered, group_by_key, take_ordered, total_order
from penstock.operators.time_windows import expand_ranges
from penstock.operators.timeline import mark_chain
from penstock.state.buckets import HASH
from penstock.state.table import Table


@dataclass(frozen=True)
class SessionWindows(EventWindows):
    """Sessions that end when the key is silent for `gap` microseconds, at the latest `longest` after their start."""

    kind: ClassVar[str] = "session-window"
    state_version: ClassVar[int] = 1

    gap: int
    longest: int | None = None

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        sessions = state.table("open", keys=self.keys, time=DUE)
        sessions.expire(progress.before)
        sessions.compact(progress.before)
        ended = sessions.due(progress.before, progress.after)
        flushed = self._read_open(frame, sessions, state, progress) if progress.flush else None
        ordered = take_ordered(frame, self.keys, state, progress)
        closed = [] if ended is None else [ended]
        now = None
        if ordered is not None:
            now, continued = self._find_sessions(
                ordered, lambda heads: sessions.lookup(heads, self._columns())
            )
            over = pl.col(DUE) < progress.after
            sessions.insert(now.filter(~over))
            closed = [drop_keys(rows, continued, self.keys) for rows in closed]
            closed.append(now.filter(over))
        rows = pl.concat([rows.select(closed[-1].columns) for rows in closed]) if closed else None
        results = self._results(rows, pl.col(DUE))
        if flushed is None:
            return results
        at = max(progress.before, progress.after - 1)
        still_open = self._flush_sessions(*flushed, now, progress)
        return concat_frames(results, self._results(still_open, pl.lit(at, pl.Int64)))

    def _results(self, rows: pl.DataFrame | None, at: pl.Expr) -> pl.DataFrame | None:
        if rows is None or not rows.height:
            return None
        return self.result_rows(rows.with_columns((pl.col(DUE) + 1).alias("_end"), at.alias(TIME)))

    def _columns(self) -> list[str]:
        """The columns of a stored session."""
        return [START, DUE, *self.parts()]

    # -- flush -----------------------------------------------------------------------------------

    def _read_open(
        self, frame: pl.DataFrame | None, sessions: Table, state: SliceState, progress: Progress
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The sessions that were open before this epoch and have not ended, and the events that wait after it."""
        earlier = state.journal("waiting", time=TIME).rows(progress.after, FOREVER)
        early = None if frame is None else frame.filter(pl.col(TIME) >= progress.after)
        return sessions.due(progress.after, FOREVER), concat_frames(earlier, early)

    def _flush_sessions(
        self,
        before: pl.DataFrame | None,
        waiting: pl.DataFrame | None,
        now: pl.DataFrame | None,
        progress: Progress,
    ) -> pl.DataFrame | None:
        """All open sessions, with the events that wait."""
        if now is not None and before is not None:
            before = drop_keys(before, now.select(HASH, *self.keys).unique(), self.keys)
        still_open = concat_frames(before, None if now is None else now.filter(pl.col(DUE) >= progress.after))
        if waiting is None:
            return still_open

        def lookup(heads: pl.DataFrame) -> pl.DataFrame:
            if still_open is None:
                return heads.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (START, DUE))
            on = [HASH, *self.keys]
            found = heads.join(still_open, on=on, how="left", nulls_equal=True, maintain_order="left")
            return found.select(self._columns())

        ordered = group_by_key(waiting, self.keys, total_order(waiting))
        extended, continued = self._find_sessions(ordered, lookup)
        others = None if still_open is None else drop_keys(still_open, continued, self.keys)
        return concat_frames(others, extended)

    # -- sessions --------------------------------------------------------------------------------

    def _find_sessions(
        self, ordered: Ordered, lookup: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions of the events, and the keys of those that were open before, which `lookup` finds."""
        rows, first = ordered.rows, ordered.first
        heads = rows.select(HASH, *self.keys).filter(pl.Series(first))
        stored = lookup(heads)
        times = rows[TIME].to_numpy()
        # a session that has ended may still be found; it ended before the first of these events
        continues = times[first] <= stored[DUE].cast(pl.Int64).fill_null(NEVER).to_numpy()
        from_ = np.full(len(times), -1)
        from_[first] = np.where(continues, np.arange(len(continues)), -1)
        start = np.where(from_ < 0, times, 0)
        start[from_ >= 0] = stored[START].cast(pl.Int64).fill_null(0).to_numpy()[continues]
        low = np.flatnonzero(self._mark_starts(times, first, start))
        high = np.append(low[1:], len(times))
        last = times[high - 1]
        due = last + self.gap - 1
        if self.longest is not None:
            due = np.minimum(due, start[low] + self.longest - 1)
        sessions = rows.select(HASH, *self.keys)[low].with_columns(
            pl.Series(START, start[low]), pl.Series(DUE, due), *self.range_partials(rows, low, high)
        )
        return self.continue_partials(sessions, stored, from_[low]), heads.filter(pl.Series(continues))

    def _mark_starts(self, times: Ints, first: np.ndarray, start: Ints) -> np.ndarray:
        """Mark the first event of each session. `start` is the start of a session whose first event is the row."""
        starts = first.copy()
        starts[1:] |= times[1:] - times[:-1] >= self.gap
        if self.longest is None:
            return starts
        low = np.flatnonzero(starts)
        high = np.append(low[1:], len(times))
        long = times[high - 1] - start[low] >= self.longest
        if not long.any():
            return starts
        # in sessions that are too long, each row leads to the one that would start the next session
        low, high = low[long], high[long]
        session, row = expand_ranges(low, high - 1)
        following = np.full(len(times), len(times))
        to = first_from(times, start[row] + self.longest, row, high[session])
        following[row] = np.where(to < high[session], to, len(times))
        return starts | mark_chain(low, following)

    def describe_windows(self) -> str:
        capped = "" if self.longest is None else f", of {spelled(self.longest)} at most"
        return f"sessions with gaps of {spelled(self.gap)}{capped}"
