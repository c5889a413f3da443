"""Compute the variance and standard deviation of a sample, from the exact sums of values and of their squares.

The variance is (n * squares - sum ** 2) / (n * (n - 1)). In floats the difference would cancel; here both terms are
integers of any length, subtracted exactly, and only the quotient is rounded. Floats and decimals are first rounded to
2**-72 (2e-22).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.count_sum import can_sum
from penstock.operators.functions.floats import (
    BITS,
    LargeSums,
    LargeValues,
    float_sum,
    integers_of,
    quotient,
)
from penstock.operators.functions.sums import LIMB, NARROW, Limbs, count_values, split_int32, split_int64

_MASK = LIMB - 1
#: the limbs of integers of 32 and of 64 bits, and of their squares
_NARROW = (("s0",), ("q0", "q1"))
_WIDE = (("s0", "s1"), ("q0", "q1", "q2", "q3"))
#: one natural number per row: digits of 32 bits, the least first
Digits = list[npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """The variance of a sample, a Float64; null with fewer than two values.

    Nulls are ignored; NaN or an infinity makes it NaN.
    """

    kind: ClassVar[str] = "variance"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if not can_sum(given):
            raise self.type_error("numbers", given, "pl.Float64")
        return pl.Float64()

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column)
        counted = count_values(self.part("n"), value)
        if self.column_type in NARROW:
            return (counted, Limbs(self.part("m"), value.cast(pl.Int64), _NARROW, split_int32))
        if self.column_type.is_integer():
            return (counted, Limbs(self.part("m"), value, _WIDE, split_int64))
        value = value.cast(pl.Float64)
        return (counted, float_sum(self.part("m"), value, squares=True), LargeValues(self.part("o"), value))

    def result(self) -> pl.Expr:
        counted, limbs, *rest = self.pieces()
        assert isinstance(limbs, Limbs)
        fields = {name: pl.col(limbs.column).struct.field(name) for name in limbs.fields}
        fields["n"] = pl.col(counted.names[0])
        if rest:
            fields["large"] = pl.col(rest[0].names[0])
        parts = pl.struct(field.alias(name) for name, field in fields.items())
        return parts.map_batches(self._compute, return_dtype=pl.Float64(), is_elementwise=True).alias(
            self.alias
        )

    def _compute(self, rows: pl.Series) -> pl.Series:
        variance = _variance(rows, 2.0 ** (-2 * BITS) if self._floating else 1.0)
        if self._floating and (there := rows.struct.field("large").is_not_null()).any():
            variance = variance.scatter(there.arg_true(), _large_variances(rows.filter(there)))
        return variance.set(rows.struct.field("n") < 2, None)

    @property
    def _floating(self) -> bool:
        return not self.column_type.is_integer()


@dataclass(frozen=True)
class Stddev(Variance):
    """The standard deviation of a sample: the square root of its variance."""

    kind: ClassVar[str] = "stddev"
    state_version: ClassVar[int] = 1

    def _compute(self, rows: pl.Series) -> pl.Series:
        return super()._compute(rows).sqrt()


# -- integers of any length, a column of them at a time ------------------------------------------------


def _variance(rows: pl.Series, unit: float) -> pl.Series:
    """The variance of each row, of values that count `unit` squared; any number with fewer than two values."""
    count = rows.struct.field("n").to_numpy()
    total = [limb.to_numpy() for limb in _limbs(rows, "s")]
    squares = [limb.to_numpy() for limb in _limbs(rows, "q")]
    sign = np.where(_digits(total)[-1] < 0, -1, 1)
    total = _digits([limb * sign for limb in total])
    left, right = _product(_digits([count]), _digits(squares)), _product(total, total)
    longest = max(len(left), len(right))
    difference = _digits(
        [_digit(left, place, len(count)) - _digit(right, place, len(count)) for place in range(longest)]
    )
    spread = sum(
        (digit * float(LIMB) ** place for place, digit in enumerate(difference)), np.zeros(len(count))
    )
    pairs = count.astype(np.float64) * (count - 1)
    return pl.Series(spread / np.maximum(pairs, 1.0) * unit)


def _limbs(rows: pl.Series, name: str) -> list[pl.Series]:
    names = [field for field in rows.struct.fields if field[0] == name]
    return [rows.struct.field(field) for field in names]


def _digits(limbs: Sequence[npt.NDArray[np.int64]]) -> Digits:
    """Limbs as digits from 0 to 2**32 - 1, and one more: the sign."""
    digits, carry = [], np.zeros(len(limbs[0]), dtype=np.int64)
    for limb in limbs:
        whole = limb + carry
        digits.append(whole & _MASK)
        carry = whole >> 32
    return [*digits, carry]


def _product(left: Digits, right: Digits) -> Digits:
    digits: Digits = [np.zeros(len(left[0]), dtype=np.int64) for _ in range(len(left) + len(right))]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            product = one.view(np.uint64) * other.view(np.uint64)
            digits[i + j] += (product & np.uint64(_MASK)).view(np.int64)
            digits[i + j + 1] += (product >> np.uint64(32)).view(np.int64)
    return _digits(digits)


def _digit(digits: Digits, place: int, height: int) -> npt.NDArray[np.int64]:
    return digits[place] if place < len(digits) else np.zeros(height, dtype=np.int64)


def _large_variances(rows: pl.Series) -> list[float]:
    """The variances of rows with values too large for limbs."""
    variances = []
    totals, squares = integers_of(_limbs(rows, "s")), integers_of(_limbs(rows, "q"))
    for count, total, square, part in zip(
        rows.struct.field("n"), totals, squares, rows.struct.field("large"), strict=True
    ):
        large = LargeSums.from_bytes(part)
        total, square = total + (large.whole << BITS), square + (large.square << 2 * BITS)
        pairs = max(count * (count - 1), 1) << 2 * BITS
        variances.append(quotient(count * square - total * total, pairs) if large.finite else math.nan)
    return variances


def stddev(column: str, alias: str | None = None) -> AggregateFunction:
    """The standard deviation of a column's values, taken as a sample."""
    return Stddev(alias or f"stddev_{column}", column)


def variance(column: str, alias: str | None = None) -> AggregateFunction:
    """The variance of a column's values, taken as a sample."""
    return Variance(alias or f"variance_{column}", column)
