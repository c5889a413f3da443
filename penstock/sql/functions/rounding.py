"""Rounding as Spark does it: on the shortest decimal spelling of a number, not on its binary value.

A double between two neighbours k/10^d and (k+1)/10^d is compared with the double nearest to their middle. That
double is the middle's own: two decimals of up to 15 digits never share one.
"""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.division import quotient

#: powers of ten beyond this are no longer exact as doubles
_MOST = 22
#: from here on a double's steps are wider than what is to be rounded
_EXACT = 2.0**52


def rounded(number: pl.Expr, dtype: pl.DataType, places: int, even: bool) -> pl.Expr:
    """To a number of places; a middle goes away from zero or, if `even`, to the even neighbour."""
    if dtype.is_integer():
        return _whole(number, places, even)
    if places > _MOST:
        return number
    bound = (
        pl.struct(number=number)
        .struct.with_fields(steps=scaled(pl.field("number"), dtype, places, even))
        .struct
    )
    given, steps = pl.field("number"), pl.field("steps")
    value = quotient(steps, 10.0**places) if places >= 0 else steps * 10.0**-places
    fits = (given.abs().cast(pl.Float64) * 10.0**places < _EXACT) & given.is_finite()
    signed = pl.when(steps == 0).then(0.0).otherwise(value * given.sign())
    return bound.with_fields(it=pl.when(fits).then(signed.cast(dtype)).otherwise(given)).struct.field("it")


def scaled(number: pl.Expr, dtype: pl.DataType, places: int, even: bool) -> pl.Expr:
    """How many steps of 10^-places there are in a number's size, rounded, as a whole double."""
    size, power = number.abs(), 10.0 ** abs(places)
    wide = size.cast(pl.Float64)
    below = (wide * power if places >= 0 else quotient(wide, power)).floor()
    middle = (quotient(below + 0.5, power) if places >= 0 else (below + 0.5) * power).cast(dtype)
    up = size >= middle
    if even:
        up = (size > middle) | ((size == middle) & (below % 2 == 1))
    return below + up.cast(pl.Float64)


def _whole(number: pl.Expr, places: int, even: bool) -> pl.Expr:
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
