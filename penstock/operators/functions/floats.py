"""Sum floats and their squares as integers, so that the order of summing does not matter.

A value below 2**54 is rounded to a multiple of 2**-72 (2e-22) and summed in limbs of 32 bits. A larger value has no
fraction: Python's integers sum these, and infinities and NaN are counted. Few events have such values, so their column
is usually empty.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.functions.columns import BytesPiece, Numbers
from penstock.operators.functions.sums import Limbs, as_float, split_float, split_float_and_square

#: what the least limb counts: 2**-72
BITS = 72
QUANTUM = 2.0**-BITS
#: values from here on are not summed in limbs
_LARGE = 2.0**54
#: counts of NaN, infinity and minus infinity, and the bytes of the sum; it and the sum of squares follow
_HEAD = struct.Struct("<qqqH")


def float_sum(column: str, value: pl.Expr, *, squares: bool = False) -> Limbs:
    """Sum the values of a Float64 below 2**54, and with `squares` their squares."""
    chains: tuple[tuple[str, ...], ...] = (("s0", "s1", "s2", "s3"),)
    if squares:
        chains = (*chains, tuple(f"q{place}" for place in range(8)))
    small = pl.when(value.abs() < _LARGE).then(value)
    return Limbs(column, small, chains, split_float_and_square if squares else split_float)


@dataclass(frozen=True)
class LargeValues(BytesPiece):
    """Sums the values that `float_sum` leaves out, and their squares."""

    value: pl.Expr

    subtracts = True

    def values(self) -> pl.Expr:
        return pl.when(self.value.abs() >= _LARGE).then(self.value)

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        if not len(values):
            return self.nulls(count)
        sums: list[LargeSums | None] = [None] * count
        plain = values.to_numpy()
        fraction, exponent = np.frexp(np.where(np.isfinite(plain), plain, 0.0))
        mantissa = (fraction * 2.0**53).astype(np.int64)
        a, b, c = mantissa & (2**18 - 1), (mantissa >> 18) & (2**18 - 1), mantissa >> 36
        columns = {"g": number, "e": exponent, "a": a, "b": b, "c": c}
        columns |= {"aa": a * a, "ab": a * b, "mid": 2 * a * c + b * b, "bc": b * c, "cc": c * c}
        columns |= {"nan": np.isnan(plain), "more": plain == math.inf, "less": plain == -math.inf}
        # only one row per group and power of two is left for Python
        powers = pl.DataFrame(columns).group_by("g", "e").agg(pl.exclude("g", "e").sum().cast(pl.Int64))
        for group, power, a, b, c, aa, ab, mid, bc, cc, *others in powers.iter_rows():
            whole = (c << 36) + (b << 18) + a
            square = (cc << 72) + (bc << 55) + (mid << 36) + (ab << 19) + aa
            shift = max(power - 53, 0)
            large = LargeSums(whole << shift, square << 2 * shift, *others)
            known = sums[group]
            sums[group] = large if known is None else known.plus(large)
        return pl.Series([None if one is None else one.to_bytes() for one in sums], dtype=pl.Binary)

    def merge_bytes(self, parts: list[bytes]) -> bytes:
        total = LargeSums()
        for part in parts:
            total = total.plus(LargeSums.from_bytes(part))
        return total.to_bytes()

    def merge_rows(self, rows: pl.Series, low: np.ndarray, high: np.ndarray) -> pl.Series:
        there = np.flatnonzero(rows.is_not_null().to_numpy())
        if not len(there):
            return self.nulls(len(low))
        prefix = [LargeSums()]
        for part in rows.drop_nulls().to_list():
            prefix.append(prefix[-1].plus(LargeSums.from_bytes(part)))
        starts, ends = np.searchsorted(there, low).tolist(), np.searchsorted(there, high).tolist()
        sums = [
            prefix[end].plus(prefix[start], -1).to_bytes() if start < end else None
            for start, end in zip(starts, ends, strict=True)
        ]
        return pl.Series(sums, dtype=pl.Binary)

    def total(self, small: Limbs) -> pl.Expr:
        """The sum as a float, the small values' included."""
        limbs = [pl.col(small.column).struct.field(name) for name in small.chains[0]]
        everything = pl.struct(
            as_float(limbs, QUANTUM).alias("total"),
            pl.col(self.column).alias("large"),
            *(limb.alias(f"s{place}") for place, limb in enumerate(limbs)),
        )

        def each(rows: pl.Series) -> pl.Series:
            totals, large = rows.struct.field("total"), rows.struct.field("large")
            there = large.is_not_null()
            if not there.any():
                return totals
            known = zip(
                integers_of([rows.filter(there).struct.field(f"s{place}") for place in range(4)]),
                large.filter(there),
                strict=True,
            )
            exact = [LargeSums.from_bytes(part).total(small) for small, part in known]
            return totals.scatter(there.arg_true(), exact)

        return everything.map_batches(each, return_dtype=pl.Float64(), is_elementwise=True)


def integers_of(limbs: Sequence[pl.Series]) -> list[int]:
    """The integers with these limbs, least first."""
    rows = zip(*(limb.to_list() for limb in limbs), strict=True)
    return [sum(limb << 32 * place for place, limb in enumerate(row)) for row in rows]


@dataclass(frozen=True)
class LargeSums:
    """The sums of large values and of their squares, and the counts of NaN, infinity and minus infinity."""

    whole: int = 0
    square: int = 0
    nan: int = 0
    more: int = 0
    less: int = 0

    def plus(self, other: LargeSums, sign: int = 1) -> LargeSums:
        return LargeSums(
            self.whole + sign * other.whole,
            self.square + sign * other.square,
            self.nan + sign * other.nan,
            self.more + sign * other.more,
            self.less + sign * other.less,
        )

    @property
    def finite(self) -> bool:
        return not (self.nan or self.more or self.less)

    def total(self, small: int) -> float:
        """The sum plus `small` times `QUANTUM`."""
        if self.nan or (self.more and self.less):
            return math.nan
        if self.more or self.less:
            return math.inf if self.more else -math.inf
        return quotient((self.whole << BITS) + small, 1 << BITS)

    def to_bytes(self) -> bytes:
        whole, square = _to_bytes(self.whole), _to_bytes(self.square)
        return _HEAD.pack(self.nan, self.more, self.less, len(whole)) + whole + square

    @staticmethod
    def from_bytes(data: bytes) -> LargeSums:
        *others, length = _HEAD.unpack_from(data)
        middle = _HEAD.size + length
        whole = int.from_bytes(data[_HEAD.size : middle], "little", signed=True)
        return LargeSums(whole, int.from_bytes(data[middle:], "little", signed=True), *others)


def quotient(numerator: int, denominator: int) -> float:
    """The quotient, rounded once; infinite where it is too large for a float."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _to_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
