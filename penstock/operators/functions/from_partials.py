"""An aggregate function whose partial answers were made elsewhere: its events arrive as parts.

Receives rows that hold the columns of partial answers; hands what the function itself would hand. Made where the
sender reduced (see `query/reduced.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece


@dataclass(frozen=True)
class _Arrived(Piece):
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
    """A function that goes on from partial answers."""

    kind: ClassVar[str] = "reduced-at-source"
    state_version: ClassVar[int] = 1

    function: AggregateFunction | None = None

    @classmethod
    def over_parts(cls, function: AggregateFunction) -> Self:
        """What goes on from the partial answers of a function."""
        return cls(str(function.alias), None, function.of, function)

    @property
    def _made_by(self) -> AggregateFunction:
        assert self.function is not None
        return self.function

    @property
    def name(self) -> str:
        return f"merged {self._made_by.name}"

    def input_columns(self) -> tuple[str, ...]:
        return self._made_by.parts()

    def pieces(self) -> tuple[Piece, ...]:
        return tuple(_Arrived(piece) for piece in self._made_by.pieces())

    def result(self) -> pl.Expr:
        return self._made_by.result()

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return self._made_by.result_type(self._made_by.column_type)

    def resolve(self, incoming: Mapping[str, pl.DataType]) -> Self:
        return self

    def describe(self) -> str:
        return f"merged {self._made_by.describe()}"
