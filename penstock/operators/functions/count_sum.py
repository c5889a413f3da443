"""Count events, and compute sums and means.

Integers and decimals are summed exactly, floats to 2**-72 (see `floats`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.floats import LargeValues, float_sum
from penstock.operators.functions.sums import (
    NARROW,
    WIDE,
    Limbs,
    as_decimal,
    as_float,
    as_int64,
    count_up,
    count_values,
    sum_decimals,
    sum_narrow,
    sum_wide,
)


@dataclass(frozen=True)
class Count(AggregateFunction):
    """The number of events."""

    kind: ClassVar[str] = "count"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return pl.Int64()

    def pieces(self) -> tuple[Piece, ...]:
        return (count_up(self.part("n")),)

    def result(self) -> pl.Expr:
        return pl.col(self.part("n")).alias(self.alias)


@dataclass(frozen=True)
class CountValues(AggregateFunction):
    """The number of events that have a value in a column."""

    kind: ClassVar[str] = "count-values"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return pl.Int64()

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        return (count_values(self.part("n"), pl.col(self.column)),)

    def result(self) -> pl.Expr:
        return pl.col(self.part("n")).alias(self.alias)


@dataclass(frozen=True)
class _Summing(AggregateFunction):
    """Shared by functions of the sum of a column."""

    def total(self) -> tuple[Piece, ...]:
        """The pieces of the sum."""
        assert self.column is not None
        value, given = pl.col(self.column), self.column_type
        low, high = self.part("s"), self.part("h")
        if given in NARROW:
            return (sum_narrow(low, value),)
        if isinstance(given, pl.Decimal):
            return (sum_decimals((low, self.part("s1"), self.part("s2"), high), value),)
        if given.is_float():
            value = value.cast(pl.Float64)
            return (float_sum(low, value), LargeValues(self.part("o"), value))
        return (sum_wide(low, high, value.to_physical() if isinstance(given, pl.Duration) else value),)

    def total_as_float(self) -> pl.Expr:
        """The sum, rounded to a float."""
        first, *rest = self.total()
        if rest:
            assert isinstance(first, Limbs)
            assert isinstance(rest[0], LargeValues)
            return rest[0].total(first)
        total = as_float([pl.col(name) for name in first.names], 1.0)
        return total / 10.0**self.column_type.scale if isinstance(self.column_type, pl.Decimal) else total


def can_sum(given: pl.DataType) -> bool:
    """Whether a column of this type can be summed."""
    return given in NARROW or given in WIDE or given.is_float() or isinstance(given, pl.Decimal)


@dataclass(frozen=True)
class Sum(_Summing):
    """The sum of a column; nulls add nothing.

    Of integers an Int64, null where it does not fit; of floats a Float64, NaN where there is a NaN or both infinities;
    of decimals a Decimal, null beyond 38 digits; of durations a duration.
    """

    kind: ClassVar[str] = "sum"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if isinstance(given, pl.Duration):
            return given
        if not can_sum(given):
            raise self.type_error("numbers", given)
        if isinstance(given, pl.Decimal):
            return pl.Decimal(38, given.scale)
        return pl.Float64() if given.is_float() else pl.Int64()

    def pieces(self) -> tuple[Piece, ...]:
        return self.total()

    def result(self) -> pl.Expr:
        limbs, given = [pl.col(name) for name in self.total()[0].names], self.column_type
        if given.is_float():
            return self.total_as_float().alias(self.alias)
        if isinstance(given, pl.Decimal):
            return as_decimal(limbs, given.scale).alias(self.alias)
        total = as_int64(limbs) if len(limbs) == 2 else limbs[0]
        return total.cast(given if isinstance(given, pl.Duration) else pl.Int64).alias(self.alias)


@dataclass(frozen=True)
class Avg(_Summing):
    """The mean of a column's values, a Float64; nulls are ignored, and without values it is null."""

    kind: ClassVar[str] = "avg"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if not can_sum(given):
            raise self.type_error("numbers", given)
        return pl.Float64()

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        return (*self.total(), count_values(self.part("n"), pl.col(self.column)))

    def result(self) -> pl.Expr:
        count = pl.col(self.part("n"))
        return pl.when(count > 0).then(self.total_as_float() / count).alias(self.alias)


def count(alias: str = "count") -> AggregateFunction:
    """The number of events."""
    return Count(alias, None)


def count_of(column: str, alias: str | None = None) -> AggregateFunction:
    """The number of events that have a value in a column."""
    return CountValues(alias or f"count_{column}", column)


def sum_(column: str, alias: str | None = None) -> AggregateFunction:
    """The sum of a column; nulls count as nothing."""
    return Sum(alias or f"sum_{column}", column)


def avg(column: str, alias: str | None = None) -> AggregateFunction:
    """The mean of a column's values."""
    return Avg(alias or f"avg_{column}", column)
