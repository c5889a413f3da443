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

from penstock.operators.functions import Part
from penstock.operators.strict import Ordered, grouped
from penstock.state.buckets import HASH

#: the number of the time window: its start divided by its size
PANE = "_pane"


def cells(rows: pl.DataFrame, keys: tuple[str, ...], parts: Sequence[Part]) -> Ordered:
    """The rows with the partial answers of equal (key, pane) merged; grouped by key, panes in order."""
    ordered = grouped(rows, keys, _by_pane(rows[PANE].to_numpy()))
    rows, panes_np = ordered.rows, ordered.rows[PANE].to_numpy()
    new = ordered.first.copy()
    new[1:] |= panes_np[1:] != panes_np[:-1]
    starts = np.flatnonzero(new)
    if len(starts) == rows.height:
        return Ordered(rows.select(HASH, *keys, PANE, *(part.name for part in parts)), ordered.first)
    merged = [_merged(rows[part.name], part, new, starts) for part in parts]
    return Ordered(rows.select(HASH, *keys, PANE)[starts].with_columns(merged), ordered.first[starts])


def _by_pane(panes: npt.NDArray[np.int64]) -> pl.Series | None:
    """The row numbers in the order of the panes; None when there is one pane only."""
    if not len(panes) or (low := panes.min()) == (high := panes.max()):
        return None
    # NumPy sorts small numbers by counting them
    small = (panes - low).astype(np.uint16) if high - low < 1 << 16 else panes
    return pl.Series(np.argsort(small, kind="stable"))


def _merged(values: pl.Series, part: Part, new: np.ndarray, starts: np.ndarray) -> pl.Series:
    if part.merge == "sum":
        return pl.Series(part.name, np.add.reduceat(values.to_numpy(), starts))
    cell = pl.Series("cell", np.cumsum(new)).set_sorted()
    frame = pl.DataFrame([cell, values.alias(part.name)])
    return frame.group_by("cell", maintain_order=True).agg(part.merged())[part.name]
