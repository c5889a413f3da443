"""Pairs of rows: of two sides in order of time, the pairs within reach of each other for which a condition holds.

Receives two stretches of rows, for every outer row its range of inner rows, and a condition; hands the row numbers of
the pairs. Pairs are decided many at a time: where ranges are long, in tiles of a few outer rows against a
stretch of inner ones; where they are short, written out side by side. Either way a filter leaves few, and the
condition itself is asked about those; only what it reads is copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from penstock.errors import UserError
from penstock.operators.join_candidates import Ints, SortedRows
from penstock.operators.join_columns import JoinCondition, Schema, gather_columns
from penstock.operators.pair_filter import PairFilter, Values, build_pair_filter
from penstock.state.buckets import buckets_of

#: bytes of one tile: what is made of its pairs stays in the nearest caches
TILE = 1 << 17
#: the longest stretch of inner rows in a tile
STRETCH = 1 << 13
#: pairs that are written out, or handed to the condition, at a time
BLOCK = 1 << 16
#: fewer pairs than this are not worth a tile
LEAST = 1 << 10
#: a tile may cover this many times the pairs that are wanted of it
WASTE = 1.5

#: so many pairs for every row that would have to be searched make the search worth while
SEARCH = 50
#: a search must leave one pair of so many
FEW = 64

_HOLDS = "_holds"
_PLACE = (1 << 40) - 1


def ranges_within(
    outer: SortedRows, inner: SortedRows, buckets: int, below: int, above: int
) -> tuple[Ints, Ints]:
    """For each outer row the range of inner rows of its bucket, from `below` before to `above` after it.

    The hashes follow bucket and time, as those of a grid do.
    """
    low, high = np.zeros((2, len(outer.times)), dtype=np.int64)
    there = _sections(inner, buckets)
    for bucket, (start, end) in _sections(outer, buckets).items():
        if bucket in there:
            first, last = there[bucket]
            times, mine = inner.times[first:last], outer.times[start:end]
            low[start:end] = first + np.searchsorted(times, mine - below, side="left")
            high[start:end] = first + np.searchsorted(times, mine + above, side="right")
    return low, high


def _sections(side: SortedRows, buckets: int) -> dict[int, tuple[int, int]]:
    """Where each bucket's rows begin and end."""
    found, starts = np.unique(buckets_of(side.hashes, buckets), return_index=True)
    ends = np.append(starts, len(side.hashes))[1:]
    return {int(b): (int(s), int(e)) for b, s, e in zip(found, starts, ends, strict=True)}


