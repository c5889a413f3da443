"""Pieces that are bytes: what no column arithmetic can do, done by Python once a group.

Receives the values or the partial answers of many groups at once, as a column of lists; hands a Binary column,
null where there is nothing. No event costs a call, and a column of nulls costs nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.functions.contract import Piece


@dataclass(frozen=True)
class Packed(Piece):
    """One Binary column of partial answers."""

    column: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    # -- what a kind of packed piece does ----------------------------------------------------------

    @abstractmethod
    def values(self) -> pl.Expr:
        """What of an event matters; null where nothing does."""

    @abstractmethod
    def packed(self, groups: pl.Series) -> pl.Series:
        """The partial answer of each list of values (none is null), null for an empty list."""

    @abstractmethod
    def together(self, packed: Sequence[bytes]) -> bytes:
        """One partial answer of at least one."""

    # -- what follows from that --------------------------------------------------------------------

    def of_event(self) -> list[pl.Expr]:
        def each(values: pl.Series) -> pl.Series:
            if values.null_count() == len(values):
                return _nothing(len(values))
            lists = values.to_frame("v").select(pl.concat_list("v").list.drop_nulls()).to_series()
            return self.packed(lists)

        return [_at_once(self.values(), each).alias(self.column)]

    def of_events(self) -> list[pl.Expr]:
        def each(groups: pl.Series) -> pl.Series:
            return self.packed(groups) if (groups.list.len() > 0).any() else _nothing(len(groups))

        values = self.values()
        return [_at_once(values.filter(values.is_not_null()).implode(), each).alias(self.column)]

    def merged(self) -> list[pl.Expr]:
        column = pl.col(self.column)
        return [_at_once(column.filter(column.is_not_null()).implode(), self._merge).alias(self.column)]

    def joined(self, suffix: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(self.column).alias("a"), pl.col(self.column + suffix).alias("b"))

        def each(pairs: pl.Series) -> pl.Series:
            one, other = pairs.struct.field("a"), pairs.struct.field("b")
            if other.null_count() == len(other):
                return one
            if one.null_count() == len(one):
                return other
            lists = pl.DataFrame({"a": one, "b": other}).select(pl.concat_list("a", "b").list.drop_nulls())
            return self._merge(lists.to_series())

        return [_at_once(both, each).alias(self.column)]

    def running(self, group: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(group).alias("g"), pl.col(self.column).alias("v"))

        def whole(pairs: pl.Series) -> pl.Series:
            column = pairs.struct.field("v")
            if column.null_count() == len(column):
                return column
            so_far: dict[object, bytes] = {}
            made: list[bytes | None] = []
            for key, value in zip(pairs.struct.field("g").to_list(), column.to_list(), strict=True):
                if value is not None:
                    so_far[key] = self.together([so_far[key], value]) if key in so_far else value
                made.append(so_far.get(key))
            return pl.Series(made, dtype=pl.Binary)

        return [both.map_batches(whole, return_dtype=pl.Binary()).alias(self.column)]

    def over(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        if rows[self.column].null_count() == rows.height:
            return [_nothing(len(low)).alias(self.column)]
        return super().over(rows, low, high)

    def _merge(self, groups: pl.Series) -> pl.Series:
        lengths = groups.list.len()
        if not len(groups) or lengths.max() == 0:
            return _nothing(len(groups))
        if lengths.max() == 1:
            return groups.list.first()
        return pl.Series(
            [
                self.together(group) if len(group) > 1 else group[0] if group else None
                for group in groups.to_list()
            ],
            dtype=pl.Binary,
        )


def _at_once(expr: pl.Expr, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
    """A function called once with all rows, or after `implode` with all groups."""
    return expr.map_batches(function, return_dtype=pl.Binary(), is_elementwise=True)


def _nothing(height: int) -> pl.Series:
    return pl.repeat(None, height, dtype=pl.Binary(), eager=True)
