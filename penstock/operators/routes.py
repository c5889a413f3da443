"""Routes: which bucket of its operator a row goes to. A route computes the column `_hash`. Pure.

The upper bits of `_hash` are the bucket. `_hash` decides where a row's state is, so a route is part of the state's
format.

- by key: equal keys meet; a user's partitioner may decide which keys are together
- round-robin: evenly over all buckets, for work without state
- broadcast: every slice gets every row
- grid: every pair of rows of two inputs meets in exactly one bucket (StreamCloud, IV.A.b)
- forward: rows stay in their slice; the compiler declares it on an edge whose key is the partitioning already
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import HASH, with_hash

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: event times lie between minus and plus this
_EARLIEST = np.int64(2**62)


class Partitioner(Protocol):
    """A user's rule for which keys are together."""

    @property
    def parts(self) -> int:
        """The number of parts."""

    def part_of(self, keys: pl.DataFrame) -> pl.Series:
        """The part of each row of key columns, 0 to parts - 1."""


class Route(ABC):
    """Assigns rows to buckets."""

    #: every slice gets every row
    is_broadcast: bool = False

    @abstractmethod
    def add_hash(self, rows: pl.DataFrame, buckets: int) -> pl.DataFrame:
        """The rows with `_hash`; a row may become several."""

    @abstractmethod
    def describe(self) -> str:
        """What `explain` prints after "exchange"."""


@dataclass(frozen=True)
class ByKey(Route):
    """Equal keys meet."""

    keys: tuple[str, ...]
    partitioner: Partitioner | None = None

    def add_hash(self, rows: pl.DataFrame, buckets: int) -> pl.DataFrame:
        if HASH not in rows.columns:  # reduced rows have it already
            rows = with_hash(rows, self.keys)
        if self.partitioner is None or self.partitioner.parts == 1:
            return rows
        part = self.partitioner.part_of(rows.select(self.keys)).cast(pl.UInt64).to_numpy()
        width = np.uint64(2**64 // self.partitioner.parts)
        return rows.with_columns(pl.Series(HASH, part * width + rows[HASH].to_numpy() % width))

    def describe(self) -> str:
        how = f", partitioned by {self.partitioner}" if self.partitioner else ""
        return f"by {', '.join(self.keys)}{how}" if self.keys else "by nothing: one bucket takes all"


@dataclass(frozen=True)
class RoundRobin(Route):
    """Spreads rows evenly over all buckets."""

    def add_hash(self, rows: pl.DataFrame, buckets: int) -> pl.DataFrame:
        spread = np.arange(1, rows.height + 1, dtype=np.uint64) * _GOLDEN
        return rows.with_columns(pl.Series(HASH, spread))

    def describe(self) -> str:
        return "round-robin"


@dataclass(frozen=True)
class Broadcast(Route):
    """Every slice gets every row."""

    is_broadcast = True

    def add_hash(self, rows: pl.DataFrame, buckets: int) -> pl.DataFrame:
        return rows.with_columns(pl.lit(0, pl.UInt64).alias(HASH))

    def describe(self) -> str:
        return "broadcast"


@dataclass(frozen=True)
class Grid(Route):
    """One side of a grid of cells. A left row goes to all cells of its grid row, a right row to all cells of its grid
    column, so a left and a right row meet in exactly one cell.

    A cell is one bucket. Of many buckets only `cells` are used, evenly spaced, because every row is copied to all cells
    of its grid row or column. Within a bucket the hash ascends with the rows' time, so runs of state are sorted by
    time.
    """

    left: bool
    cells: int = 16

    def add_hash(self, rows: pl.DataFrame, buckets: int) -> pl.DataFrame:
        bits = buckets.bit_length() - 1
        high, low = grid_bits(min(buckets, self.cells))
        own, other = (high, low) if self.left else (low, high)
        spread = _spread_positions(rows)
        mine = spread >> np.uint64(64 - own) if own else np.zeros(rows.height, dtype=np.uint64)
        every = np.arange(1 << other, dtype=np.uint64)
        down, across = (mine[:, None], every[None, :]) if self.left else (every[None, :], mine[:, None])
        cell = ((down << np.uint64(low)) | across).ravel()
        # 63 bits hold any time; the bucket's number replaces the upper ones
        time = (rows["_time"].to_numpy() + _EARLIEST).view(np.uint64) >> np.uint64(max(0, bits - 1))
        hashed = np.repeat(time, 1 << other)
        if bits:
            hashed |= cell << np.uint64(64 - high - low)
        where = np.repeat(np.arange(rows.height, dtype=np.uint32), 1 << other)
        return rows[where].with_columns(pl.Series(HASH, hashed))

    def describe(self) -> str:
        return f"grid, {'left' if self.left else 'right'} side"


def grid_bits(buckets: int) -> tuple[int, int]:
    """How many bits of a cell's number are for the grid's rows and columns."""
    bits = buckets.bit_length() - 1
    return (bits + 1) // 2, bits // 2


def _spread_positions(rows: pl.DataFrame) -> npt.NDArray[np.uint64]:
    """Evenly spread numbers made of the rows' positions in the log, the same wherever the log is cut."""
    names: Sequence[str] = [name for name in ("_time", "_partition", "_sequence") if name in rows.columns]
    mixed = np.zeros(rows.height, dtype=np.uint64)
    for name in names:
        mixed = (mixed ^ rows[name].cast(pl.Int64).to_numpy().view(np.uint64)) * _GOLDEN
        mixed ^= mixed >> np.uint64(32)
    return mixed
