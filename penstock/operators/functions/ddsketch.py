"""Assign values to buckets of proportional width, as DDSketch does: every value is close to its bucket's middle.

The scale is the exponent of a value and, between powers of two, its fraction; that scale is cut evenly. Only exact
float arithmetic is used, no logarithm of a library, so a value has the same bucket on every machine. That takes 1.44
times as many buckets as true logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

#: the bucket of infinity
_INFINITE = 2**31 - 1
#: exponents of floats are above this
_LEAST = -1075


@dataclass(frozen=True)
class SketchBuckets:
    """Buckets for a relative error. Zero is in bucket 0; negative values have negative buckets."""

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
