"""Compute quantiles: exact ones from all values, approximate ones from counts of buckets.

Both store a tally: the values (or buckets) that occurred, in order, with their counts. Tallies are merged by adding
counts, so the order of merging does not change a result. Random or compacting sketches (KLL, REQ, t-digest) cannot
promise that. Nulls and NaN are ignored; infinities are the least and the greatest value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.errors import UserError
from penstock.operators.functions.columns import ColumnPiece, Numbers, build_lists, flatten_lists
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.count_sum import can_sum

#: the bucket of infinity
_INFINITE = 2**31 - 1
#: exponents of floats are above this
_LEAST = -1075


@dataclass(frozen=True)
class SketchBuckets:
    """Buckets of proportional width, as of DDSketch, for a relative error: every value is close to its bucket's middle.

    Zero is in bucket 0; negative values have negative buckets. The scale is the exponent of a value and, between powers
    of two, its fraction; that scale is cut evenly. Only exact float arithmetic is used, no logarithm of a library, so a
    value has the same bucket on every machine. That takes 1.44 times as many buckets as true logarithms.
    """

    error: float

    @property
    def _per_power(self) -> float:
        """Buckets per power of two, rounded so that it does not depend on the library's logarithm."""
        return math.ceil(2**20 / math.log((1 + self.error) / (1 - self.error))) / 2**20

    @property
    def _shift(self) -> int:
        """What makes the buckets of positive values positive."""
        return math.ceil(-_LEAST * self._per_power) + 1

    def of(self, values: pl.Series) -> pl.Series:
        """The bucket of each float; null for null and NaN."""
        plain = values.fill_null(math.nan).to_numpy()
        size = np.abs(plain)
        finite = np.isfinite(plain)
        fraction, exponent = np.frexp(np.where(finite, size, 1.0))
        level = (exponent - 1) + (2.0 * fraction - 1.0)
        number = np.floor(level * self._per_power).astype(np.int64) + self._shift
        number[size == 0.0] = 0
        number[~finite] = _INFINITE
        signed = np.where(plain < 0, -number, number).astype(np.int32)
        return pl.Series(values.name, signed).set(pl.Series(np.isnan(plain)), None)

    def value(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """The value in the middle of each bucket."""
        size = np.abs(numbers.astype(np.int64))
        place = np.where((size == 0) | (size == _INFINITE), 0, size - self._shift)
        low, high = self._bound(place), self._bound(place + 1)
        middle = low * (2.0 / (1.0 + low / high))
        middle = np.where(size == 0, 0.0, np.where(size == _INFINITE, np.inf, middle))
        return np.where(numbers < 0, -middle, middle)

    def _bound(self, place: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        level = place / self._per_power
        power = np.floor(level)
        with np.errstate(over="ignore"):
            bound = np.ldexp(1.0 + (level - power), power.astype(np.int64))
        return np.minimum(np.maximum(bound, 5e-324), np.finfo(np.float64).max)


_Values = np.ndarray


@dataclass(frozen=True)
class Tally(ColumnPiece):
    """One column of lists of numbers `x`, in order, with the count `n` of each."""

    value: pl.Expr
    of: pl.DataType

    sorts = True

    @property
    def dtype(self) -> pl.DataType:
        return pl.List(pl.Struct({"x": self.of, "n": pl.Int64}))

    def values(self) -> pl.Expr:
        return self.value

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        return self._tally(values.to_numpy(), np.ones(len(values), dtype=np.int64), number, count)

    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        tallies, row = flatten_lists(parts)
        values, times = (tallies.struct.field(name).to_numpy() for name in ("x", "n"))
        return self._tally(values, times, number[row], count)

    def _tally(self, values: _Values, times: Numbers, number: Numbers, count: int) -> pl.Series:
        same = number[1:] == number[:-1]
        if (same & (values[1:] < values[:-1])).any():
            order = np.lexsort((values, number))
            values, times, number = values[order], times[order], number[order]
            same = number[1:] == number[:-1]
        new = np.append(True, ~same | (values[1:] != values[:-1]))[: len(values)]
        starts = np.flatnonzero(new)
        if len(starts) < len(values):
            times = np.add.reduceat(times, starts)
            values, number = values[starts], number[starts]
        tallies = pl.DataFrame({"x": pl.Series(values, dtype=self.of), "n": times}).to_struct()
        return build_lists(tallies, number, count)


@dataclass(frozen=True)
class _Quantile(AggregateFunction):
    """Shared by functions of tallies: the share `q` of values is at or below the result."""

    q: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.q <= 1.0:
            raise UserError(
                "BAD_QUANTILE", f"{self.q} is not a share", hint="Choose from 0 to 1, as in 0.99."
            )

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if not can_sum(given):
            raise self.type_error("numbers", given, "pl.Float64")
        return pl.Float64()

    def result(self) -> pl.Expr:
        part = pl.col(self.part("t"))
        return part.map_batches(self._compute, return_dtype=pl.Float64(), is_elementwise=True).alias(
            self.alias
        )

    def _compute(self, parts: pl.Series) -> pl.Series:
        tallies, number = flatten_lists(parts)
        values, times = (tallies.struct.field(name).to_numpy() for name in ("x", "n"))
        if not len(values):
            return pl.Series([None] * len(parts), dtype=pl.Float64)
        ends = np.cumsum(times)
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        before = ends[starts] - times[starts]
        totals = np.append(before[1:], ends[-1]) - before
        place = self.q * (totals - 1)
        lower = np.minimum(place.astype(np.int64), totals - 1)
        at = np.searchsorted(ends, before + lower, side="right")
        after = np.searchsorted(ends, before + np.minimum(lower + 1, totals - 1), side="right")
        results = np.full(len(parts), np.nan)
        results[number[starts]] = self._interpolate(values[at], values[after], place - lower)
        known = np.zeros(len(parts), dtype=bool)
        known[number[starts]] = True
        return pl.Series(results).set(pl.Series(~known), None)

    @abstractmethod
    def _interpolate(self, one: _Values, other: _Values, share: npt.NDArray[np.float64]) -> _Values:
        """The result between two neighbours; `share` is its distance from the first."""


@dataclass(frozen=True)
class Quantile(_Quantile):
    """The exact quantile, a Float64, interpolated between two values; null without values.

    Stores every different value: for columns of few different ones, or windows that end.
    """

    kind: ClassVar[str] = "quantile"
    state_version: ClassVar[int] = 1

    @property
    def grows(self) -> bool:
        return True

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column)
        if self.column_type.is_integer():
            return (Tally(self.part("t"), value, self.column_type),)
        value = value.cast(pl.Float64)
        value = pl.when(value.is_nan()).then(None).when(value == 0).then(0.0).otherwise(value)
        return (Tally(self.part("t"), value, pl.Float64()),)

    def _interpolate(self, one: _Values, other: _Values, share: npt.NDArray[np.float64]) -> _Values:
        one, other = one.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            return np.where((one == other) | (share == 0), one, one * (1 - share) + other * share)

    def describe(self) -> str:
        return f"quantile({self.column}, {self.q}) as {self.alias}"


@dataclass(frozen=True)
class Median(Quantile):
    """The middle value, or the mean of the two in the middle."""

    kind: ClassVar[str] = "median"
    state_version: ClassVar[int] = 1

    def describe(self) -> str:
        return f"median({self.column}) as {self.alias}"


@dataclass(frozen=True)
class ApproxQuantile(_Quantile):
    """A value within the relative `error` of a quantile, a Float64; null without values.

    Stores counts of DDSketch buckets: a few hundred, however many values there are.
    """

    kind: ClassVar[str] = "approx-quantile"
    state_version: ClassVar[int] = 1

    error: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-5 <= self.error <= 0.5:
            raise UserError(
                "BAD_QUANTILE",
                f"a relative error of {self.error} is not possible",
                hint="Choose from 0.00001 to 0.5, as in 0.01 for one percent.",
            )

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column).cast(pl.Float64)
        bucket = value.map_batches(self._buckets.of, return_dtype=pl.Int32(), is_elementwise=True)
        return (Tally(self.part("t"), bucket, pl.Int32()),)

    def _interpolate(self, one: _Values, other: _Values, share: npt.NDArray[np.float64]) -> _Values:
        return self._buckets.value(one)

    @property
    def _buckets(self) -> SketchBuckets:
        return SketchBuckets(self.error)

    def describe(self) -> str:
        return f"approx_quantile({self.column}, {self.q}, error {self.error}) as {self.alias}"


def median(column: str, alias: str | None = None) -> AggregateFunction:
    """The exact median."""
    return Median(alias or f"median_{column}", column)


def quantile(column: str, q: float, alias: str | None = None) -> AggregateFunction:
    """An exact quantile: `q` 0.99 is the 99th percentile."""
    return Quantile(alias or f"quantile_{column}", column, q=q)


def approx_quantile(
    column: str, q: float, alias: str | None = None, *, error: float = 0.01
) -> AggregateFunction:
    """A quantile to within a relative error, from a sketch of bounded size."""
    return ApproxQuantile(alias or f"approx_quantile_{column}", column, q=q, error=error)
