"""Cells: one row per key and pane, made by sorting instead of hashing.

Receives rows of partial answers with `_hash`; hands them grouped by key and pane, each pair once.

A sort by one 64-bit number and a comparison of neighbours takes half the time of a hash table over texts, and
leaves the rows in the order in which runs are written and buckets are dealt out. Keys are compared as they
are, so two keys that share a hash stay two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from penstock.operators.functions import AggregateFunction
from penstock.operators.strict import Ordered, grouped
from penstock.state.buckets import HASH

#: the number of the time window: its start divided by its size
PANE = "_pane"


def cells(rows: pl.DataFrame, keys: tuple[str, ...], functions: Sequence[AggregateFunction]) -> Ordered:
    """The rows with the partial answers of equal (key, pane) merged; grouped by key, panes in order."""
    panes = rows[PANE]
    if rows.height and panes.min() != panes.max():
        rows = rows.sort(PANE, maintain_order=True)
    ordered = grouped(rows, keys)
    rows, panes_np = ordered.rows, ordered.rows[PANE].to_numpy()
    new = ordered.first.copy()
    new[1:] |= panes_np[1:] != panes_np[:-1]
    starts = np.flatnonzero(new)
    if len(starts) == rows.height:
        parts = [part for function in functions for part in function.parts()]
        return Ordered(rows.select(HASH, *keys, PANE, *parts), ordered.first)
    ends = np.append(starts[1:], rows.height)
    merged = [column for function in functions for column in function.over(rows, starts, ends)]
    return Ordered(rows.select(HASH, *keys, PANE)[starts].with_columns(merged), ordered.first[starts])
