"""Find the pairs of a product: of two sides in order of time, those within reach that satisfy a condition.

Every outer row has a range of inner rows. Many pairs are decided at a time: where ranges are long, in tiles of a few
outer rows and a stretch of inner ones; where they are short, listed side by side. Either way a cheap filter leaves few
pairs, and the condition itself is evaluated for those only, so that only the columns that it reads are copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from penstock.operators.join_candidates import Ints, SortedRows, expand_in_chunks
from penstock.operators.join_columns import JoinCondition, Schema, gather_columns
from penstock.operators.pair_filter import PairFilter, Values, build_pair_filter
from penstock.state.buckets import buckets_of

#: bytes of one tile: the arrays of its pairs stay in the nearest caches
TILE = 1 << 17
#: the longest stretch of inner rows in a tile
STRETCH = 1 << 13
#: how many pairs are listed, or evaluated by the condition, at a time
BLOCK = 1 << 16
#: fewer pairs than this are not worth a tile
LEAST = 1 << 10
#: a tile may cover this many times the pairs that are needed of it
WASTE = 1.5

#: from so many pairs on for every row to be searched, a search is worth while
SEARCH = 50
#: a search must leave one pair of so many
FEW = 64

#: the bits of an inner row's number, where it is packed with its value or outer row
_ROW_NUMBER = (1 << 40) - 1


def ranges_within(
    outer: SortedRows, inner: SortedRows, buckets: int, below: int, above: int
) -> tuple[Ints, Ints]:
    """For each outer row the range of inner rows of its bucket, from `below` before to `above` after it.

    The hashes follow bucket and time, as those of a grid do.
    """
    low, high = np.zeros((2, len(outer.times)), dtype=np.int64)
    inner_ranges = _bucket_ranges(inner, buckets)
    for bucket, (start, end) in _bucket_ranges(outer, buckets).items():
        if bucket in inner_ranges:
            first, last = inner_ranges[bucket]
            inner_times, outer_times = inner.times[first:last], outer.times[start:end]
            low[start:end] = first + np.searchsorted(inner_times, outer_times - below, side="left")
            high[start:end] = first + np.searchsorted(inner_times, outer_times + above, side="right")
    return low, high


def _bucket_ranges(side: SortedRows, buckets: int) -> dict[int, tuple[int, int]]:
    """The first row of each bucket and the one after its last."""
    found, starts = np.unique(buckets_of(side.hashes, buckets), return_index=True)
    ends = np.append(starts, len(side.hashes))[1:]
    return {int(b): (int(s), int(e)) for b, s, e in zip(found, starts, ends, strict=True)}


class PairFinder:
    """Finds the matches of the outer rows; no column is on both sides."""

    def __init__(self, outer: pl.DataFrame, condition: JoinCondition | None, inner: Schema) -> None:
        self._outer = outer
        self._condition = condition
        self._columns = frozenset(condition.expr.meta.root_names()) if condition else frozenset()
        self._filter = build_pair_filter(condition.expr, {**outer.schema, **inner}) if condition else None
        self._outer_arrays = self._filter.arrays(outer) if self._filter else {}

    def find(self, inner: pl.DataFrame, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The pairs (outer row, inner row) within the ranges of the outer rows that satisfy the condition."""
        found = [(low[:0], low[:0])]
        rows = np.flatnonzero(high > low)
        if len(rows):
            found += [
                self._evaluate(inner, *pairs)
                for pairs in self._candidates(inner, rows, low[rows], high[rows])
            ]
        return _concat_pairs(found)

    def _evaluate(self, inner: pl.DataFrame, at_outer: Ints, at_inner: Ints) -> tuple[Ints, Ints]:
        """Those of these pairs that satisfy the condition."""
        if self._condition is None or not len(at_outer):
            return at_outer, at_inner
        pairs = pl.DataFrame(
            [
                pl.Series("_row", at_outer),  # a condition may read no column
                *gather_columns(self._outer, self._columns_of(self._outer), at_outer),
                *gather_columns(inner, self._columns_of(inner), at_inner),
            ]
        )
        holds = np.flatnonzero(self._condition.is_true(pairs, "product"))
        return at_outer[holds], at_inner[holds]

    def _columns_of(self, side: pl.DataFrame) -> list[str]:
        return [name for name in side.columns if name in self._columns]

    def _candidates(
        self, inner: pl.DataFrame, rows: Ints, low: Ints, high: Ints
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs that may satisfy the condition, many at a time; all that do are among them."""
        if self._filter is None:
            for at_outer, at_inner in _list_pairs(np.arange(len(rows)), low, high):
                yield rows[at_outer], at_inner
            return
        first, last = int(low.min()), int(high.max())
        outer_arrays = {key: array[rows] for key, array in self._outer_arrays.items()}
        inner_arrays = self._filter.arrays(inner[first:last])
        low, high = low - first, high - first
        pairs = _search_equal_values(self._filter.equal_pairs, outer_arrays, inner_arrays, low, high)
        if pairs is None:
            pairs = _join_small(_filter_pairs(self._filter, outer_arrays, inner_arrays, low, high))
        for at_outer, at_inner in pairs:
            yield rows[at_outer], at_inner + first


def _search_equal_values(
    equals: tuple[tuple[str, str], ...],
    outer_arrays: dict[str, Values],
    inner_arrays: dict[str, Values],
    low: Ints,
    high: Ints,
) -> Iterator[tuple[Ints, Ints]] | None:
    """The pairs in which a value of two of these arrays is equal, found by search; None where a filter is cheaper."""
    keys = [(one, other) if one in outer_arrays else (other, one) for one, other in equals]
    if not keys or not all(outer in outer_arrays and inner in inner_arrays for outer, inner in keys):
        return None
    pair_count = int((high - low).sum())
    if pair_count < SEARCH * len(keys) * (len(low) + len(inner_arrays[keys[0][1]])):
        return None
    searches = [_search_values(outer_arrays[outer], inner_arrays[inner], low, high) for outer, inner in keys]
    if sum(int((end - start).sum()) for _, start, end in searches) * FEW > pair_count:
        return None
    return _union_pairs(searches)


def _search_values(outer: Values, inner: Values, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """The inner rows sorted by value and number, and for each outer row where those of its value and range are."""
    rows = np.sort((inner.astype(np.int64) << 40) | np.arange(len(inner)))
    value = outer.astype(np.int64) << 40
    return rows, np.searchsorted(rows, value | low), np.searchsorted(rows, value | high)


def _union_pairs(searches: list[tuple[Ints, Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of several searches, each once, for some outer rows at a time."""
    ends = np.cumsum(sum(end - start for _, start, end in searches))
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        rows, pairs = np.arange(first, last), []
        for inner_rows, start, end in searches:
            for at_outer, at in _list_pairs(rows, start, end):
                pairs.append((at_outer << 40) | (inner_rows[at] & _ROW_NUMBER))
        distinct = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, dtype=np.int64)
        yield distinct >> 40, distinct & _ROW_NUMBER
        first = last


