"""Aggregate over windows of a number of events: each key's events are counted, and every `every`-th starts a window.

The operator reads events in strict order. It emits a row for each window that is full, at the window's last event. With
`growing` it emits a row for every event, over the last `size` events of the key (or fewer, at first).

A window consists of panes: stretches of events between which windows start or end, two for each advance, or one where
the advance divides the size. An event goes into one pane, however many windows contain it.
State: `kept`, for each key the number of its events and the partial aggregates of the panes of open windows, as lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import FOREVER, NEVER, TIME, Progress, SliceState
from penstock.operators.event_windows import (
    END_OF_TIME,
    START,
    EventWindows,
    Ints,
    drop_keys,
)
from penstock.operators.panes import concat_frames
from penstock.operators.strict import Ordered, position_columns, take_ordered
from penstock.operators.time_windows import expand_ranges
from penstock.state.buckets import HASH
from penstock.state.table import Table

_SEEN = "_seen"
_LIFE = "_life"
_PANE = "_pane"


@dataclass(frozen=True)
class CountWindows(EventWindows):
    """Windows of `size` events that start every `every` events.

    `partial`: once the log has ended for good, windows that are not full are emitted too. A key that is silent for
    `forget_after` microseconds starts from 0 again.
    """

    kind: ClassVar[str] = "count-window"
    state_version: ClassVar[int] = 1

    size: int
    every: int
    growing: bool = False
    partial: bool = False
    forget_after: int | None = None

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        table = state.table("kept", keys=self.keys, time=TIME)
        oldest = None if self.forget_after is None else progress.before - self.forget_after + 1
        if oldest is not None:
            table.expire(oldest)
        table.compact(oldest)
        ordered = take_ordered(frame, self.keys, state, progress)
        full = latest = None
        if ordered is not None:
            full, latest = _EpochEvents(self, ordered, table).results_and_state()
        if self.partial and progress.before < FOREVER <= progress.after:
            results = [full, self._open_windows(latest, table, progress)]
            table.empty()
            return concat_frames(*results)
        if latest is not None:
            table.insert(latest)
        return full

    # -- events, panes and windows of a key, by number -----------------------------------------------

    @property
    def step(self) -> int:
        """How many of the events that are in windows are between the starts of two."""
        return min(self.every, self.size)

    @property
    def rest(self) -> int:
        """How many events after the start of a window another one ends; 0 if that is when one starts."""
        return self.size % self.step

    @property
    def panes(self) -> int:
        """How many panes are between the starts of two windows."""
        return 2 if self.rest else 1

    @property
    def single(self) -> bool:
        """Whether every pane is one event."""
        return self.step == 1 or (self.step == 2 and self.rest == 1)

    def pane_of(self, counted: Ints) -> Ints:
        """The number of the pane of the event with this number."""
        if not self.rest:
            return counted // self.step
        return counted // self.step * 2 + (counted % self.step >= self.rest)

    def in_windows(self, seen: Ints) -> Ints:
        """How many of the first `seen` events of a key are in windows."""
        return seen // self.every * self.step + np.minimum(seen % self.every, self.step)

    def full_windows(self, counted: Ints) -> Ints:
        """How many windows of a key are full after so many events that are in windows."""
        return np.maximum(0, (counted - self.size) // self.step + 1)

    def unpack_panes(self, stored: pl.DataFrame, life: Ints) -> pl.DataFrame:
        """The stored panes, one per row."""
        first_open = self.full_windows(self.in_windows(stored[_SEEN].to_numpy())) * self.panes
        rows = stored.select(START, *self.parts()).with_columns(
            pl.Series(_LIFE, life), pl.Series(_PANE, first_open)
        )
        rows = rows.filter(pl.col(START).list.len() > 0)
        first = rows[_PANE].to_numpy()
        _, pane = expand_ranges(first, first + rows[START].list.len().to_numpy().astype(np.int64) - 1)
        return (
            rows.explode(START, *self.parts())
            .with_columns(pl.Series(_PANE, pane))
            .select(_LIFE, _PANE, START, *self.parts())
        )

    def _open_windows(
        self, latest: pl.DataFrame | None, table: Table, progress: Progress
    ) -> pl.DataFrame | None:
        """The open windows of all keys, as they stand."""
        parts = [] if latest is None else [latest]
        if (stored := table.all()) is not None:
            parts.insert(0, stored if latest is None else drop_keys(stored, latest, self.keys))
        if not parts:
            return None
        keys = pl.concat([rows.select(parts[0].columns) for rows in parts])
        panes = self.unpack_panes(keys, np.arange(keys.height))
        life = panes[_LIFE].to_numpy()
        counted = self.in_windows(keys[_SEEN].to_numpy())
        full = self.full_windows(counted)
        number, window = expand_ranges(full, (counted - 1) // self.step)
        low = np.searchsorted(life, number) + (window - full[number]) * self.panes
        high = np.searchsorted(life, number, side="right")
        rows = keys[number].select(HASH, *self.keys, pl.col(TIME).alias("_end"))
        rows = rows.with_columns(
            pl.lit(max(END_OF_TIME, progress.before)).alias(TIME),
            panes[START].gather(low),
            *self.merge_ranges(panes, low, high),
        )
        return self.result_rows(rows)

    def describe_windows(self) -> str:
        forgetting = f", forgotten after {spelled(self.forget_after)}" if self.forget_after else ""
        if self.every == 1:
            return f"the last {self.size} events{forgetting}"
        return f"windows of {self.size} events, every {self.every}{forgetting}"


class _EpochEvents:
    """The events of one epoch of every key, counted on from the stored number.

    A key that is forgotten and comes back has several lives, each of which counts from 0.
    """

    def __init__(self, operator: CountWindows, ordered: Ordered, table: Table) -> None:
        self._operator = operator
        self._rows = ordered.rows
        self._last = ordered.last
        self._heads = ordered.rows.select(HASH, *operator.keys).filter(pl.Series(ordered.first))
        stored = table.lookup(self._heads, [TIME, _SEEN, START, *operator.parts()])
        times = ordered.rows[TIME].to_numpy()
        continues, lives = stored[_SEEN].is_not_null().to_numpy(), ordered
        if operator.forget_after is not None:
            starts = ordered.first.copy()
            starts[1:] |= times[1:] - times[:-1] >= operator.forget_after
            lives = Ordered(ordered.rows, starts)
            silent = times[ordered.first] - stored[TIME].cast(pl.Int64).fill_null(NEVER).to_numpy()
            continues &= silent < operator.forget_after
        number = lives.number
        self._life_at_last = number[self._last]
        seen = np.zeros(number[-1] + 1, dtype=np.int64)
        seen_before = stored[_SEEN].cast(pl.Int64).fill_null(0).to_numpy()
        seen[number[ordered.first]] = np.where(continues, seen_before, 0)
        self._seen = seen + np.bincount(number)
        self._before, self._after = operator.in_windows(seen), operator.in_windows(self._seen)
        index = seen[number] + lives.place
        self._inside, self._life, self._index = self._rows, number, operator.in_windows(index)
        inside = index % operator.every < operator.size
        if not inside.all():
            self._inside = self._rows.filter(pl.Series(inside))
            self._life, self._index = number[inside], self._index[inside]
        open_ = stored.filter(pl.Series(continues))
        self._panes = self._merge_panes(
            operator.unpack_panes(open_, number[ordered.first][continues]) if open_.height else None
        )

    def _merge_panes(self, before: pl.DataFrame | None) -> pl.DataFrame:
        """The panes that were open, merged with those of the new events."""
        operator = self._operator
        numbers = pl.DataFrame({_LIFE: self._life, _PANE: operator.pane_of(self._index)})
        numbers = numbers.with_columns(self._inside[TIME].alias(START))
        if operator.single:
            fresh = numbers.with_columns(operator.event_partials(self._inside))
        else:
            low, high = _pane_ranges(numbers)
            fresh = numbers[low].with_columns(operator.range_partials(self._inside, low, high))
        if before is None or not before.height:
            return fresh
        both = pl.concat([before, fresh])
        both = both[np.argsort(both[_LIFE].to_numpy(), kind="stable")]
        if operator.single:
            return both
        low, high = _pane_ranges(both)
        return both.select(_LIFE, _PANE, START)[low].with_columns(operator.merge_ranges(both, low, high))

    def results_and_state(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The results of the windows that are full, and the row to store for every key."""
        operator = self._operator
        life, pane = self._panes[_LIFE].to_numpy(), self._panes[_PANE].to_numpy()
        lives = np.arange(len(self._seen))
        # the position at which pane 0 of each life would be
        base = np.searchsorted(life, lives)
        base = base - np.append(pane, 0)[np.minimum(base, len(pane))]
        if operator.growing:
            closing, of = np.arange(len(self._index)), self._life
            low = base[of] + np.maximum(0, self._index + 1 - operator.size)
            high = base[of] + self._index + 1
        else:
            of, window = expand_ranges(
                operator.full_windows(self._before), operator.full_windows(self._after) - 1
            )
            ends = window * operator.step + operator.size
            closing = np.searchsorted(self._life, of) + ends - 1 - self._before[of]
            low = base[of] + window * operator.panes
            high = base[of] + operator.pane_of(ends)
        position = (TIME,) if operator.partial else position_columns(self._inside)
        rows = self._inside[closing].select(HASH, *position, *operator.keys, pl.col(TIME).alias("_end"))
        rows = rows.with_columns(
            self._panes[START].gather(low), *operator.merge_ranges(self._panes, low, high)
        )
        return operator.result_rows(rows), self._open_panes(life, pane)

    def _open_panes(self, life: Ints, pane: Ints) -> pl.DataFrame:
        """The panes of windows that are still open, one row per key."""
        operator = self._operator
        key = np.full(len(self._seen), -1)
        key[self._life_at_last] = np.arange(self._heads.height)
        needed = operator.full_windows(self._after) * operator.panes
        stays = (key[life] >= 0) & (pane >= needed[life])
        lists = (
            self._panes.select(START, *operator.parts())
            .with_columns(pl.Series("_key", key[life]))
            .filter(pl.Series(stays))
            .with_columns(pl.col("_key").set_sorted())
            .group_by("_key", maintain_order=True)
            .agg(pl.all())
        )
        list_of = np.full(self._heads.height, -1)
        list_of[lists["_key"].to_numpy()] = np.arange(lists.height)
        at = pl.Series(list_of).replace(-1, None)
        return self._heads.with_columns(
            self._rows[TIME].filter(pl.Series(self._last)),
            pl.Series(_SEEN, self._seen[self._life_at_last]),
            *lists.select(pl.exclude("_key").gather(at)).get_columns(),
        )


def _pane_ranges(rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """The ranges [low, high) of rows of equal life and pane, which are adjacent."""
    life, pane = rows[_LIFE].to_numpy(), rows[_PANE].to_numpy()
    new = (life[1:] != life[:-1]) | (pane[1:] != pane[:-1])
    low = np.append(0, np.flatnonzero(new) + 1)[: rows.height]
    return low, np.append(low[1:], rows.height)[: len(low)]
