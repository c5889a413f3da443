"""Find candidate pairs of a join: rows of two sides with equal hashes and times near enough. Pure.

The build side is searched for every row of the probe side, never scanned. So the cost is the number of probe rows times
the logarithm of the size of the build side, plus the number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import TIME
from penstock.state.buckets import HASH, expand_row_ranges, order_by_hash_and_time

Ints: TypeAlias = npt.NDArray[np.int64]

#: how many candidates are returned at a time, unless one row alone has more
CHUNK = 1 << 19
#: up to this many rows of a hash are compared one by one rather than searched by time
_FEW = 8


@dataclass(frozen=True)
class SortedRows:
    """Rows sorted by hash, then time."""

    rows: pl.DataFrame
    hashes: npt.NDArray[np.uint64]
    times: Ints

    @staticmethod
    def of(rows: pl.DataFrame) -> SortedRows:
        """The rows of a run, which are sorted already."""
        return SortedRows(rows, rows[HASH].to_numpy(), rows[TIME].to_numpy())

    @staticmethod
    def sorted(rows: pl.DataFrame) -> SortedRows:
        """Sort rows that are in any order."""
        order = order_by_hash_and_time(rows, TIME)
        return SortedRows.of(rows if order is None else rows[order])


def find_candidates(
    probe: SortedRows, build: SortedRows, back: int, ahead: int
) -> Iterator[tuple[Ints, Ints]]:
    """Row numbers (probe, build) of equal hash, the build row at most `back` earlier and `ahead` later."""
    rows, low, high = _ranges_of_equal_hash(probe, build)
    if not len(rows):
        return
    times = probe.times[rows]
    many = np.flatnonzero(high - low > _FEW)
    if len(many):
        first, last = low[many], high[many]
        low[many] = _search_times(build.times, first, last, times[many] - back, after_equal=False)
        high[many] = _search_times(build.times, low[many], last, times[many] + ahead, after_equal=True)
    for number, build_rows in expand_in_chunks(low, high):
        probe_rows = rows[number]
        distance = build.times[build_rows] - probe.times[probe_rows]
        near = (distance >= -back) & (distance <= ahead)
        yield (probe_rows, build_rows) if near.all() else (probe_rows[near], build_rows[near])


def expand_in_chunks(low: Ints, high: Ints, chunk: int = CHUNK) -> Iterator[tuple[Ints, Ints]]:
    """All pairs (number of a range, number in it), so many at a time that memory stays bounded."""
    ends = np.cumsum(high - low)
    start = 0
    while start < len(low):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + chunk, side="right")))
        group, each = expand_row_ranges(low[start:stop], high[start:stop])
        yield group + start, each
        start = stop


def _ranges_of_equal_hash(probe: SortedRows, build: SortedRows) -> tuple[Ints, Ints, Ints]:
    """The probe rows whose hash the build side has, and for each the range of build rows with that hash."""
    nothing = np.zeros(0, dtype=np.int64)
    if not len(probe.hashes) or not len(build.hashes):
        return nothing, nothing, nothing
    heads = np.flatnonzero(np.append(True, probe.hashes[1:] != probe.hashes[:-1]))
    sizes = np.diff(heads, append=len(probe.hashes))
    hashes = probe.hashes[heads]
    low = np.searchsorted(build.hashes, hashes)
    there = build.hashes[np.minimum(low, len(build.hashes) - 1)] == hashes
    heads, sizes, low = heads[there], sizes[there], low[there]
    high = np.searchsorted(build.hashes, hashes[there], side="right")
    group, rows = expand_row_ranges(heads, heads + sizes)
    return rows, low[group], high[group]


def _search_times(times: Ints, low: Ints, high: Ints, wanted: Ints, *, after_equal: bool) -> Ints:
    """In each range of sorted times, the position at which the wanted time would be inserted."""
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        at_middle = times[middle]
        right = at_middle <= wanted[open_] if after_equal else at_middle < wanted[open_]
        low[open_[right]] = middle[right] + 1
        high[open_[~right]] = middle[~right]
        open_ = open_[low[open_] < high[open_]]
    return low