def _join_small(portions: Iterator[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Concatenate small portions to blocks."""
    block, rows = list[tuple[Ints, Ints]](), 0
    for portion in portions:
        block.append(portion)
        rows += len(portion[0])
        if rows >= BLOCK:
            yield _concat_pairs(block)
            block, rows = [], 0
    if rows:
        yield _concat_pairs(block)


def _concat_pairs(pairs: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([outer for outer, _ in pairs]), np.concatenate([inner for _, inner in pairs])


def _filter_pairs(
    pair_filter: PairFilter,
    outer_arrays: dict[str, Values],
    inner_arrays: dict[str, Values],
    low: Ints,
    high: Ints,
) -> Iterator[tuple[Ints, Ints]]:
    """The pairs that pass the filter, a tile or a block at a time."""
    tiles, loose = _split_tiles(low, high, TILE // pair_filter.width)
    yield from _filter_tiles(pair_filter, outer_arrays, inner_arrays, tiles, low, high)
    for at_outer, at_inner in _list_pairs(loose, low, high):
        passed = np.flatnonzero(pair_filter.mask(_PairArrays(outer_arrays, inner_arrays, at_outer, at_inner)))
        yield at_outer[passed], at_inner[passed]


class _PairArrays(dict[str, Values]):
    """The arrays of listed pairs, each made at its first use."""

    def __init__(
        self, outer_arrays: dict[str, Values], inner_arrays: dict[str, Values], at_outer: Ints, at_inner: Ints
    ) -> None:
        super().__init__()
        self._sides = ((outer_arrays, at_outer), (inner_arrays, at_inner))

    def __missing__(self, key: str) -> Values:
        (array, at), *_ = [(arrays[key], at) for arrays, at in self._sides if key in arrays]
        self[key] = values = array[at]
        return values


def _split_tiles(low: Ints, high: Ints, pairs: int) -> tuple[list[tuple[int, int]], Ints]:
    """The stretches of outer rows that make good tiles with their inner rows, and the rows that make none."""
    counts = high - low
    # rows whose ranges do not touch share no inner rows
    apart = np.append(True, low[1:] >= high[:-1])
    heads = np.flatnonzero(apart)
    lengths = np.diff(np.append(heads, len(low)))
    width = max(1, int(counts.mean()))
    # ranges move forward from row to row: a tile must not be so tall that it covers too much
    step = max(1e-3, float(np.diff(low)[~apart[1:]].sum()) / len(low))
    tall = max(2, min(pairs // min(width, STRETCH), int(width * (WASTE - 1) / step * 0.8)))
    parts = -(-lengths // tall)
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.repeat(heads, parts) + number * np.repeat(lengths, parts) // np.repeat(parts, parts)
    covered = np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts)
    sizes = np.diff(np.append(starts, len(low)))
    good = (covered * sizes <= np.add.reduceat(counts, starts) * WASTE) & (covered * sizes >= LEAST)
    tiles = [(int(s), int(s + n)) for s, n in zip(starts[good], sizes[good], strict=True)]
    return tiles, np.flatnonzero(np.repeat(~good, sizes))


def _filter_tiles(
    pair_filter: PairFilter,
    outer_arrays: dict[str, Values],
    inner_arrays: dict[str, Values],
    tiles: list[tuple[int, int]],
    low: Ints,
    high: Ints,
) -> Iterator[tuple[Ints, Ints]]:
    outer_arrays = {key: array[:, None] for key, array in outer_arrays.items()}
    for start, end in tiles:
        first, last = int(low[start:end].min()), int(high[start:end].max())
        tile = {key: array[start:end] for key, array in outer_arrays.items()}
        for left in range(first, last, STRETCH):
            right = min(left + STRETCH, last)
            tile |= {key: array[left:right] for key, array in inner_arrays.items()}
            mask = pair_filter.mask(tile)
            if mask.shape != (end - start, right - left):  # it read one side alone
                mask = np.broadcast_to(mask, (end - start, right - left))
            at = np.flatnonzero(mask)
            if len(at):
                at_outer, at_inner = np.divmod(at, right - left)
                at_outer, at_inner = at_outer + start, at_inner + left
                inside = (at_inner >= low[at_outer]) & (at_inner < high[at_outer])
                yield at_outer[inside], at_inner[inside]


def _list_pairs(rows: Ints, low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of these outer rows side by side, some at a time."""
    for number, at_inner in expand_in_chunks(low[rows], high[rows], BLOCK):
        yield rows[number], at_inner
