"""Hash keys, and assign hashes to buckets. Both are part of the state format.

Guarantees:
- The hash is xxHash64 of a canonical text of the key (a published function with a fixed seed), equal on
  every machine, process and library version. Golden values in the tests pin it.
- A bucket is the hash's upper bits, so rows sorted by hash are sorted by bucket too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash  # noqa: F401 - registers the `nchash` namespace

from penstock.errors import UserError

#: the key hash of a row (UInt64)
HASH = "_hash"

_NULL = 0x6E756C6C6E756C6C
_MIX = np.uint64(0x9E3779B97F4A7C15)


def with_hash(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The frame with the column `_hash` of its key columns. Without keys every row has the same hash."""
    return frame.with_columns(pl.Series(HASH, key_hash(frame, keys), dtype=pl.UInt64))


def key_hash(frame: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The hash of each row's key."""
    if not keys:
        return np.zeros(frame.height, dtype=np.uint64)
    parts = frame.select(
        _hashed(frame.schema[key], pl.col(key)).alias(str(at)) for at, key in enumerate(keys)
    )
    return combine_hashes([part.to_numpy() for part in parts])


def column_hash(values: pl.Series) -> npt.NDArray[np.uint64]:
    """The hashes of one key column, for `combine_hashes`."""
    return values.to_frame("").select(_hashed(values.dtype, pl.col(""))).to_series().to_numpy()


def combine_hashes(parts: Sequence[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """The hash of each key, from the hashes of its columns."""
    hashed = parts[0]
    for part in parts[1:]:
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _MIX + part
    return hashed


def _hashed(dtype: pl.DataType, expr: pl.Expr) -> pl.Expr:
    text = _canonical(dtype, expr)
    hashed: pl.Expr = text.nchash.xxhash64()  # type: ignore[attr-defined]
    return hashed.fill_null(pl.lit(_NULL, dtype=pl.UInt64))


def can_be_key(dtype: pl.DataType) -> bool:
    """Whether a column of this type can be a key."""
    try:
        _canonical(dtype, pl.col(HASH))
    except UserError:
        return False
    return True


def _canonical(dtype: pl.DataType, expr: pl.Expr) -> pl.Expr:
    """The column as text that is the same in every library release."""
    if dtype == pl.String:
        return expr
    if dtype.is_integer() or dtype == pl.Boolean:
        return expr.cast(pl.Int64 if dtype == pl.Boolean else dtype).cast(pl.String)
    if dtype == pl.Binary:
        return expr.bin.encode("hex")
    if dtype.is_decimal():
        return expr.to_physical().cast(pl.String)
    if dtype.is_temporal():
        return expr.to_physical().cast(pl.Int64).cast(pl.String)
    if dtype.is_float():
        # one text for both zeros and for every NaN; for the rest, their bits
        wide = expr.cast(pl.Float64)
        one = pl.when(wide == 0).then(0.0).otherwise(wide.fill_nan(float("nan")))
        return one.map_batches(_bits, return_dtype=pl.Int64).cast(pl.String)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return expr.cast(pl.String)
    raise UserError(
        "BAD_KEY_TYPE",
        f"a column of type {dtype} cannot be a key",
        hint="Key by text, numbers, booleans or times; map a list or struct to one of these first.",
    )


def _bits(floats: pl.Series) -> pl.Series:
    """The bits of each float as an integer (an expression's `reinterpret` leaves floats as they are)."""
    bits = pl.Series(floats.name, floats.fill_null(0.0).to_numpy().view(np.int64))
    return bits.set(floats.is_null(), None)


def check_bucket_count(count: int) -> int:
    """Return a valid number of buckets, a power of two from 1 to 32,768; raise BAD_BUCKET_COUNT otherwise."""
    if count < 1 or count > 1 << 15 or count & (count - 1):
        raise UserError(
            "BAD_BUCKET_COUNT",
            f"{count} is no valid number of buckets",
            hint="Choose a power of two from 1 to 32768; 64 is the default.",
        )
    return count


def buckets_of(hashes: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.uint16]:
    """The bucket of each hash: its upper bits."""
    if count == 1:
        return np.zeros(len(hashes), dtype=np.uint16)
    shift = np.uint64(64 - (count.bit_length() - 1))
    return (hashes >> shift).astype(np.uint16)


def first_hash_of(bucket: int, count: int) -> int:
    """The lowest hash of a bucket; of bucket `count`, one past the highest hash."""
    return bucket << (64 - (count.bit_length() - 1)) if count > 1 else bucket << 64


def assign_evenly(buckets: int, slices: int) -> tuple[int, ...]:
    """The even bucket map: bucket `b` belongs to slice `assign_evenly(...)[b]`; slices are contiguous."""
    return tuple(bucket * slices // buckets for bucket in range(buckets))
