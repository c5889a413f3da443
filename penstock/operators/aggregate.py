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

from penstock.operators.contract import TIME, Operator, Progress, SliceState
from penstock.operators.functions import Aggregate, Part
from penstock.operators.strict import grouped
from penstock.state.buckets import HASH
from penstock.state.collection import Table
from penstock.words.duration import spelled

#: the number of the time window: its start divided by its size
PANE = "_pane"


@dataclass(frozen=True)
class Aggregation(Operator):
    """Aggregates per key over tumbling windows of `size` microseconds; or, with `running`, since the
    beginning, told anew at the end of every `size` in which the key had events."""

    keys: tuple[str, ...]
    size: int
    aggregates: tuple[Aggregate, ...]
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
        return frame.group_by(*self.keys, pane).agg(part.started() for part in self._parts())

    def combine(self, frame: pl.DataFrame) -> pl.DataFrame:
        keys = [HASH] if HASH in frame.columns else []
        return frame.group_by(*keys, *self.keys, PANE).agg(part.merged() for part in self._parts())

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
        closed = self.combine(pl.concat(due, how="diagonal"))
        if self.running:
            closed = self._run_on(closed, state)
        return self._finished(closed)

    def _run_on(self, closed: pl.DataFrame, state: SliceState) -> pl.DataFrame:
        """Partial answers per pane to totals up to the end of the pane."""
        totals = self._totals(state)
        totals.compact()
        ordered = grouped(closed.sort(PANE), self.keys)
        parts, rows, first = self._parts(), ordered.rows, ordered.first
        before = totals.lookup(
            rows.select(HASH, *self.keys).filter(pl.Series(first)), [part.name for part in parts]
        )
        # the first pane of a key goes on from its total so far, the others from the pane before
        at = pl.Series(np.where(first, ordered.number, -1)).replace(-1, None)
        before = before.select(pl.all().gather(at).name.suffix(".before"))
        rows = rows.hstack(before).with_columns(
            part.joined(pl.col(f"{part.name}.before").cast(rows.schema[part.name])).alias(part.name)
            for part in parts
        )
        rows = rows.select(HASH, *self.keys, PANE, *(part.name for part in parts))
        if not first.all():
            number = pl.Series("_number", ordered.number)
            rows = rows.with_columns(number).with_columns(part.running("_number") for part in parts)
        totals.insert(rows.filter(pl.Series(ordered.last)).drop(PANE, "_number", strict=False))
        return rows

    def current(self, state: SliceState) -> pl.DataFrame | None:
        """The totals of all keys of the slice as of the last epoch (only for `running`)."""
        rows = self._totals(state).all()
        return None if rows is None else self._finished(rows.with_columns(pl.lit(0, pl.Int64).alias(PANE)))

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

    def _parts(self) -> list[Part]:
        return [part for aggregate in self.aggregates for part in aggregate.parts()]

    def describe(self) -> str:
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        over = f"running, every {spelled(self.size)}" if self.running else f"windows of {spelled(self.size)}"
        return f"{what} per {', '.join(self.keys) or 'everything'} over {over}"
