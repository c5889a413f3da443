"""Partition keys as the user declares: by ranges of a column, or by a function. Pure.

A partitioner returns a part number for each row of key columns. Parts are spread evenly over the buckets, so the keys
of a part are in neighbouring buckets, and in one slice each if there are as many slices as parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from penstock.errors import UserError


@dataclass(frozen=True)
class ByRange:
    """Keys from one bound up to the next are one part; `bounds` ascend. Null is in the first part."""

    kind: ClassVar[str] = "range-partitioner"
    state_version: ClassVar[int] = 1

    column: str
    bounds: tuple[Any, ...]

    @property
    def parts(self) -> int:
        return len(self.bounds) + 1

    def part_of(self, keys: pl.DataFrame) -> pl.Series:
        passed = [(pl.col(self.column) >= bound).fill_null(False).cast(pl.UInt32) for bound in self.bounds]
        return keys.select(pl.sum_horizontal(passed).alias("part")).to_series()

    def __str__(self) -> str:
        return f"ranges of {self.column}"


@dataclass(frozen=True, repr=False)
class ByFunction:
    """The user's function returns the part of each row of key columns."""

    kind: ClassVar[str] = "function-partitioner"
    state_version: ClassVar[int] = 1

    function: Callable[[pl.DataFrame], pl.Series]
    parts: int

    def part_of(self, keys: pl.DataFrame) -> pl.Series:
        try:
            part = self.function(keys)
        except Exception as failure:
            raise UserError(
                "USER_FUNCTION_FAILED",
                f"the partitioner {self} failed: {type(failure).__name__}: {failure}",
                hint="It gets a frame of the key columns and returns a part number for each row.",
            ) from failure
        fits = isinstance(part, pl.Series) and len(part) == keys.height and part.dtype.is_integer()
        if not fits or (len(part) and not part.is_between(0, self.parts - 1).fill_null(False).all()):
            raise UserError(
                "BAD_PARTITION",
                f"the partitioner {self} must return a number from 0 to {self.parts - 1} for each of "
                f"{keys.height} rows",
                detail=f"it returned {part.dtype if isinstance(part, pl.Series) else type(part).__name__}",
            )
        return part

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "a function")

    def __repr__(self) -> str:
        return f"ByFunction({self}, {self.parts})"


def by_range(column: str, bounds: list[Any]) -> ByRange:
    """Partition by ranges of one key column: `by_range("user", ["f", "m", "t"])` makes four parts."""
    if not bounds or sorted(bounds) != list(bounds):
        raise UserError(
            "BAD_PARTITION",
            "a range partitioner needs bounds in order",
            hint='For example by_range("user", ["f", "m", "t"]).',
        )
    return ByRange(column, tuple(bounds))


def by_function(function: Callable[[pl.DataFrame], pl.Series], parts: int) -> ByFunction:
    """Partition by a function of your own, from a frame of the key columns to part numbers."""
    if parts < 1:
        raise UserError("BAD_PARTITION", f"there cannot be {parts} parts", hint="Declare at least 1.")
    return ByFunction(function, parts)
