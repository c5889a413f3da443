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

    def of_event(self) -> list[pl.Expr]:
        return [pl.col(name) for name in self.piece.names]

    def of_events(self) -> list[pl.Expr]:
        return self.piece.merged()

    def merged(self) -> list[pl.Expr]:
        return self.piece.merged()

    def joined(self, suffix: str) -> list[pl.Expr]:
        return self.piece.joined(suffix)

    def running(self, group: str) -> list[pl.Expr]:
        return self.piece.running(group)

    def over(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        return self.piece.over(rows, low, high)


@dataclass(frozen=True)
class Shipped(AggregateFunction):
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

    def reads(self) -> tuple[str, ...]:
        return self._made_by.parts()

    def pieces(self) -> tuple[Piece, ...]:
        return tuple(_Arrived(piece) for piece in self._made_by.pieces())

    def result(self) -> pl.Expr:
        return self._made_by.result()

    def answers(self, given: pl.DataType) -> pl.DataType:
        return self._made_by.answers(self._made_by.given)

    def resolved(self, incoming: Mapping[str, pl.DataType]) -> Self:
        return self

    def describe(self) -> str:
        return f"merged {self._made_by.describe()}"
