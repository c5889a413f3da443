"""Rows of a run, sorted by hash: what a lookup searches. In a frame, or in a table that is mapped.

A frame of a mapped table has views of all its texts, which take time and memory of their own. A lookup needs few rows
of a large run, and a merge some buckets. `MappedRows` makes frames of those alone, so keeping it open costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.state.buckets import HASH
from penstock.state.ipc import from_table


class RunRows(Protocol):
    """Rows sorted by hash."""

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hash of each row."""

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows with these numbers."""


@dataclass(frozen=True)
class FrameRows:
    """The rows of a frame."""

    frame: pl.DataFrame

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return self.frame[HASH].to_numpy()

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        return self.frame.select(names)[at]


@dataclass(frozen=True)
class MappedRows:
    """The rows of a table in one piece."""

    table: pa.Table

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        hashes: npt.NDArray[np.uint64] = self.table[HASH].chunk(0).to_numpy()
        return hashes

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        return from_table(self.table.select(names).take(pa.array(at)))

    def rows(self, ranges: Sequence[tuple[int, int]]) -> pl.DataFrame:
        """The rows of some ranges (first row, number of rows)."""
        return from_table(pa.concat_tables([self.table.slice(*rows) for rows in ranges]))
