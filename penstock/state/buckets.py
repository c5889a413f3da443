"""Hash keys, assign hashes to buckets, and order rows by hash. Hashes and buckets are part of the state format.

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


Ints = npt.NDArray[np.int64]


def order_by_hash_and_time(rows: pl.DataFrame, time: str) -> npt.NDArray[np.uint32] | None:
    """The row numbers sorted by `_hash`, then time; equal rows keep their order. None if the rows are sorted already.

    Rows arrive nearly in the order of time. So sorting by hash alone, then the few rows that are out of order, takes a
    quarter of the time of sorting by both.
    """
    hashes, times = rows[HASH].to_numpy(), rows[time].to_numpy()
    order: npt.NDArray[np.uint32] | None = None
    if (hashes[1:] < hashes[:-1]).any():
        sorted_ = rows.select(pl.arg_sort_by(HASH, maintain_order=True)).to_series()
        order = sorted_.cast(pl.UInt32).to_numpy()
        hashes, times = hashes[order], times[order]
    early = (hashes[1:] == hashes[:-1]) & (times[1:] < times[:-1])
    if not early.any():
        return order
    if order is None:
        order = np.arange(rows.height, dtype=np.uint32)
    group = np.cumsum(np.append(False, hashes[1:] != hashes[:-1]))
    unsorted = np.zeros(int(group[-1]) + 1, dtype=bool)
    unsorted[group[1:][early]] = True
    at = np.flatnonzero(unsorted[group])
    by_time = order.copy()
    by_time[at] = order[at][np.lexsort((times[at], group[at]))]
    return by_time


def sort_by_hash(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows sorted by hash; operators mostly pass them sorted."""
    hashes = rows[HASH].to_numpy()
    return rows if (hashes[1:] >= hashes[:-1]).all() else rows.sort(HASH, maintain_order=True)


def expand_row_ranges(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All numbers from each `low` to before its `high`: for each, the index of its range, and the number itself."""
    counts = np.maximum(high - low, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(np.arange(len(low)), counts), np.arange(total) + np.repeat(low - (ends - counts), counts)
