"""Sums of floats as whole numbers, so that no order of summing can change a result.

A value below 2**54 is rounded to a multiple of 2**-40 (9e-13) and summed in limbs of 32 bits. What is larger
has no fraction: it, infinities and NaN are summed apart, as Python's integers and counts. So few events have
such values that the column for them is empty as a rule.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.functions.packed import Packed
from penstock.operators.functions.sums import LIMB, Sums

#: what the least limb counts
QUANTUM = 2.0**-40
#: values from here on are summed apart
_LARGE = 2.0**54
#: counts of NaN, infinity and minus infinity; the sum of the rest follows, in as many bytes as it needs
_HEAD = struct.Struct("<qqq")


def float_sum(chain: tuple[str, str, str], value: pl.Expr) -> Sums:
    """Sums the values below 2**54."""
    known = pl.when(value.abs() < _LARGE).then(value).otherwise(0.0)
    upper = (known * 2.0**8).cast(pl.Int64)
    lower = ((known - upper.cast(pl.Float64) * 2.0**-8) / QUANTUM).round().cast(pl.Int64)
    return Sums(chain, (lower, upper & (LIMB - 1), upper // LIMB))


@dataclass(frozen=True)
class Rest(Packed):
    """Sums what `float_sum` leaves out."""

    value: pl.Expr

    subtracts = True

    def values(self) -> pl.Expr:
        return pl.when(self.value.abs() >= _LARGE).then(self.value)

    def packed(self, groups: pl.Series) -> pl.Series:
        made = [_Apart()] * len(groups)
        frame = pl.DataFrame({"g": np.arange(len(groups)), "v": groups}).explode("v").drop_nulls()
        value, numbers = frame["v"].to_numpy(), frame["g"].to_numpy()
        finite = np.isfinite(value)
        fraction, exponent = np.frexp(np.where(finite, value, 0.0))
        mantissa = (fraction * 2.0**53).astype(np.int64)
        columns = {
            "g": numbers,
            "e": exponent,
            "high": mantissa >> 26,
            "low": mantissa & (2**26 - 1),
            "nan": np.isnan(value),
            "more": value == math.inf,
            "less": value == -math.inf,
        }
        # what is left for Python is one row a group and power of two
        sums = pl.DataFrame(columns).group_by("g", "e").agg(pl.exclude("g", "e").sum().cast(pl.Int64))
        for group, power, high, low, *others in sums.iter_rows():
            whole = ((high << 26) + low) << (power - 53) if power else 0
            made[group] = made[group].plus(_Apart(whole, *others))
        empty = groups.list.len().to_numpy() == 0
        return pl.Series(
            [None if none else apart.to_bytes() for none, apart in zip(empty, made, strict=True)],
            dtype=pl.Binary,
        )

    def together(self, packed: Sequence[bytes]) -> bytes:
        total = _Apart()
        for one in packed:
            total = total.plus(_Apart.from_bytes(one))
        return total.to_bytes()

    def over(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        there = np.flatnonzero(rows[self.column].is_not_null().to_numpy())
        prefix = [_Apart()]
        for one in rows[self.column].drop_nulls().to_list():
            prefix.append(prefix[-1].plus(_Apart.from_bytes(one)))
        made = (
            [
                prefix[end].plus(prefix[start], -1).to_bytes() if start < end else None
                for start, end in zip(np.searchsorted(there, low), np.searchsorted(there, high), strict=True)
            ]
            if len(there)
            else [None] * len(low)
        )
        return [pl.Series(self.column, made, dtype=pl.Binary)]

    def total(self) -> pl.Expr:
        """The sum as a float; 0 where there is nothing."""

        def each(packed: pl.Series) -> pl.Series:
            if packed.null_count() == len(packed):
                return pl.zeros(len(packed), dtype=pl.Float64, eager=True)
            totals = [0.0 if one is None else _Apart.from_bytes(one).total() for one in packed.to_list()]
            return pl.Series(totals, dtype=pl.Float64)

        return pl.col(self.column).map_batches(each, return_dtype=pl.Float64(), is_elementwise=True)


@dataclass(frozen=True)
class _Apart:
    """The sum of large values, and how often there was NaN, infinity, minus infinity."""

    whole: int = 0
    nan: int = 0
    more: int = 0
    less: int = 0

    def plus(self, other: _Apart, sign: int = 1) -> _Apart:
        return _Apart(
            self.whole + sign * other.whole,
            self.nan + sign * other.nan,
            self.more + sign * other.more,
            self.less + sign * other.less,
        )

    def total(self) -> float:
        if self.nan or (self.more and self.less):
            return math.nan
        if self.more or self.less:
            return math.inf if self.more else -math.inf
        try:
            return float(self.whole)
        except OverflowError:
            return math.copysign(math.inf, self.whole)

    def to_bytes(self) -> bytes:
        length = self.whole.bit_length() // 8 + 1
        return _HEAD.pack(self.nan, self.more, self.less) + self.whole.to_bytes(length, "little", signed=True)

    @staticmethod
    def from_bytes(data: bytes) -> _Apart:
        return _Apart(int.from_bytes(data[_HEAD.size :], "little", signed=True), *_HEAD.unpack_from(data))
