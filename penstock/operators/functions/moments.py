"""Variance and standard deviation of a sample, from the exact sums of values and of their squares.

The variance is (n * squares - sum ** 2) / (n * (n - 1)). In floats the difference would cancel; here both terms
are whole numbers of any length, subtracted exactly, and only the quotient is rounded. Whole numbers are taken
as they are, floats and decimals rounded to 2**-40 (9e-13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.count_sum import summable
from penstock.operators.functions.floats import (
    BITS,
    Apart,
    Rest,
    float_limbs,
    float_sum,
    quotient,
    whole_numbers,
)
from penstock.operators.functions.sums import LIMB, NARROW, Sums, count_values, narrow, wide

_MASK = LIMB - 1
#: a natural number per row: digits of 32 bits, the least first
Digits = list[npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """The variance of a sample, a Float64; null with fewer than two values.

    Nulls are left out; NaN or an infinity make it NaN.
    """

    def answers(self, given: pl.DataType) -> pl.DataType:
        if not summable(given):
            raise self.misfit("numbers", given, "pl.Float64")
        return pl.Float64()

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column)
        counted = count_values(self.part("n"), value)
        if self.given in NARROW:
            square = value.cast(pl.UInt64 if self.given.is_unsigned_integer() else pl.Int64).pow(2)
            return (counted, narrow(self.part("s"), value), wide(self.part("q0"), self.part("q1"), square))
        if self.given.is_integer():
            squares = Sums(self._parts("q", 4), _squares_of_two(value, self.given.is_unsigned_integer()))
            return (counted, wide(self.part("s0"), self.part("s1"), value), squares)
        value = value.cast(pl.Float64)
        low, middle, high = self._parts("s", 3)
        squares = Sums(self._parts("q", 6), _squares_of_three(*float_limbs(value)))
        return (counted, float_sum((low, middle, high), value), squares, Rest(self.part("o"), value))

    def result(self) -> pl.Expr:
        counted, summed, squared, *rest = self.pieces()
        fields = {"n": counted.names[0]}
        fields |= {f"s{place}": name for place, name in enumerate(summed.names)}
        fields |= {f"q{place}": name for place, name in enumerate(squared.names)}
        if rest:
            fields["apart"] = rest[0].names[0]
        parts = pl.struct(pl.col(name).alias(field) for field, name in fields.items())
        each = partial(self._answers, places=(len(summed.names), len(squared.names)))
        return parts.map_batches(each, return_dtype=pl.Float64(), is_elementwise=True).alias(self.alias)

    def _answers(self, rows: pl.Series, places: tuple[int, int]) -> pl.Series:
        counts = rows.struct.field("n")
        variance = _variance(rows, places, 2.0 ** (-2 * BITS) if self._floating else 1.0)
        if self._floating and (there := rows.struct.field("apart").is_not_null()).any():
            variance = variance.scatter(there.arg_true(), _with_apart(rows.filter(there), places))
        return variance.set(counts < 2, None)

    @property
    def _floating(self) -> bool:
        return not self.given.is_integer()

    def _parts(self, name: str, places: int) -> tuple[str, ...]:
        return tuple(self.part(f"{name}{place}") for place in range(places))


@dataclass(frozen=True)
class Stddev(Variance):
    """The standard deviation of a sample: the square root of its variance."""

    def _answers(self, rows: pl.Series, places: tuple[int, int]) -> pl.Series:
        return super()._answers(rows, places).sqrt()


def _squares_of_two(value: pl.Expr, unsigned: bool) -> tuple[pl.Expr, ...]:
    """The square of a 64-bit number in four limbs."""
    low, high = (value & _MASK).cast(pl.UInt64), value // LIMB
    squared, crossed, top = low * low, low.cast(pl.UInt64 if unsigned else pl.Int64) * high, high * high
    return (
        _low(squared),
        _high(squared) + 2 * _low(crossed),
        2 * _high(crossed) + _low(top),
        _high(top),
    )


def _squares_of_three(low: pl.Expr, middle: pl.Expr, high: pl.Expr) -> tuple[pl.Expr, ...]:
    """The square of what `float_limbs` makes, in six limbs."""
    squared = middle.cast(pl.UInt64) * middle.cast(pl.UInt64)
    return (
        _low(low * low),
        _high(low * low) + 2 * _low(low * middle),
        2 * (_high(low * middle) + _low(low * high)) + _low(squared),
        2 * (_high(low * high) + _low(middle * high)) + _high(squared),
        2 * _high(middle * high) + _low(high * high),
        _high(high * high),
    )


def _low(product: pl.Expr) -> pl.Expr:
    return (product & _MASK).cast(pl.Int64)


def _high(product: pl.Expr) -> pl.Expr:
    return (product // LIMB).cast(pl.Int64)


# -- whole numbers of any length, a column of them at a time -------------------------------------------


def _variance(rows: pl.Series, places: tuple[int, int], unit: float) -> pl.Series:
    """The variance of each row, of values that count `unit` squared; any number with fewer than two values."""
    count = rows.struct.field("n").to_numpy()
    total = [rows.struct.field(f"s{place}").to_numpy() for place in range(places[0])]
    squares = [rows.struct.field(f"q{place}").to_numpy() for place in range(places[1])]
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


def _digits(limbs: Sequence[npt.NDArray[np.int64]]) -> Digits:
    """Limbs as digits from 0 to 2**32 - 1, and one more: the sign."""
    made, carry = [], np.zeros(len(limbs[0]), dtype=np.int64)
    for limb in limbs:
        whole = limb + carry
        made.append(whole & _MASK)
        carry = whole >> 32
    return [*made, carry]


def _product(left: Digits, right: Digits) -> Digits:
    made: Digits = [np.zeros(len(left[0]), dtype=np.int64) for _ in range(len(left) + len(right))]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            product = one.view(np.uint64) * other.view(np.uint64)
            made[i + j] += (product & np.uint64(_MASK)).view(np.int64)
            made[i + j + 1] += (product >> np.uint64(32)).view(np.int64)
    return _digits(made)


def _digit(digits: Digits, place: int, height: int) -> npt.NDArray[np.int64]:
    return digits[place] if place < len(digits) else np.zeros(height, dtype=np.int64)


def _with_apart(rows: pl.Series, places: tuple[int, int]) -> list[float]:
    """The variances of rows with values too large for limbs."""
    made = []
    totals, squares = whole_numbers(rows, places[0], "s"), whole_numbers(rows, places[1], "q")
    for count, total, square, part in zip(
        rows.struct.field("n"), totals, squares, rows.struct.field("apart"), strict=True
    ):
        apart = Apart.from_bytes(part)
        total, square = total + (apart.whole << BITS), square + (apart.square << 2 * BITS)
        pairs = max(count * (count - 1), 1) << 2 * BITS
        made.append(quotient(count * square - total * total, pairs) if apart.finite else math.nan)
    return made


def stddev(column: str, alias: str | None = None) -> AggregateFunction:
    """The standard deviation of a column's values, taken as a sample."""
    return Stddev(alias or f"stddev_{column}", column)


def variance(column: str, alias: str | None = None) -> AggregateFunction:
    """The variance of a column's values, taken as a sample."""
    return Variance(alias or f"variance_{column}", column)
