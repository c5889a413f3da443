"""The remainder of a division as Java has it: with the sign of what is divided, exact, NULL for division by 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl


def remainder(number: pl.Expr, by: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """What is left of a number; of doubles too, for which Polars itself has only an inexact one."""
    some = pl.when(by != 0).then(by)
    if dtype.is_integer():
        return number - number.truncdiv(some) * some
    return pl.map_batches([number, some], _of_doubles, return_dtype=pl.Float64, is_elementwise=True)


def _of_doubles(pair: Sequence[pl.Series]) -> pl.Series:
    number, by = pair
    with np.errstate(invalid="ignore"):
        left = np.fmod(number.cast(pl.Float64).to_numpy(), by.cast(pl.Float64).to_numpy())
    known = number.is_not_null() & by.is_not_null()
    return pl.select(pl.when(known).then(pl.Series(left))).to_series()
