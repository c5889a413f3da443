"""Which rows of two sides may be a pair: equal hashes, times near enough. Pure.

Receives two stretches, rows sorted by hash and then time; hands the row numbers of the candidates, a portion at
a time. Costs what is asked times the logarithm of what is there, and what is found: nothing is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import TIME
from penstock.state.buckets import HASH
from penstock.state.order import by_hash_and_time
from penstock.state.ranges import members

Ints: TypeAlias = npt.NDArray[np.int64]

#: candidates handed on in one portion, unless one row alone has more
PORTION = 1 << 19
#: up to this many rows of a hash are looked at one by one rather than searched by time
_FEW = 8


@dataclass(frozen=True)
class SortedRows:
    """Rows sorted by hash, then time."""

    rows: pl.DataFrame
    hashes: npt.NDArray[np.uint64]
    times: Ints

    @staticmethod
    def of(rows: pl.DataFrame) -> SortedRows:
        """The rows of a run that is sorted so already."""
        return SortedRows(rows, rows[HASH].to_numpy(), rows[TIME].to_numpy())

    @staticmethod
    def sorted(rows: pl.DataFrame) -> SortedRows:
        """Rows as they came, sorted."""
        order = by_hash_and_time(rows, TIME)
        return SortedRows.of(rows if order is None else rows[order])


def find_candidates(
    asking: SortedRows, asked: SortedRows, back: int, ahead: int
) -> Iterator[tuple[Ints, Ints]]:
    """Row numbers (asking, asked) of equal hash, the asked one at most `back` earlier and `ahead` later."""
    rows, low, high = _of_equal_hash(asking, asked)
    if not len(rows):
        return
    times = asking.times[rows]
    many = np.flatnonzero(high - low > _FEW)
    if len(many):
        first, last = low[many], high[many]
        low[many] = _searched(asked.times, first, last, times[many] - back, after_equal=False)
        high[many] = _searched(asked.times, low[many], last, times[many] + ahead, after_equal=True)
    for asks, theirs in chunk_ranges(low, high):
        mine = rows[asks]
        apart = asked.times[theirs] - asking.times[mine]
        near = (apart >= -back) & (apart <= ahead)
        yield (mine, theirs) if near.all() else (mine[near], theirs[near])


def chunk_ranges(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Ranges as pairs: the number of a range and each number in it; so many at a time that memory is no matter."""
    ends = np.cumsum(high - low)
    start = 0
    while start < len(low):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + PORTION, side="right")))
        group, each = members(low[start:stop], high[start:stop])
        yield group + start, each
        start = stop


def _of_equal_hash(asking: SortedRows, asked: SortedRows) -> tuple[Ints, Ints, Ints]:
    """The asking rows whose hash is there, and for each the range of rows that have it."""
    nothing = np.zeros(0, dtype=np.int64)
    if not len(asking.hashes) or not len(asked.hashes):
        return nothing, nothing, nothing
    heads = np.flatnonzero(np.append(True, asking.hashes[1:] != asking.hashes[:-1]))
    sizes = np.diff(heads, append=len(asking.hashes))
    hashes = asking.hashes[heads]
    low = np.searchsorted(asked.hashes, hashes)
    there = asked.hashes[np.minimum(low, len(asked.hashes) - 1)] == hashes
    heads, sizes, low = heads[there], sizes[there], low[there]
    high = np.searchsorted(asked.hashes, hashes[there], side="right")
    group, rows = members(heads, heads + sizes)
    return rows, low[group], high[group]


def _searched(times: Ints, low: Ints, high: Ints, wanted: Ints, *, after_equal: bool) -> Ints:
    """For each range of sorted times the place where the wanted time would stand."""
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        found = times[middle]
        right = found <= wanted[open_] if after_equal else found < wanted[open_]
        low[open_[right]] = middle[right] + 1
        high[open_[~right]] = middle[~right]
        open_ = open_[low[open_] < high[open_]]
    return low
