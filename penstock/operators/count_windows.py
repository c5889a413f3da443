"""Windows of so many events: every key's events are counted in strict order, and each `every`-th begins a window.

Receives events in strict order; hands a row for each window that is full, at its last event. With `growing` a row
for every event, over the last `size` events of its key that there are.

A window is made of panes: stretches of events between which windows begin or end, two for each advance, or one
where the advance divides the size. An event goes into one pane, however many windows it is in.
State: per key how many events it has had, and the partial answers of the panes of its open windows, as lists.
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
from penstock.operators.strict import Ordered, position_columns, take_ordered
from penstock.operators.time_windows import expand_ranges
from penstock.state.buckets import HASH
from penstock.state.table import Table

_SEEN = "_seen"
_LIFE = "_life"
_PANE = "_pane"


@dataclass(frozen=True)
class CountWindows(EventWindows):
    """Windows of `size` events that begin every `every` events.

    `partial` tells windows that are not full once the log has ended for good. A key silent for `forget_after`
    microseconds begins anew.
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
        memory = state.table("kept", keys=self.keys, time=TIME)
        oldest = None if self.forget_after is None else progress.before - self.forget_after + 1
        if oldest is not None:
            memory.expire(oldest)
        memory.compact(oldest)
        ordered = take_ordered(frame, self.keys, state, progress)
        full = kept = None
        if ordered is not None:
            full, kept = _Counted(self, ordered, memory).rows()
        if self.partial and progress.before < FOREVER <= progress.after:
            made = [rows for rows in (full, self._unfinished(kept, memory, progress)) if rows is not None]
            memory.empty()
            return pl.concat(made) if made else None
        if kept is not None:
            memory.insert(kept)
        return full

    # -- events, panes and windows of a key, by number --------------------------------------------------------

    @property
    def step(self) -> int:
        """How many of the events that are in windows lie between the beginnings of two."""
        return min(self.every, self.size)

    @property
    def rest(self) -> int:
        """How many events after a window's beginning another one ends; 0 if that is when one begins."""
        return self.size % self.step

    @property
    def panes(self) -> int:
        """How many panes lie between the beginnings of two windows."""
        return 2 if self.rest else 1

    @property
    def single(self) -> bool:
        """Whether every pane is one event."""
        return self.step == 1 or (self.step == 2 and self.rest == 1)

    def pane_of(self, counted: Ints) -> Ints:
        """The number of the pane that the event with this number is in."""
        if not self.rest:
            return counted // self.step
        return counted // self.step * 2 + (counted % self.step >= self.rest)

    def counted(self, seen: Ints) -> Ints:
        """Of the first events of a key, those that are in windows."""
        return seen // self.every * self.step + np.minimum(seen % self.every, self.step)

    def complete(self, counted: Ints) -> Ints:
        """How many windows of a key are full."""
        return np.maximum(0, (counted - self.size) // self.step + 1)

    def unpacked(self, kept: pl.DataFrame, life: Ints) -> pl.DataFrame:
        """The panes of the state, one a row."""
        open_ = self.complete(self.counted(kept[_SEEN].to_numpy())) * self.panes
        rows = kept.select(START, *self.parts()).with_columns(pl.Series(_LIFE, life), pl.Series(_PANE, open_))
        rows = rows.filter(pl.col(START).list.len() > 0)
        first = rows[_PANE].to_numpy()
        _, pane = expand_ranges(first, first + rows[START].list.len().to_numpy().astype(np.int64) - 1)
        return (
            rows.explode(START, *self.parts())
            .with_columns(pl.Series(_PANE, pane))
            .select(_LIFE, _PANE, START, *self.parts())
        )

    def _unfinished(
        self, kept: pl.DataFrame | None, memory: Table, progress: Progress
    ) -> pl.DataFrame | None:
        """The open windows of all keys."""
        found = [] if kept is None else [kept]
        if (earlier := memory.all()) is not None:
            found.insert(0, earlier if kept is None else drop_keys(earlier, kept, self.keys))
        if not found:
            return None
        keys = pl.concat([rows.select(found[0].columns) for rows in found])
        panes = self.unpacked(keys, np.arange(keys.height))
        life = panes[_LIFE].to_numpy()
        counted = self.counted(keys[_SEEN].to_numpy())
        full = self.complete(counted)
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


class _Counted:
    """One epoch's events of every key, counted on from what is kept of it.

    A key that is forgotten and comes back has several lives, each of which counts from 0.
    """

    def __init__(self, operator: CountWindows, ordered: Ordered, memory: Table) -> None:
        self._operator = operator
        self._rows = ordered.rows
        self._last = ordered.last
        self._heads = ordered.rows.select(HASH, *operator.keys).filter(pl.Series(ordered.first))
        kept = memory.lookup(self._heads, [TIME, _SEEN, START, *operator.parts()])
        times = ordered.rows[TIME].to_numpy()
        goes_on, lives = kept[_SEEN].is_not_null().to_numpy(), ordered
        if operator.forget_after is not None:
            begins = ordered.first.copy()
            begins[1:] |= times[1:] - times[:-1] >= operator.forget_after
            lives = Ordered(ordered.rows, begins)
            silent = times[ordered.first] - kept[TIME].cast(pl.Int64).fill_null(NEVER).to_numpy()
            goes_on &= silent < operator.forget_after
        number = lives.number
        self._life_at_last = number[self._last]
        seen = np.zeros(number[-1] + 1, dtype=np.int64)
        seen[number[ordered.first]] = np.where(goes_on, kept[_SEEN].cast(pl.Int64).fill_null(0).to_numpy(), 0)
        self._seen = seen + np.bincount(number)
        self._before, self._after = operator.counted(seen), operator.counted(self._seen)
        index = seen[number] + lives.place
        self._inside, self._life, self._index = self._rows, number, operator.counted(index)
        inside = index % operator.every < operator.size
        if not inside.all():
            self._inside = self._rows.filter(pl.Series(inside))
            self._life, self._index = number[inside], self._index[inside]
        held = kept.filter(pl.Series(goes_on))
        self._panes = self._together(
            operator.unpacked(held, number[ordered.first][goes_on]) if held.height else None
        )

    def _together(self, before: pl.DataFrame | None) -> pl.DataFrame:
        """The panes that were open and those of the new events."""
        operator = self._operator
        numbers = pl.DataFrame({_LIFE: self._life, _PANE: operator.pane_of(self._index)})
        numbers = numbers.with_columns(self._inside[TIME].alias(START))
        if operator.single:
            fresh = numbers.with_columns(operator.event_partials(self._inside))
        else:
            low, high = _stretches(numbers)
            fresh = numbers[low].with_columns(operator.range_partials(self._inside, low, high))
        if before is None or not before.height:
            return fresh
        both = pl.concat([before, fresh])
        both = both[np.argsort(both[_LIFE].to_numpy(), kind="stable")]
        if operator.single:
            return both
        low, high = _stretches(both)
        return both.select(_LIFE, _PANE, START)[low].with_columns(operator.merge_ranges(both, low, high))

    def rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The answers of the windows that are full, and what is to be kept of every key."""
        operator = self._operator
        life, pane = self._panes[_LIFE].to_numpy(), self._panes[_PANE].to_numpy()
        lives = np.arange(len(self._seen))
        # where pane 0 of each life would stand, and where its event 0
        base = np.searchsorted(life, lives)
        base = base - np.append(pane, 0)[np.minimum(base, len(pane))]
        if operator.growing:
            closing, of = np.arange(len(self._index)), self._life
            low = base[of] + np.maximum(0, self._index + 1 - operator.size)
            high = base[of] + self._index + 1
        else:
            of, window = expand_ranges(operator.complete(self._before), operator.complete(self._after) - 1)
            ends = window * operator.step + operator.size
            closing = np.searchsorted(self._life, of) + ends - 1 - self._before[of]
            low = base[of] + window * operator.panes
            high = base[of] + operator.pane_of(ends)
        place = (TIME,) if operator.partial else position_columns(self._inside)
        rows = self._inside[closing].select(HASH, *place, *operator.keys, pl.col(TIME).alias("_end"))
        rows = rows.with_columns(
            self._panes[START].gather(low), *operator.merge_ranges(self._panes, low, high)
        )
        return operator.result_rows(rows), self._kept(life, pane)

    def _kept(self, life: Ints, pane: Ints) -> pl.DataFrame:
        """The panes of windows still open, as one row a key."""
        operator = self._operator
        key = np.full(len(self._seen), -1)
        key[self._life_at_last] = np.arange(self._heads.height)
        needed = operator.complete(self._after) * operator.panes
        stays = (key[life] >= 0) & (pane >= needed[life])
        lists = (
            self._panes.select(START, *operator.parts())
            .with_columns(pl.Series("_key", key[life]))
            .filter(pl.Series(stays))
            .with_columns(pl.col("_key").set_sorted())
            .group_by("_key", maintain_order=True)
            .agg(pl.all())
        )
        where = np.full(self._heads.height, -1)
        where[lists["_key"].to_numpy()] = np.arange(lists.height)
        at = pl.Series(where).replace(-1, None)
        return self._heads.with_columns(
            self._rows[TIME].filter(pl.Series(self._last)),
            pl.Series(_SEEN, self._seen[self._life_at_last]),
            *lists.select(pl.exclude("_key").gather(at)).get_columns(),
        )


def _stretches(rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """Where rows of equal life and pane, which stand together, begin and end."""
    life, pane = rows[_LIFE].to_numpy(), rows[_PANE].to_numpy()
    new = (life[1:] != life[:-1]) | (pane[1:] != pane[:-1])
    low = np.append(0, np.flatnonzero(new) + 1)[: rows.height]
    return low, np.append(low[1:], rows.height)[: len(low)]
