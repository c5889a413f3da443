"""Merge partial aggregates that are lists or bytes: a function merges all groups of a frame at once.

The function gets the values or partial aggregates of all groups, each with the number of its group, and returns a
column. Null is the partial aggregate of no events, and so is an empty list.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.operators.functions.contract import Piece
from penstock.operators.functions.ranges import split_batches
from penstock.state.buckets import expand_row_ranges

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ColumnPiece(Piece):
    """A piece of one column, whose values and partial aggregates are merged by functions."""

    column: str

    #: whether `from_values` wants the values of all events in order
    sorts = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    # -- declared by each kind of column -----------------------------------------------------------

    @property
    @abstractmethod
    def dtype(self) -> pl.DataType:
        """The type of the column."""

    @abstractmethod
    def values(self) -> pl.Expr:
        """The value of an event; null where it has none."""

    @abstractmethod
    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        """`count` partial aggregates. `number` is, in ascending order, the group of each value; no value is null."""

    @abstractmethod
    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        """`count` partial aggregates of `parts`. `number` is, in ascending order, the group of each; none is null."""

    # -- derived -----------------------------------------------------------------------------------

    def from_event(self) -> list[pl.Expr]:
        def each(values: pl.Series) -> pl.Series:
            there = np.flatnonzero(values.is_not_null().to_numpy())
            return self.from_values(values.drop_nulls(), there, len(values))

        return [self._map_batches(self.values(), each)]

    def from_events(self) -> list[pl.Expr]:
        def each(groups: pl.Series) -> pl.Series:
            values, number = flatten_lists(groups)
            return self.from_values(values, number, len(groups))

        values = self.values().drop_nulls()
        return [self._map_batches((values.sort() if self.sorts else values).implode(), each)]

    def merge(self) -> list[pl.Expr]:
        def each(groups: pl.Series) -> pl.Series:
            parts, _ = flatten_lists(groups)
            high = np.cumsum(groups.list.len().to_numpy(), dtype=np.int64)
            return self.merge_rows(parts, high - groups.list.len().to_numpy(), high)

        return [self._map_batches(pl.col(self.column).implode(), each)]

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(self.column).alias("a"), pl.col(self.column + suffix).alias("b"))

        def each(pairs: pl.Series) -> pl.Series:
            one, other = pairs.struct.field("a"), pairs.struct.field("b")
            if other.null_count() == len(other):
                return one
            interleaved = np.arange(2 * len(pairs)).reshape(2, -1).T.ravel()
            low = np.arange(0, 2 * len(pairs), 2)
            return self.merge_rows(pl.concat([one, other.alias(one.name)]).gather(interleaved), low, low + 2)

        return [self._map_batches(both, each)]

    def merge_running(self, group: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(group).alias("g"), pl.col(self.column).alias("v"))

        def whole(pairs: pl.Series) -> pl.Series:
            number = pairs.struct.field("g").rank("dense").to_numpy()
            order = np.argsort(number, kind="stable")
            first = np.searchsorted(number[order], number[order])
            merged = self.merge_prefixes(pairs.struct.field("v").gather(order), first)
            return merged.gather(np.argsort(order))

        return [both.map_batches(whole, return_dtype=self.dtype).alias(self.column)]

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        return [self.merge_rows(rows[self.column], low, high).alias(self.column)]

    def merge_rows(self, rows: pl.Series, low: np.ndarray, high: np.ndarray) -> pl.Series:
        """The partial aggregates of row ranges, in batches of bounded size."""
        if rows.null_count() == len(rows):
            return self.nulls(len(low))
        if (high - low == 1).all():
            return rows.gather(low)
        ends = np.append(0, np.cumsum(_sizes(rows)))
        made = []
        for batch in split_batches(ends[high] - ends[low]):
            number, index = expand_row_ranges(low[batch], high[batch])
            parts = rows.gather(index)
            if parts.null_count():
                there = parts.is_not_null()
                parts, number = parts.filter(there), number[there.to_numpy()]
            made.append(self.merge_parts(parts, number, len(low[batch])))
        return pl.concat(made)

    def merge_prefixes(self, rows: pl.Series, first: Numbers) -> pl.Series:
        """Each row merged with the rows before it, from the row `first` on."""
        return self.merge_rows(rows, first, np.arange(1, len(rows) + 1))

    def nulls(self, count: int) -> pl.Series:
        """Partial answers of nothing."""
        return pl.Series([], dtype=self.dtype).extend_constant(None, count)

    def _map_batches(self, expr: pl.Expr, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
        """An expression that calls a function once with all rows, or after `implode` with all groups."""
        return expr.map_batches(function, return_dtype=self.dtype, is_elementwise=True).alias(self.column)


def flatten_lists(lists: pl.Series) -> tuple[pl.Series, Numbers]:
    """The elements of lists, and for each element the row of its list."""
    lengths = lists.list.len().fill_null(0)
    number = np.repeat(np.arange(len(lists)), lengths.to_numpy())
    full = lengths > 0
    return (lists if full.all() else lists.filter(full)).explode(), number


def build_lists(elements: pl.Series, number: Numbers, count: int) -> pl.Series:
    """`count` lists, of which the list `number[i]` gets element i; `number` ascends."""
    offsets = np.searchsorted(number, np.arange(count + 1))
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets, elements.to_arrow())))


def _sizes(rows: pl.Series) -> Numbers:
    if isinstance(rows.dtype, pl.List):
        return rows.list.len().fill_null(0).to_numpy().astype(np.int64) + 1
    return np.ones(len(rows), dtype=np.int64)


@dataclass(frozen=True)
class BytesPiece(ColumnPiece):
    """A piece of bytes, merged in Python once per group. A column of nulls costs nothing."""

    @abstractmethod
    def merge_bytes(self, parts: list[bytes]) -> bytes:
        """One partial aggregate of at least two."""

    @property
    def dtype(self) -> pl.DataType:
        return pl.Binary()

    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        made: list[bytes | None] = [None] * count
        packed = parts.to_list()
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        ends = np.append(starts[1:], len(packed))[: len(starts)]
        for group, start, end in zip(number[starts].tolist(), starts.tolist(), ends.tolist(), strict=True):
            made[group] = packed[start] if end - start == 1 else self.merge_bytes(packed[start:end])
        return pl.Series(made, dtype=pl.Binary)

    def merge_prefixes(self, rows: pl.Series, first: Numbers) -> pl.Series:
        if rows.null_count() == len(rows):
            return rows
        made: list[bytes | None] = []
        for at, (start, part) in enumerate(zip(first.tolist(), rows.to_list(), strict=True)):
            before = made[-1] if at > start else None
            if before is None or part is None:
                made.append(before if part is None else part)
            else:
                made.append(self.merge_bytes([before, part]))
        return pl.Series(made, dtype=pl.Binary)
