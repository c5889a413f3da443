"""Cells: one row per key and pane, made by sorting instead of hashing.

Receives rows of partial answers with `_hash`; hands them grouped by key and pane, each pair once.

A sort by one 64-bit number and a comparison of neighbours takes half the time of a hash table over texts, and
leaves the rows in the order in which runs are written and buckets are dealt out. Keys are compared as they
are, so two keys that share a hash stay two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions import AggregateFunction
from penstock.operators.strict import Ordered, group_by_key
from penstock.state.buckets import HASH
from penstock.state.ranges import members

#: the number of the time window: its start divided by its size
PANE = "_pane"
#: up to this share of cells with several rows these are merged apart from the others
_MOST_MERGED = 0.6


def merge_partials(
    rows: pl.DataFrame, keys: tuple[str, ...], functions: Sequence[AggregateFunction]
) -> Ordered:
    """The rows with the partial answers of equal (key, pane) merged; grouped by key, panes in order."""
    order = None
    if not _one_after_the_other(rows):
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
    merged = _merged(rows, starts, functions)
    return Ordered(rows.select(HASH, *keys, PANE)[starts].hstack(merged), ordered.first[starts])


def _merged(
    rows: pl.DataFrame, starts: npt.NDArray[np.int64], functions: Sequence[AggregateFunction]
) -> list[pl.Series]:
    """The partial answers of stretches of rows, which begin at `starts`; those of one row are taken as they are."""
    ends = np.append(starts[1:], rows.height)
    many = np.flatnonzero(ends - starts > 1)
    if not functions or len(many) > _MOST_MERGED * len(starts):
        return [column for function in functions for column in function.merge_ranges(rows, starts, ends)]
    parts = rows.select(part for function in functions for part in function.parts())
    low, high = starts[many], ends[many]
    ends = np.cumsum(high - low)
    chosen = parts[members(low, high)[1]]
    made = [column for f in functions for column in f.merge_ranges(chosen, ends - (high - low), ends)]
    at = starts.copy()
    at[many] = rows.height + np.arange(len(many))
    return pl.concat([parts, pl.DataFrame(made)], rechunk=True)[at].get_columns()


def _one_after_the_other(rows: pl.DataFrame) -> bool:
    """Whether panes ascend from each stretch of rows that is sorted by hash to the next, as they do from run to run;
    then bringing equal hashes together leaves their panes in order."""
    hashes, panes = rows[HASH].to_numpy(), rows[PANE].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] < hashes[:-1]))
    if rows.height < 2 or len(starts) == 1:
        return True
    least, most = np.minimum.reduceat(panes, starts), np.maximum.reduceat(panes, starts)
    return bool((np.maximum.accumulate(most)[:-1] <= least[1:]).all())


def pane_positions(ordered: Ordered) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number for each row that says where its key and pane stand among all, and the panes there are, in order.

    A key's numbers begin at its own number times one more than there are panes.
    """
    distinct = ordered.rows[PANE].unique().sort().to_numpy()
    rank = np.searchsorted(distinct, ordered.rows[PANE].to_numpy())
    return ordered.number * (len(distinct) + 1) + rank, distinct
