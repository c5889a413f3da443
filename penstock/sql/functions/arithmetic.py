"""Rounding, division and remainder with the results of Spark and Java, to the last bit.

Spark rounds the shortest decimal form of a number, not its binary value. Here a double between two neighbours k/10^d
and (k+1)/10^d is compared with the double nearest to their middle. That double belongs to the middle alone: two
decimals of up to 15 digits never share one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from penstock.sql.functions.contract import map_batches

#: larger powers of ten are not exact as doubles
_MOST_PLACES = 22
#: to fewer places, every double rounds to 0
_LEAST_PLACES = -308
#: from here on, neighbouring doubles are further apart than the unit to round to
_EXACT = 2.0**52


def round_to(number: pl.Expr, dtype: pl.DataType, places: int, even: bool) -> pl.Expr:
    """Round to decimal places; a middle goes away from zero or, if `even`, to the even neighbour."""
    if dtype.is_integer():
        return _round_integer(number, places, even)
    if places > _MOST_PLACES:
        return number
    if places < _LEAST_PLACES:
        return pl.when(number.is_finite()).then(pl.lit(0.0, dtype)).otherwise(number)
    bound = (
        pl.struct(number=number)
        .struct.with_fields(steps=count_steps(pl.field("number"), dtype, places, even))
        .struct
    )
    original, steps = pl.field("number"), pl.field("steps")
    value = divide(steps, 10.0**places) if places >= 0 else steps * 10.0**-places
    fits = (original.abs().cast(pl.Float64) * 10.0**places < _EXACT) & original.is_finite()
    signed = pl.when(steps == 0).then(0.0).otherwise(value * original.sign())
    return bound.with_fields(it=pl.when(fits).then(signed.cast(dtype)).otherwise(original)).struct.field("it")


def count_steps(number: pl.Expr, dtype: pl.DataType, places: int, even: bool) -> pl.Expr:
    """How many steps of 10^-places there are in the size of a number, rounded, as a whole double."""
    size, power = number.abs(), 10.0 ** abs(places)
    wide = size.cast(pl.Float64)
    below = (wide * power if places >= 0 else divide(wide, power)).floor()
    middle = (divide(below + 0.5, power) if places >= 0 else (below + 0.5) * power).cast(dtype)
    up = size >= middle
    if even:
        up = (size > middle) | ((size == middle) & (below % 2 == 1))
    return below + up.cast(pl.Float64)


def _round_integer(number: pl.Expr, places: int, even: bool) -> pl.Expr:
    if places >= 0:
        return number
    if places < -18:
        return number * 0
    step = 10**-places
    size = number.abs()
    below, over = size // step, size % step
    up = over >= step // 2
    if even:
        up = (over > step // 2) | ((over == step // 2) & (below % 2 == 1))
    value: pl.Expr = (below + up.cast(pl.Int64)) * step * number.sign()
    return value


def divide(number: pl.Expr, by: pl.Expr | float) -> pl.Expr:
    """The nearest double to a quotient of doubles.

    Polars multiplies a column by the reciprocal of a single value, but not in a batch of one row, so the last bit would
    depend on the batch. It divides exactly by a column, so the divisor is made one.
    """
    divisor = number.is_null().cast(pl.Float64) + by
    return number / divisor


def remainder(number: pl.Expr, by: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The remainder with the sign of the dividend, exact for doubles too; NULL for division by 0."""
    divisor = pl.when(by != 0).then(by)
    if dtype.is_integer():
        return number - number.truncdiv(divisor) * divisor
    return map_batches("remainder", _remainder_of_doubles, pl.Float64, number, divisor)


def _remainder_of_doubles(number: pl.Series, by: pl.Series) -> pl.Series:
    with np.errstate(invalid="ignore"):
        left = np.fmod(number.cast(pl.Float64).to_numpy(), by.cast(pl.Float64).to_numpy())
    known = number.is_not_null() & by.is_not_null()
    return pl.select(pl.when(known).then(pl.Series(left))).to_series()
