"""Merge partial aggregates to one row per key and pane, by sorting instead of hashing.

Sorting by one 64-bit number and comparing neighbours takes half the time of a hash table over texts. It also leaves the
rows in the order in which runs are written and buckets are split. Keys are compared as they are, so two keys with the
same hash stay two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions import AggregateFunction
from penstock.operators.strict import Ordered, group_by_key
from penstock.state.buckets import HASH
from penstock.state.row_order import expand_row_ranges

#: the instant that names a pane: its start, or its end where a pane is the window of a job (Int64)
PANE = "_pane"
#: up to this share of (key, pane) pairs with several rows, only these are merged
_MOST_MERGED = 0.6


def merge_partials(
    rows: pl.DataFrame, keys: tuple[str, ...], functions: Sequence[AggregateFunction]
) -> Ordered:
    """Merge the partial aggregates of equal (key, pane); the result is grouped by key, with panes in order."""
    order = None
    if not _panes_ascend(rows):
        order = rows.select(pl.arg_sort_by(PANE, maintain_order=True)).to_series()
    ordered = group_by_key(rows, keys, order)
    rows, panes = ordered.rows, ordered.rows[PANE].to_numpy()
    if ((panes[1:] < panes[:-1]) & ~ordered.first[1:]).any():
        order = pl.Series(pane_positions(ordered)[0]).arg_sort()
        rows, panes = rows[order], panes[order.to_numpy()]
    new = ordered.first.copy()
    new[1:] |= panes[1:] != panes[:-1]
    starts = np.flatnonzero(new)
    if len(starts) == rows.height:
        parts = [part for function in functions for part in function.parts()]
        return Ordered(rows.select(HASH, *keys, PANE, *parts), ordered.first)
    merged = _merge_ranges(rows, starts, functions)
    return Ordered(rows.select(HASH, *keys, PANE)[starts].hstack(merged), ordered.first[starts])


def _merge_ranges(
    rows: pl.DataFrame, starts: npt.NDArray[np.int64], functions: Sequence[AggregateFunction]
) -> list[pl.Series]:
    """The partial aggregate of each range of rows; ranges begin at `starts`. A range of one row stays as it is."""
    ends = np.append(starts[1:], rows.height)
    several = np.flatnonzero(ends - starts > 1)
    if not functions or len(several) > _MOST_MERGED * len(starts):
        return [column for function in functions for column in function.merge_ranges(rows, starts, ends)]
    parts = rows.select(part for function in functions for part in function.parts())
    low, high = starts[several], ends[several]
    ends = np.cumsum(high - low)
    chosen = parts[expand_row_ranges(low, high)[1]]
    merged = [column for f in functions for column in f.merge_ranges(chosen, ends - (high - low), ends)]
    at = starts.copy()
    at[several] = rows.height + np.arange(len(several))
    return pl.concat([parts, pl.DataFrame(merged)], rechunk=True)[at].get_columns()


def _panes_ascend(rows: pl.DataFrame) -> bool:
    """Whether panes ascend from each stretch of rows that is sorted by hash to the next, as they do from run to run.

    Then grouping by hash leaves the panes of a hash in order.
    """
    hashes, panes = rows[HASH].to_numpy(), rows[PANE].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] < hashes[:-1]))
    if rows.height < 2 or len(starts) == 1:
        return True
    least, most = np.minimum.reduceat(panes, starts), np.maximum.reduceat(panes, starts)
    return bool((np.maximum.accumulate(most)[:-1] <= least[1:]).all())


def pane_positions(ordered: Ordered) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row the rank of its (key, pane), and the distinct panes in order.

    The ranks of a key start at its number times one more than there are panes.
    """
    distinct = ordered.rows[PANE].unique().sort().to_numpy()
    rank = np.searchsorted(distinct, ordered.rows[PANE].to_numpy())
    return ordered.number * (len(distinct) + 1) + rank, distinct
