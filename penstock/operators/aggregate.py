"""Aggregates over time windows: panes are reduced where the events are, kept open as runs, closed by the watermark.

Receives partial answers per (key, pane), already reduced by the senders; hands the answer of every window
(or running total) whose time has come.
State: `open`, a journal of partial answers (inserting reads nothing); `totals`, a table, for running totals.

Commutative: inside an epoch the order of events does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.cells import PANE, cells
from penstock.operators.contract import TIME, Operator, Progress, SliceState
from penstock.operators.functions import AggregateFunction, in_a_place
from penstock.operators.strict import Ordered
from penstock.state.buckets import HASH, with_hash
from penstock.state.collection import Table
from penstock.words.duration import spelled


@dataclass(frozen=True)
class Aggregation(Operator):
    """Aggregates per key over tumbling windows of `size` microseconds; or, with `running`, since the
    beginning, told anew at the end of every `size` in which the key had events."""

    keys: tuple[str, ...]
    size: int
    aggregates: tuple[AggregateFunction, ...]
    running: bool = False

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        instant = pl.Datetime("us", "UTC")
        when: dict[str, pl.DataType] = (
            {"as_of": instant} if self.running else {"window_start": instant, "window_end": instant}
        )
        return (
            when
            | {key: incoming[key] for key in self.keys}
            | {aggregate.alias: aggregate.dtype(incoming) for aggregate in self.aggregates}
        )

    def needs(self) -> set[str]:
        return {*self.keys, *(a.column for a in self.aggregates if a.column is not None)}

    def prepare(self, frame: pl.DataFrame) -> pl.DataFrame:
        pane = (pl.col(TIME) // self.size).alias(PANE)
        if any(aggregate.sequential for aggregate in self.aggregates):
            frame = in_a_place(frame)
        if self.keys and _mostly_apart(frame, self.keys):
            rows = frame.select(*self.keys, pane, *(e for a in self.aggregates for e in a.of_event()))
            return cells(with_hash(rows, self.keys), self.keys, self.aggregates).rows
        reduced = frame.group_by(*self.keys, pane).agg(e for a in self.aggregates for e in a.of_events())
        # whichever way, the same columns in the same order: the receiver puts them one below the other
        return with_hash(reduced, self.keys).select(HASH, *self.keys, PANE, *self._parts())

    def combine(self, frame: pl.DataFrame) -> pl.DataFrame:
        return cells(frame, self.keys, self.aggregates).rows

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        floor, closing = progress.before // self.size, progress.after // self.size
        panes = state.journal("open", time=PANE)
        earlier = panes.flush(floor, closing)
        due = [earlier] if earlier is not None and earlier.height else []
        if frame is not None and frame.height:
            later = frame.filter(pl.col(PANE) >= closing)
            if later.height:
                panes.insert(self.combine(later))
                frame = frame.filter(pl.col(PANE) < closing)
            if frame.height:
                due.append(frame)
        panes.compact(closing, self.combine)
        if not due:
            return None
        together = pl.concat([rows.select(due[0].columns) for rows in due])
        closed = cells(together, self.keys, self.aggregates)
        return self._finished(self._run_on(closed, state) if self.running else closed.rows)

    def _run_on(self, closed: Ordered, state: SliceState) -> pl.DataFrame:
        """Partial answers per pane to totals up to the end of the pane."""
        totals = self._totals(state)
        totals.compact()
        parts, rows, first = self._parts(), closed.rows, closed.first
        before = totals.lookup(rows.select(HASH, *self.keys).filter(pl.Series(first)), parts)
        # the first pane of a key goes on from its total so far, the others from the pane before
        at = pl.Series(np.where(first, closed.number, -1)).replace(-1, None)
        before = before.select(
            pl.col(part).cast(rows.schema[part]).gather(at).alias(f"{part}.before") for part in parts
        )
        rows = rows.hstack(before).select(
            HASH, *self.keys, PANE, *(e for a in self.aggregates for e in a.joined(".before"))
        )
        if not first.all():
            rows = rows.with_columns(pl.Series("_number", closed.number)).with_columns(
                e for a in self.aggregates for e in a.running("_number")
            )
        totals.insert(rows.filter(pl.Series(closed.last)).drop("_number", strict=False))
        return rows

    def current(self, state: SliceState) -> pl.DataFrame | None:
        """The totals of all keys of the slice as of the last epoch (only for `running`)."""
        rows = self._totals(state).all()
        return None if rows is None else self._finished(rows)

    def _totals(self, state: SliceState) -> Table:
        return state.table("totals", keys=self.keys)

    def _finished(self, closed: pl.DataFrame) -> pl.DataFrame:
        start = (pl.col(PANE) * self.size).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        end = ((pl.col(PANE) + 1) * self.size).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        when = (
            [end.alias("as_of")] if self.running else [start.alias("window_start"), end.alias("window_end")]
        )
        # a result happens at the last instant of its window: before whatever comes at its end
        instant = ((pl.col(PANE) + 1) * self.size - 1).alias(TIME)
        return closed.select(HASH, instant, *when, *self.keys, *(a.result() for a in self.aggregates))

    def _parts(self) -> list[str]:
        return [part for aggregate in self.aggregates for part in aggregate.parts()]

    def describe(self) -> str:
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        over = f"running, every {spelled(self.size)}" if self.running else f"windows of {spelled(self.size)}"
        return f"{what} per {', '.join(self.keys) or 'everything'} over {over}"


def _mostly_apart(frame: pl.DataFrame, keys: tuple[str, ...]) -> bool:
    """Whether a sample of the rows has few equal keys: then sorting by hash beats a hash table of texts."""
    sample = frame.select(keys).head(4_096)
    return sample.n_unique() * 2 > sample.height
