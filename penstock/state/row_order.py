"""Row numbers: the order of rows by hash and time, and the rows of many ranges. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import HASH

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
