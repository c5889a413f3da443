"""Aggregate row ranges of a frame: by expressions, as sums, or with a function such as `np.minimum`.

A range is [low, high). Ranges may overlap, and none is empty. Each function returns one value per range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import expand_row_ranges

#: rows gathered at a time when ranges overlap
_ROWS_AT_ONCE = 1 << 22
_RANGE = "_range"


def aggregate_ranges(
    rows: pl.DataFrame, low: np.ndarray, high: np.ndarray, merged: Sequence[pl.Expr]
) -> list[pl.Series]:
    """Evaluate aggregation expressions over each range, by gathering its rows."""
    made = [rows.clear().with_columns(pl.lit(0).alias(_RANGE)).group_by(_RANGE).agg(merged)]
    for batch in split_batches(high - low):
        number, index = expand_row_ranges(low[batch], high[batch])
        chosen = rows[index].with_columns(pl.Series(_RANGE, number).set_sorted())
        made.append(chosen.group_by(_RANGE, maintain_order=True).agg(merged))
    return pl.concat([frame.drop(_RANGE) for frame in made]).get_columns()


def split_batches(sizes: np.ndarray) -> Iterator[slice]:
    """Batches of ranges whose rows fit into memory together; each batch has at least one range."""
    ends = np.cumsum(sizes)
    done = 0
    while done < len(sizes):
        before = ends[done - 1] if done else 0
        stop = max(done + 1, int(np.searchsorted(ends, before + _ROWS_AT_ONCE, side="right")))
        yield slice(done, stop)
        done = stop


def sum_ranges(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> npt.NDArray[np.int64]:
    """The sum of each range of integers. Prefix sums may wrap around; their differences do not."""
    if not len(low):
        return np.empty(0, dtype=np.int64)
    if are_adjacent(low, high):
        return np.asarray(np.add.reduceat(values[low[0] : high[-1]], low - low[0]))
    prefix = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=prefix[1:])
    difference: npt.NDArray[np.int64] = prefix[high] - prefix[low]
    return difference


def reduce_ranges(by: np.ufunc, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Each range reduced by a function such as `np.minimum`."""
    if not len(low):
        return values[:0]
    if are_adjacent(low, high):
        return np.asarray(by.reduceat(values[low[0] : high[-1]], low - low[0]))
    bounds = np.column_stack([low, high]).ravel()
    return np.asarray(by.reduceat(np.append(values, values[-1]), bounds)[::2])


def are_adjacent(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether each range starts where the one before it ends."""
    return bool((low[1:] == high[:-1]).all())
