"""Sessions: windows of events of a key that follow one another closely.

Receives events in strict order; hands the answer of every session once the key has been silent long enough, or the
session has become as long as one may be.

A session of which the last event is at time t goes on with an event before t + gap, and ends at t + gap; with
`longest`, one that began at s ends at s + longest, if it has not ended before. Its row happens at the last
instant before its end. A job that is flushed tells its open sessions too, as they stand with the events that still wait
for their turn; they are told again when they end.
State: `open`, a table of one row per open session: when it began, when it would end, and its partial answer.
Rows grow old with their ends, so what has ended needs no deleting.
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
from penstock.state.collection import Table


@dataclass(frozen=True)
class SessionWindows(EventWindows):
    """Sessions that end when the key is silent for `gap` microseconds, at the latest `longest` after they began."""

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
        early = self._waiting(frame, sessions, state, progress) if progress.flush else None
        ordered = take_ordered(frame, self.keys, state, progress)
        made = [] if ended is None else [ended]
        now = None
        if ordered is not None:
            now, gone_on = self._sessions(ordered, lambda heads: sessions.lookup(heads, self._kept()))
            over = pl.col(DUE) < progress.after
            sessions.insert(now.filter(~over))
            made = [drop_keys(rows, gone_on, self.keys) for rows in made]
            made.append(now.filter(over))
        rows = pl.concat([rows.select(made[-1].columns) for rows in made]) if made else None
        closed = self._told(rows, pl.col(DUE))
        if early is None:
            return closed
        at = max(progress.before, progress.after - 1)
        return concat_frames(closed, self._told(self._standing(*early, now, progress), pl.lit(at, pl.Int64)))

    def _told(self, rows: pl.DataFrame | None, at: pl.Expr) -> pl.DataFrame | None:
        if rows is None or not rows.height:
            return None
        return self.result_rows(rows.with_columns((pl.col(DUE) + 1).alias("_end"), at.alias(TIME)))

    def _kept(self) -> list[str]:
        return [START, DUE, *self.parts()]

    # -- flushed ---------------------------------------------------------------------------------

    def _waiting(
        self, frame: pl.DataFrame | None, sessions: Table, state: SliceState, progress: Progress
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The sessions that were open before this epoch and still are, and the events that wait after it."""
        earlier = state.journal("waiting", time=TIME).rows(progress.after, FOREVER)
        early = None if frame is None else frame.filter(pl.col(TIME) >= progress.after)
        return sessions.due(progress.after, FOREVER), concat_frames(earlier, early)

    def _standing(
        self,
        before: pl.DataFrame | None,
        waiting: pl.DataFrame | None,
        now: pl.DataFrame | None,
        progress: Progress,
    ) -> pl.DataFrame | None:
        """All open sessions, if no other event came."""
        if now is not None and before is not None:
            before = drop_keys(before, now.select(HASH, *self.keys).unique(), self.keys)
        still = concat_frames(before, None if now is None else now.filter(pl.col(DUE) >= progress.after))
        if waiting is None:
            return still

        def kept(heads: pl.DataFrame) -> pl.DataFrame:
            if still is None:
                return heads.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (START, DUE))
            on = [HASH, *self.keys]
            found = heads.join(still, on=on, how="left", nulls_equal=True, maintain_order="left")
            return found.select(self._kept())

        more, gone_on = self._sessions(group_by_key(waiting, self.keys, total_order(waiting)), kept)
        return concat_frames(None if still is None else drop_keys(still, gone_on, self.keys), more)

    # -- sessions --------------------------------------------------------------------------------

    def _sessions(
        self, ordered: Ordered, kept_of: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The sessions the events are in, and the keys of those that were open before: `kept_of` says which were."""
        rows, first = ordered.rows, ordered.first
        heads = rows.select(HASH, *self.keys).filter(pl.Series(first))
        kept = kept_of(heads)
        times = rows[TIME].to_numpy()
        # what has ended may still be found; it ended before the first of these events
        goes_on = times[first] <= kept[DUE].cast(pl.Int64).fill_null(NEVER).to_numpy()
        from_ = np.full(len(times), -1)
        from_[first] = np.where(goes_on, np.arange(len(goes_on)), -1)
        began = np.where(from_ < 0, times, 0)
        began[from_ >= 0] = kept[START].cast(pl.Int64).fill_null(0).to_numpy()[goes_on]
        begins = self._begins(times, first, began)
        low = np.flatnonzero(begins)
        high = np.append(low[1:], len(times))
        last = times[high - 1]
        due = last + self.gap - 1
        if self.longest is not None:
            due = np.minimum(due, began[low] + self.longest - 1)
        made = rows.select(HASH, *self.keys)[low].with_columns(
            pl.Series(START, began[low]), pl.Series(DUE, due), *self.range_partials(rows, low, high)
        )
        return self.continue_partials(made, kept, from_[low]), heads.filter(pl.Series(goes_on))

    def _begins(self, times: Ints, first: np.ndarray, began: Ints) -> np.ndarray:
        """Marks the first event of each session; `began` is when a session that starts with a row began."""
        begins = first.copy()
        begins[1:] |= times[1:] - times[:-1] >= self.gap
        if self.longest is None:
            return begins
        low = np.flatnonzero(begins)
        high = np.append(low[1:], len(times))
        long = times[high - 1] - began[low] >= self.longest
        if not long.any():
            return begins
        # of the sessions that are too long each row leads to the one that would begin the next
        low, high = low[long], high[long]
        session, row = expand_ranges(low, high - 1)
        following = np.full(len(times), len(times))
        to = first_from(times, began[row] + self.longest, row, high[session])
        following[row] = np.where(to < high[session], to, len(times))
        return begins | mark_chain(low, following)

    def describe_windows(self) -> str:
        capped = "" if self.longest is None else f", of {spelled(self.longest)} at most"
        return f"sessions with gaps of {spelled(self.gap)}{capped}"
