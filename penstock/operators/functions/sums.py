"""Sum numbers exactly, so that the order of summing does not matter: integers in limbs of 32 bits.

A chain of Int64 columns holds one number, the least limb first: limb i counts 2**(32 i). Before limbs are summed, each
carries what it has above 32 bits to the next one, not further. So limbs stay below 2**33, and 2**30 of them can be
summed at once. The last limb has a sign and 64 bits. A decimal is the integer of its digits, 128 bits in four limbs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.operators.functions.columns import flatten_lists
from penstock.operators.functions.contract import Piece
from penstock.operators.functions.ranges import sum_ranges

LIMB = 2**32
_MASK = LIMB - 1
#: integers that fit into one limb, and those that need two
NARROW = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)
WIDE = (pl.Int64, pl.UInt64)
#: the most digits of a Decimal
_DIGITS = 38
_HIGH, _LOW = divmod(10**_DIGITS, LIMB**2)


@dataclass(frozen=True)
class Sums(Piece):
    """The sum of one number: its columns, least limb first, and what an event adds to each (an Int64 or null).

    `each` None: an event adds one.
    """

    chain: tuple[str, ...]
    each: tuple[pl.Expr, ...] | None

    subtracts = True

    @property
    def names(self) -> tuple[str, ...]:
        return self.chain

    def from_event(self) -> list[pl.Expr]:
        if self.each is None:
            return self._named([pl.repeat(1, pl.len(), dtype=pl.Int64)])
        return self._named([each.fill_null(0) for each in self.each])

    def from_events(self) -> list[pl.Expr]:
        if self.each is None:
            return self._named([pl.len().cast(pl.Int64)])
        return self._named([each.sum() for each in self.each])

    def merge(self) -> list[pl.Expr]:
        return self._named([limb.sum() for limb in self._carry()])

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        both = zip(self._carry(), self._carry(suffix), strict=True)
        return self._named([limb + other.fill_null(0) for limb, other in both])

    def merge_running(self, group: str) -> list[pl.Expr]:
        return self._named([limb.cum_sum().over(group) for limb in self._carry()])

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        limbs = rows.select(self._named(self._carry())).get_columns()
        return [pl.Series(limb.name, sum_ranges(limb.to_numpy(), low, high)) for limb in limbs]

    def _carry(self, suffix: str = "") -> list[pl.Expr]:
        return carry_limbs([pl.col(name + suffix) for name in self.chain])

    def _named(self, exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
        return [expr.alias(name) for name, expr in zip(self.chain, exprs, strict=True)]


def carry_limbs(limbs: Sequence[pl.Expr]) -> list[pl.Expr]:
    """The limbs, each with the carry of the one below it."""
    low = [limb & _MASK for limb in limbs[:-1]] + [limbs[-1]]
    return [low[0], *(limb + below // LIMB for limb, below in zip(low[1:], limbs[:-1], strict=True))]


def normalize_limbs(limbs: Sequence[pl.Expr]) -> list[pl.Expr]:
    """The limbs of the same number, all except the last from 0 to 2**32 - 1."""
    exact, carry = [], pl.lit(0, pl.Int64)
    for limb in limbs[:-1]:
        exact.append((limb + carry) & _MASK)
        carry = (limb + carry) // LIMB
    return [*exact, limbs[-1] + carry]


def count_up(name: str) -> Sums:
    """Count events."""
    return Sums((name,), None)


def count_values(name: str, value: pl.Expr) -> Sums:
    """Count the values that are not null."""
    return Sums((name,), (value.is_not_null().cast(pl.Int64),))


def sum_narrow(name: str, value: pl.Expr) -> Sums:
    """Sum integers of up to 32 bits."""
    return Sums((name,), (value.cast(pl.Int64),))


def sum_wide(low: str, high: str, value: pl.Expr) -> Sums:
    """Sum integers of 64 bits."""
    return Sums((low, high), ((value & _MASK).cast(pl.Int64), (value // LIMB).cast(pl.Int64)))


def as_float(limbs: Sequence[pl.Expr], weight: float) -> pl.Expr:
    """The number as a float, its least limb counting `weight`; within one unit in the last place.

    A negative number is negated first: its limbs would cancel and lose the lower digits.
    """
    negative = normalize_limbs(limbs)[-1] < 0
    sign = pl.when(negative).then(-1).otherwise(1)
    total = pl.lit(0.0)
    for place, limb in enumerate(normalize_limbs([limb * sign for limb in limbs])):
        total = total + limb.cast(pl.Float64) * (weight * float(LIMB) ** place)
    return total * sign


def as_int64(limbs: Sequence[pl.Expr]) -> pl.Expr:
    """The number of two limbs as an Int64; null where it does not fit."""
    low, high = normalize_limbs(limbs)
    return pl.when(high.is_between(-(2**31), 2**31 - 1)).then(high * LIMB + low)


def sum_decimals(chain: tuple[str, str, str, str], value: pl.Expr) -> Sums:
    """Sum decimals by their digits, whatever the scale."""
    whole = value.to_physical()
    limbs = [whole // pl.lit(LIMB**place, pl.Int128) for place in range(4)]
    return Sums(
        chain, (*((limb & (LIMB - 1)).cast(pl.Int64) for limb in limbs[:-1]), limbs[-1].cast(pl.Int64))
    )


def as_decimal(limbs: Sequence[pl.Expr], scale: int) -> pl.Expr:
    """The number of four limbs as a decimal; null where it has more than 38 digits."""
    exact = pl.struct(limb.alias(str(place)) for place, limb in enumerate(normalize_limbs(limbs)))

    def each(rows: pl.Series) -> pl.Series:
        low, next_, upper, top = (rows.struct.field(str(place)).to_numpy() for place in range(4))
        fits = (top >= -(2**31)) & (top < 2**31)
        halves = np.empty((len(rows), 2), dtype=np.int64)
        halves[:, 0], halves[:, 1] = next_ * LIMB + low, top * LIMB + upper
        below, high = halves[:, 0].view(np.uint64), halves[:, 1]
        fits &= (high < _HIGH) | ((high == _HIGH) & (below < _LOW))
        fits &= (high > -_HIGH - 1) | ((high == -_HIGH - 1) & (below > LIMB**2 - _LOW))
        data = pa.py_buffer(halves.tobytes())
        decimals = pl.Series(
            pl.from_arrow(pa.Array.from_buffers(pa.decimal128(_DIGITS, scale), len(rows), [None, data]))
        )
        return decimals.set(pl.Series(~fits), None)

    return exact.map_batches(each, return_dtype=pl.Decimal(_DIGITS, scale), is_elementwise=True)


Limb = npt.NDArray[np.int64]
_MASK = LIMB - 1


@dataclass(frozen=True)
class Limbs(Piece):
    """Sums of several numbers, in limbs that NumPy computes, as one column of structs: the limbs that `split` makes of
    each value, those of every chain, one chain after the other.

    What an event adds takes many steps of 64-bit arithmetic. As expressions, each limb would repeat the steps of the
    others; here a function computes all limbs of all events of a frame together.
    """

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
