"""Aggregate over ranges of a key's events, the part that count, landmark and session windows share.

A window is a range of rows that are grouped by key and in strict order; its result is made of the partial aggregates of
its events. An open window continues from a partial aggregate in the state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import ORDER, TIME
from penstock.operators.functions import AggregateFunction
from penstock.operators.panes import describe_aggregation, partial_columns
from penstock.operators.strict import StrictOperator
from penstock.operators.time_windows import to_datetime
from penstock.state.buckets import HASH, expand_row_ranges

#: event time of the first event of a window, or of a part of it (Int64)
START = "_start"
#: the last instant at which a window can still be open (Int64): the time of its row, if nothing else closes it
DUE = "_due"

#: the last instant of the year 9998: the time of rows that are emitted because a log has ended for good
END_OF_TIME = 253_370_764_800_000_000 - 1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventWindows(StrictOperator):
    """Aggregates per key over ranges of its events."""

    keys: tuple[str, ...]
    aggregates: tuple[AggregateFunction, ...]

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *(a.column for a in self.aggregates if a.column is not None)}

    def parts(self) -> list[str]:
        """The columns of the partial aggregates."""
        return partial_columns(self.aggregates)

    def event_partials(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The partial aggregate of every event."""
        exprs = [expr for a in self.aggregates for expr in a.from_event()]
        return rows.select(TIME, *exprs).drop(TIME).get_columns()

    def range_partials(self, rows: pl.DataFrame, low: Ints, high: Ints) -> list[pl.Series]:
        """The partial aggregate of every range of events; no two ranges overlap.

        A user's function is called once for a whole range.
        """
        if (high - low == 1).all():
            return self.event_partials(rows[low])
        number, index = expand_row_ranges(low, high)
        chosen = rows.select(*ORDER, *sorted(self.needs()))
        if len(index) != rows.height or (np.diff(index) != 1).any():
            chosen = chosen[index]
        exprs = [expr for a in self.aggregates for expr in a.from_events()]
        numbered = chosen.with_columns(pl.Series("_range", number).set_sorted())
        return numbered.group_by("_range", maintain_order=True).agg(exprs).drop("_range").get_columns()

    def merge_ranges(self, parts: pl.DataFrame, low: Ints, high: Ints) -> list[pl.Series]:
        """The merged partial aggregate of every range of rows."""
        return [column for a in self.aggregates for column in a.merge_ranges(parts, low, high)]

    def continue_partials(self, rows: pl.DataFrame, stored: pl.DataFrame, at: Ints) -> pl.DataFrame:
        """Merge each partial aggregate with the row of `stored` that it continues; `at` is its number, -1 for none."""
        if (at < 0).all():
            return rows
        before = stored.select(
            pl.col(part)
            .cast(rows.schema[part])
            .gather(pl.Series(at).replace(-1, None))
            .alias(f"{part}.before")
            for part in self.parts()
        )
        merged = [expr for a in self.aggregates for expr in a.merge_columns(".before")]
        return rows.hstack(before).with_columns(merged).select(rows.columns)

    def result_rows(self, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """The rows to emit, from partial aggregates with `_start`, `_end`, their keys and the further columns."""
        position = [name for name in ORDER if name in rows.columns]
        when = [
            to_datetime(pl.col(START)).alias("window_start"),
            to_datetime(pl.col("_end")).alias("window_end"),
        ]
        return rows.select(
            HASH,
            *position,
            *when,
            *columns,
            *self.keys,
            *(aggregate.result() for aggregate in self.aggregates),
        )

    def describe(self) -> str:
        return describe_aggregation(self.aggregates, self.keys, self.describe_windows())

    def describe_windows(self) -> str:
        """The windows, for `explain`."""
        raise AssertionError(f"{type(self).__name__} does not describe its windows")


def drop_keys(rows: pl.DataFrame, others: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """The rows whose key is not among those of `others`."""
    return rows.join(others, on=[HASH, *keys], how="anti", nulls_equal=True)


def first_from(times: Ints, wanted: Ints, low: Ints, high: Ints) -> Ints:
    """In each range of rows the first whose time is not before the wanted one; the end of the range if none is."""
    while (low < high).any():
        middle = (low + high) // 2
        earlier = (low < high) & (times[np.minimum(middle, len(times) - 1)] < wanted)
        low, high = np.where(earlier, middle + 1, low), np.where(earlier, high, middle)
    return low
