"""What windows over events in strict order have in common: ranges of a key's events, merged into answers.

A window is a range of rows that stand grouped by key and in total order; its answer is made of the partial
answers of its events. A key's window that is still open goes on from a partial answer in the state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import ORDER, TIME
from penstock.operators.functions import AggregateFunction
from penstock.operators.strict import StrictOperator
from penstock.operators.time_windows import to_datetime
from penstock.state.buckets import HASH
from penstock.state.row_order import expand_row_ranges

#: event time of the first event of a window, or of a part of it (Int64)
START = "_start"
#: the last instant at which a window can still be open (Int64): its row, if nothing else ends it, happens then
DUE = "_due"

#: the last instant of the year 9998: when that happens which is told because a log has ended for good
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
        """The columns of all partial answers."""
        return [part for aggregate in self.aggregates for part in aggregate.parts()]

    def event_partials(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The partial answer of every event."""
        exprs = [expr for a in self.aggregates for expr in a.from_event()]
        return rows.select(TIME, *exprs).drop(TIME).get_columns()

    def range_partials(self, rows: pl.DataFrame, low: Ints, high: Ints) -> list[pl.Series]:
        """The partial answer of every range of events; no two ranges overlap.

        A function of the user's is called for a whole range, so that is no more work than it must be.
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
        """The partial answer of every range of rows of partial answers."""
        return [column for a in self.aggregates for column in a.merge_ranges(parts, low, high)]

    def continue_partials(self, rows: pl.DataFrame, kept: pl.DataFrame, at: Ints) -> pl.DataFrame:
        """Rows of partial answers, each together with the row of `kept` it goes on from; -1 for none."""
        if (at < 0).all():
            return rows
        where = pl.Series(at).replace(-1, None)
        before = kept.select(
            pl.col(part).cast(rows.schema[part]).gather(where).alias(f"{part}.before")
            for part in self.parts()
        )
        joined = [expr for a in self.aggregates for expr in a.merge_columns(".before")]
        return rows.hstack(before).with_columns(joined).select(rows.columns)

    def result_rows(self, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """Finished rows: of partial answers with `_start`, `_end`, their keys and the further columns."""
        place = [name for name in ORDER if name in rows.columns]
        when = [
            to_datetime(pl.col(START)).alias("window_start"),
            to_datetime(pl.col("_end")).alias("window_end"),
        ]
        return rows.select(
            HASH, *place, *when, *columns, *self.keys, *(aggregate.result() for aggregate in self.aggregates)
        )

    def describe(self) -> str:
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        return f"{what} per {', '.join(self.keys) or 'everything'} over {self.describe_windows()}"

    def describe_windows(self) -> str:
        """What the windows are, for `explain`."""
        raise AssertionError(f"{type(self).__name__} does not say what its windows are")


def drop_keys(rows: pl.DataFrame, others: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """The rows whose key is not among the others'."""
    return rows.join(others, on=[HASH, *keys], how="anti", nulls_equal=True)


def first_from(times: Ints, wanted: Ints, low: Ints, high: Ints) -> Ints:
    """In each range of rows the first whose time is not before the wanted one; the range's end if none is."""
    while (low < high).any():
        middle = (low + high) // 2
        earlier = (low < high) & (times[np.minimum(middle, len(times) - 1)] < wanted)
        low, high = np.where(earlier, middle + 1, low), np.where(earlier, high, middle)
    return low
