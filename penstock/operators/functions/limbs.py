"""Sum several numbers at once, in limbs that NumPy computes: one column of structs.

What an event adds takes many steps of 64-bit arithmetic. As expressions, each limb would repeat the steps of the
others; here a function computes all limbs of all events of a frame together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.columns import flatten_lists
from penstock.operators.functions.contract import Piece
from penstock.operators.functions.ranges import sum_ranges
from penstock.operators.functions.sums import LIMB, carry_limbs

Limb = npt.NDArray[np.int64]
_MASK = LIMB - 1


@dataclass(frozen=True)
class Limbs(Piece):
    """Sums of the limbs that `split` makes of each value: those of every chain, one chain after the other."""

    column: str
    value: pl.Expr
    chains: tuple[tuple[str, ...], ...]
    split: Callable[[np.ndarray], list[Limb]]

    subtracts = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def fields(self) -> list[str]:
        return [name for chain in self.chains for name in chain]

    def from_event(self) -> list[pl.Expr]:
        def each(values: pl.Series) -> pl.Series:
            there = np.flatnonzero(values.is_not_null().to_numpy())
            return self._sum_limbs(values.drop_nulls(), there, len(values))

        return [self._map_batches(self.value, each)]

    def from_events(self) -> list[pl.Expr]:
        def each(groups: pl.Series) -> pl.Series:
            values, number = flatten_lists(groups)
            return self._sum_limbs(values, number, len(groups))

        return [self._map_batches(self.value.drop_nulls().implode(), each)]

    def merge(self) -> list[pl.Expr]:
        return [self._struct([limb.sum() for limb in self._carry()])]

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        both = zip(self._carry(), self._carry(suffix), strict=True)
        return [self._struct([limb + other.fill_null(0) for limb, other in both])]

    def merge_running(self, group: str) -> list[pl.Expr]:
        return [self._struct([limb.cum_sum().over(group) for limb in self._carry()])]

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        limbs = rows.select(limb.alias(name) for limb, name in zip(self._carry(), self.fields, strict=True))
        sums = {limb.name: sum_ranges(limb.to_numpy(), low, high) for limb in limbs}
        return [pl.DataFrame(sums).to_struct(self.column)]

    def _sum_limbs(self, values: pl.Series, number: Limb, count: int) -> pl.Series:
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        sums = {}
        for name, limb in zip(self.fields, self.split(values.to_numpy()), strict=True):
            if len(starts) < len(limb):
                limb = np.add.reduceat(limb, starts)
            if len(starts) < count:
                every = np.zeros(count, dtype=np.int64)
                every[number[starts]] = limb
                limb = every
            sums[name] = limb
        return pl.DataFrame(sums).to_struct(self.column)

    def _carry(self, suffix: str = "") -> list[pl.Expr]:
        struct = pl.col(self.column + suffix).struct
        return [limb for chain in self.chains for limb in carry_limbs([struct.field(name) for name in chain])]

    def _struct(self, limbs: list[pl.Expr]) -> pl.Expr:
        named = (limb.alias(name) for limb, name in zip(limbs, self.fields, strict=True))
        return pl.struct(named).alias(self.column)

    def _map_batches(self, expr: pl.Expr, function: Callable[[pl.Series], pl.Series]) -> pl.Expr:
        dtype = pl.Struct(dict.fromkeys(self.fields, pl.Int64()))
        return expr.map_batches(function, return_dtype=dtype, is_elementwise=True).alias(self.column)


# -- numbers to limbs, and their squares to twice as many ----------------------------------------------


def split_int32(values: npt.NDArray[np.int64]) -> list[Limb]:
    """An integer of 32 bits in one limb; its square in two."""
    return [values, *_square([values])]


def split_int64(values: np.ndarray) -> list[Limb]:
    """An integer of 64 bits, with or without sign, in two limbs; its square in four."""
    limbs = [values & values.dtype.type(_MASK), values >> values.dtype.type(32)]
    return [*(limb.view(np.int64) for limb in limbs), *_square(limbs)]


def split_float(values: npt.NDArray[np.float64]) -> list[Limb]:
    """A float below 2**54, rounded to a multiple of 2**-72, in four limbs; the lower two within 2**31 of zero."""
    upper = np.rint(values * 2.0**8)
    rest = values - upper * 2.0**-8
    middle = np.rint(rest * 2.0**40)
    lower = np.rint((rest - middle * 2.0**-40) * 2.0**72)
    whole = upper.astype(np.int64)
    return [lower.astype(np.int64), middle.astype(np.int64), whole & _MASK, whole >> 32]


def split_float_and_square(values: npt.NDArray[np.float64]) -> list[Limb]:
    """The four limbs of a float below 2**54, and the eight of its square."""
    limbs = split_float(values)
    return [*limbs, *_square(limbs)]


def _square(limbs: Sequence[np.ndarray]) -> list[Limb]:
    """The square of a number in limbs. Products of two limbs fit the limbs' type, squares 64 bits without sign."""
    squares = [np.zeros(len(limbs[0]), dtype=np.int64) for _ in range(2 * len(limbs))]
    for place, limb in enumerate(limbs):
        for other in range(place, len(limbs)):
            if other == place:
                product, times = limb.view(np.uint64) * limb.view(np.uint64), 1
            else:
                product, times = limb * limbs[other], 2
            squares[place + other] += times * (product & product.dtype.type(_MASK)).view(np.int64)
            squares[place + other + 1] += times * (product >> product.dtype.type(32)).view(np.int64)
    return squares
