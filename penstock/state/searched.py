"""Runs as a look-up sees them: sorted hashes to search, and rows by their numbers.

Receives a frame, or a table that is mapped; hands the rows asked for, as frames.

A frame of a mapped table has views of all its texts, which take time and memory of their own. Of a large run a look-up
needs few rows, and a merge some buckets: `Mapped` makes frames of those alone, so that to keep it open costs nothing.
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


class Searched(Protocol):
    """Rows in the order of their hashes."""

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hash of every row."""

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        """These columns of the rows of these numbers."""


@dataclass(frozen=True)
class Framed:
    """The rows of a frame."""

    frame: pl.DataFrame

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return self.frame[HASH].to_numpy()

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        return self.frame.select(names)[at]


@dataclass(frozen=True)
class Mapped:
    """The rows of a table in one piece."""

    table: pa.Table

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        found: npt.NDArray[np.uint64] = self.table[HASH].chunk(0).to_numpy()
        return found

    def gather(self, at: npt.NDArray[np.int64], names: Sequence[str]) -> pl.DataFrame:
        return from_table(self.table.select(names).take(pa.array(at)))

    def rows(self, ranges: Sequence[tuple[int, int]]) -> pl.DataFrame:
        """The rows of some ranges (first row, how many)."""
        return from_table(pa.concat_tables([self.table.slice(*rows) for rows in ranges]))
