"""Division of doubles to the last bit, and the remainder as Java has it.

Polars divides a column by a single value as a product with its reciprocal, but not in a batch of one row: the last bit
would depend on where batches are cut.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from penstock.sql.functions.batches import batched


def quotient(number: pl.Expr, by: pl.Expr | float) -> pl.Expr:
    """A double divided by another, the nearest there is; the divisor is made a column, which is divided by exactly."""
    divisor = number.is_null().cast(pl.Float64) + by
    return number / divisor


def remainder(number: pl.Expr, by: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """What is left of a number, with its sign; of doubles too, for which Polars has only an inexact one. NULL for 0."""
    some = pl.when(by != 0).then(by)
    if dtype.is_integer():
        return number - number.truncdiv(some) * some
    return batched("remainder", _of_doubles, pl.Float64, number, some)


def _of_doubles(number: pl.Series, by: pl.Series) -> pl.Series:
    with np.errstate(invalid="ignore"):
        left = np.fmod(number.cast(pl.Float64).to_numpy(), by.cast(pl.Float64).to_numpy())
    known = number.is_not_null() & by.is_not_null()
    return pl.select(pl.when(known).then(pl.Series(left))).to_series()