class PairFinder:
    """Finds the partners of the rows of one side; no column is on both sides."""

    def __init__(self, outer: pl.DataFrame, condition: JoinCondition | None, inner: Schema) -> None:
        self._outer = outer
        self._condition = condition
        self._asked = frozenset(condition.expr.meta.root_names()) if condition else frozenset()
        self._filter = build_pair_filter(condition.expr, {**outer.schema, **inner}) if condition else None
        self._down = self._filter.arrays(outer) if self._filter else {}

    def find(self, inner: pl.DataFrame, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The pairs (outer row, inner row) within the outer rows' ranges for which the condition holds."""
        found = [(low[:0], low[:0])]
        rows = np.flatnonzero(high > low)
        if len(rows):
            found += [
                self._held(inner, *some) for some in self._candidates(inner, rows, low[rows], high[rows])
            ]
        return np.concatenate([ones for ones, _ in found]), np.concatenate([others for _, others in found])

    def _held(self, inner: pl.DataFrame, ones: Ints, others: Ints) -> tuple[Ints, Ints]:
        """Of these pairs those for which the condition holds."""
        if self._condition is None or not len(ones):
            return ones, others
        mine = gather_columns(
            self._outer, [name for name in self._outer.columns if name in self._asked], ones
        )
        theirs = gather_columns(inner, [name for name in inner.columns if name in self._asked], others)
        pairs = pl.DataFrame([pl.Series(_HOLDS, ones), *mine, *theirs])
        try:
            holds = pairs.with_columns(self._condition.expr.alias(_HOLDS))[_HOLDS]
        except pl.exceptions.PolarsError as failure:
            raise UserError(
                "EXPRESSION_FAILED",
                f"the condition of a product failed: {type(failure).__name__}: {failure}",
                hint="Nothing is lost: mend it and start again with the same state directory; the epoch is "
                "repeated.",
            ) from failure
        kept = np.flatnonzero(holds.fill_null(False).to_numpy())
        return ones[kept], others[kept]

    def _candidates(
        self, inner: pl.DataFrame, rows: Ints, low: Ints, high: Ints
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs that may pass, many at a time; all that do are among them."""
        if self._filter is None:
            for ones, others in _written_out(np.arange(len(rows)), low, high):
                yield rows[ones], others
            return
        first, last = int(low.min()), int(high.max())
        down = {key: array[rows] for key, array in self._down.items()}
        across = self._filter.arrays(inner[first:last])
        low, high = low - first, high - first
        met = _meeting(self._filter.equal_pairs, down, across, low, high)
        for ones, others in (
            met if met is not None else _in_blocks(_filter_pairs(self._filter, down, across, low, high))
        ):
            yield rows[ones], others + first


def _meeting(
    equals: tuple[tuple[str, str], ...],
    down: dict[str, Values],
    across: dict[str, Values],
    low: Ints,
    high: Ints,
) -> Iterator[tuple[Ints, Ints]] | None:
    """The pairs of which one of these arrays' values are equal, found by searching; None where sieving is cheaper."""
    turned = [(one, other) if one in down else (other, one) for one, other in equals]
    if not turned or not all(one in down and other in across for one, other in turned):
        return None
    wanted = int((high - low).sum())
    if wanted < SEARCH * len(turned) * (len(low) + len(across[turned[0][1]])):
        return None
    finds = [_searched(down[one], across[other], low, high) for one, other in turned]
    if sum(int((end - start).sum()) for _, start, end in finds) * FEW > wanted:
        return None
    return _found(finds)


def _searched(mine: Values, theirs: Values, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """The inner rows by their values and places, and for each outer row where those of its value and range stand."""
    places = np.sort((theirs.astype(np.int64) << 40) | np.arange(len(theirs)))
    value = mine.astype(np.int64) << 40
    return places, np.searchsorted(places, value | low), np.searchsorted(places, value | high)


def _found(finds: list[tuple[Ints, Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of several searches, each once, for some outer rows at a time."""
    ends = np.cumsum(sum(end - start for _, start, end in finds))
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        rows, pairs = np.arange(first, last), []
        for places, start, end in finds:
            for ones, at in _written_out(rows, start, end):
                pairs.append((ones << 40) | (places[at] & _PLACE))
        met = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, dtype=np.int64)
        yield met >> 40, met & _PLACE
        first = last


def _in_blocks(portions: Iterator[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Small portions put together."""
    ones, others, held = [], [], 0
    for some, more in portions:
        ones.append(some)
        others.append(more)
        held += len(some)
        if held >= BLOCK:
            yield np.concatenate(ones), np.concatenate(others)
            ones, others, held = [], [], 0
    if held:
        yield np.concatenate(ones), np.concatenate(others)


def _filter_pairs(
    pair_filter: PairFilter, down: dict[str, Values], across: dict[str, Values], low: Ints, high: Ints
) -> Iterator[tuple[Ints, Ints]]:
    """The pairs that pass the filter, a tile or a block at a time."""
    tiles, loose = _groups(low, high, TILE // pair_filter.width)
    yield from _filter_tiles(pair_filter, down, across, tiles, low, high)
    for ones, others in _written_out(loose, low, high):
        kept = np.flatnonzero(pair_filter.mask(_Gathered(down, across, ones, others)))
        yield ones[kept], others[kept]


class _Gathered(dict[str, Values]):
    """The arrays of pairs written out, made when asked for."""

    def __init__(self, down: dict[str, Values], across: dict[str, Values], ones: Ints, others: Ints) -> None:
        super().__init__()
        self._sides = ((down, ones), (across, others))

    def __missing__(self, key: str) -> Values:
        (array, at), *_ = [(arrays[key], at) for arrays, at in self._sides if key in arrays]
        self[key] = made = array[at]
        return made


def _groups(low: Ints, high: Ints, pairs: int) -> tuple[list[tuple[int, int]], Ints]:
    """Stretches of outer rows that make good tiles with their inner rows, and the rows that do not."""
    counts = high - low
    # rows whose ranges do not touch have nothing to share
    apart = np.append(True, low[1:] >= high[:-1])
    heads = np.flatnonzero(apart)
    lengths = np.diff(np.append(heads, len(low)))
    width = max(1, int(counts.mean()))
    # ranges move on from row to row: a tile must not become so tall that it covers too much
    pace = max(1e-3, float(np.diff(low)[~apart[1:]].sum()) / len(low))
    tall = max(2, min(pairs // min(width, STRETCH), int(width * (WASTE - 1) / pace * 0.8)))
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
    down: dict[str, Values],
    across: dict[str, Values],
    tiles: list[tuple[int, int]],
    low: Ints,
    high: Ints,
) -> Iterator[tuple[Ints, Ints]]:
    down = {key: array[:, None] for key, array in down.items()}
    for start, end in tiles:
        first, last = int(low[start:end].min()), int(high[start:end].max())
        tile = {key: array[start:end] for key, array in down.items()}
        for left in range(first, last, STRETCH):
            right = min(left + STRETCH, last)
            tile |= {key: array[left:right] for key, array in across.items()}
            mask = pair_filter.mask(tile)
            if mask.shape != (end - start, right - left):  # it asked about one side alone
                mask = np.broadcast_to(mask, (end - start, right - left))
            at = np.flatnonzero(mask)
            if len(at):
                ones, others = np.divmod(at, right - left)
                ones, others = ones + start, others + left
                inside = (others >= low[ones]) & (others < high[ones])
                yield ones[inside], others[inside]


def _written_out(rows: Ints, low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of these outer rows side by side, some at a time."""
    counts = high[rows] - low[rows]
    ends = np.cumsum(counts)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        ones, many = rows[start:end], counts[start:end]
        shift = np.repeat(low[ones] - np.append(0, np.cumsum(many)[:-1]), many)
        yield np.repeat(ones, many), np.arange(len(shift)) + shift
        start = end
