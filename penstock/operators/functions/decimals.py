"""Sums of decimals: their 128 bits in four limbs, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.operators.functions.sums import LIMB, Sums, normalize_limbs

#: the digits a Decimal has room for
DIGITS = 38
_HIGH, _LOW = divmod(10**DIGITS, LIMB**2)


def decimal_sum(chain: tuple[str, str, str, str], value: pl.Expr) -> Sums:
    """Sums decimals by their digits, whatever the scale."""
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
        made = pa.Array.from_buffers(pa.decimal128(DIGITS, scale), len(rows), [None, data])
        decimals = pl.Series(pl.from_arrow(made))
        return decimals.set(pl.Series(~fits), None)

    return exact.map_batches(each, return_dtype=pl.Decimal(DIGITS, scale), is_elementwise=True)
