"""Compute the least and the greatest value, and the time of the earliest and the latest event.

Numbers, texts, booleans and times have an order. Nulls are ignored, and so is NaN unless there is nothing else. Both
zeros count as 0.0, because the result must not show which of them came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import TIME
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.ranges import reduce_ranges, sum_ranges


@dataclass(frozen=True)
class Extreme(Piece):
    """One column with the least value, or with `greatest` the greatest."""

    column: str
    value: pl.Expr
    greatest: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    def from_event(self) -> list[pl.Expr]:
        return [self.value.alias(self.column)]

    def from_events(self) -> list[pl.Expr]:
        return [self._extreme(self.value)]

    def merge(self) -> list[pl.Expr]:
        return [self._extreme(pl.col(self.column))]

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        either = pl.max_horizontal if self.greatest else pl.min_horizontal
        return [either(pl.col(self.column), pl.col(self.column + suffix)).alias(self.column)]

    def merge_running(self, group: str) -> list[pl.Expr]:
        column = pl.col(self.column)
        running = column.cum_max() if self.greatest else column.cum_min()
        return [running.forward_fill().over(group).alias(self.column)]

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        column = rows[self.column]
        dtype = column.dtype
        if not (dtype.is_integer() or dtype.is_float() or dtype.is_temporal()):
            return super().merge_ranges(rows, low, high)
        plain = column.to_physical()
        by: np.ufunc
        if dtype.is_float():  # fmin and fmax ignore NaN, which can stand for null too
            by, nothing = (np.fmax if self.greatest else np.fmin), np.nan
        else:
            by = np.maximum if self.greatest else np.minimum
            bounds = np.iinfo(plain.head(0).to_numpy().dtype)
            nothing = bounds.min if self.greatest else bounds.max
        nulls = column.null_count()
        least = reduce_ranges(by, (plain.fill_null(nothing) if nulls else plain).to_numpy(), low, high)
        found = pl.Series(self.column, least, dtype=plain.dtype).cast(dtype)
        if nulls and len(at := np.flatnonzero(np.isnan(least) if dtype.is_float() else least == nothing)):
            known = sum_ranges(column.is_not_null().cast(pl.Int64).to_numpy(), low[at], high[at])
            found = found.scatter(at[known == 0], None)
        return [found]

    def _extreme(self, values: pl.Expr) -> pl.Expr:
        return (values.max() if self.greatest else values.min()).alias(self.column)


@dataclass(frozen=True)
class _Ordered(AggregateFunction):
    """Shared by functions of the order of values."""

    def result_type(self, given: pl.DataType) -> pl.DataType:
        ordered = given.is_numeric() or given.is_temporal() or given in (pl.String, pl.Boolean)
        if not ordered or given in (pl.Int128, pl.UInt128):
            raise self.type_error("numbers, texts, booleans or times", given, "pl.String")
        return given

    def _value(self) -> pl.Expr:
        assert self.column is not None
        value = pl.col(self.column)
        if self.of is not None and self.of.is_float():
            return pl.when(value == 0).then(pl.lit(0.0, self.of)).otherwise(value)
        return value

    def result(self) -> pl.Expr:
        return pl.col(self.part("x")).alias(self.alias)


@dataclass(frozen=True)
class Min(_Ordered):
    """The least value of a column; null without values."""

    kind: ClassVar[str] = "min"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("x"), self._value(), greatest=False),)


@dataclass(frozen=True)
class Max(_Ordered):
    """The greatest value of a column; null without values."""

    kind: ClassVar[str] = "max"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("x"), self._value(), greatest=True),)


@dataclass(frozen=True)
class _OfTime(AggregateFunction):
    """Shared by functions of the events' times."""

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return pl.Datetime("us", "UTC")

    def result(self) -> pl.Expr:
        time = pl.col(self.part("t")).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        return time.alias(self.alias)


@dataclass(frozen=True)
class Earliest(_OfTime):
    """The event time of the earliest event."""

    kind: ClassVar[str] = "earliest"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("t"), pl.col(TIME), greatest=False),)


@dataclass(frozen=True)
class Latest(_OfTime):
    """The event time of the latest event."""

    kind: ClassVar[str] = "latest"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("t"), pl.col(TIME), greatest=True),)


def min_(column: str, alias: str | None = None) -> AggregateFunction:
    """The least value of a column."""
    return Min(alias or f"min_{column}", column)


def max_(column: str, alias: str | None = None) -> AggregateFunction:
    """The greatest value of a column."""
    return Max(alias or f"max_{column}", column)


def earliest(alias: str = "earliest") -> AggregateFunction:
    """The event time of the earliest event."""
    return Earliest(alias, None)


def latest(alias: str = "latest") -> AggregateFunction:
    """The event time of the latest event."""
    return Latest(alias, None)
