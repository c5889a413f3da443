"""Aggregate rows that are partial aggregates already, because the sender has reduced its events.

The result is the same as the function's own on the events. See `query/reduction_plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece


@dataclass(frozen=True)
class _PartialPiece(Piece):
    """A piece whose columns are in the rows already."""

    piece: Piece

    @property
    def names(self) -> tuple[str, ...]:
        return self.piece.names

    def from_event(self) -> list[pl.Expr]:
        return [pl.col(name) for name in self.piece.names]

    def from_events(self) -> list[pl.Expr]:
        return self.piece.merge()

    def merge(self) -> list[pl.Expr]:
        return self.piece.merge()

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        return self.piece.merge_columns(suffix)

    def merge_running(self, group: str) -> list[pl.Expr]:
        return self.piece.merge_running(group)

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        return self.piece.merge_ranges(rows, low, high)


@dataclass(frozen=True)
class FromPartials(AggregateFunction):
    """A function that merges partial aggregates instead of events."""

    kind: ClassVar[str] = "reduced-at-source"
    state_version: ClassVar[int] = 1

    function: AggregateFunction | None = None

    @classmethod
    def over_parts(cls, function: AggregateFunction) -> Self:
        """The function that merges the partial aggregates of another."""
        return cls(str(function.alias), None, function.of, function)

    @property
    def _inner(self) -> AggregateFunction:
        assert self.function is not None
        return self.function

    @property
    def name(self) -> str:
        return f"merged {self._inner.name}"

    def input_columns(self) -> tuple[str, ...]:
        return self._inner.parts()

    def pieces(self) -> tuple[Piece, ...]:
        return tuple(_PartialPiece(piece) for piece in self._inner.pieces())

    def result(self) -> pl.Expr:
        return self._inner.result()

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return self._inner.result_type(self._inner.column_type)

    def resolve(self, incoming: Mapping[str, pl.DataType]) -> Self:
        return self

    def describe(self) -> str:
        return f"merged {self._inner.describe()}"
