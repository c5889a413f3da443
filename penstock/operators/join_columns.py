"""Make joined rows: the columns of a left and a right row, and the condition on both.

A right key with the name of the left key that it is compared with is the same column. Any other right column whose name
the left side has too gets a suffix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.errors import UserError
from penstock.operators.contract import Operator
from penstock.operators.identity import NOT_STATE
from penstock.operators.routes import ByKey, Route

Schema = Mapping[str, pl.DataType]
Rows: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class JoinColumns:
    """The columns of a result: those of the left side, then those of the right with their names in the result."""

    kind: ClassVar[str] = "joined-columns"
    state_version: ClassVar[int] = 1

    left: tuple[tuple[str, pl.DataType], ...]
    #: name, name in the result, type
    right: tuple[tuple[str, str, pl.DataType], ...]
    #: the keys with the same name on both sides, which are one column
    shared: tuple[str, ...]

    @staticmethod
    def of(
        left: Schema, right: Schema, keys: tuple[str, ...], right_keys: tuple[str, ...], suffix: str
    ) -> JoinColumns:
        shared = tuple(mine for mine, theirs in zip(keys, right_keys, strict=True) if mine == theirs)
        named = tuple(
            (name, name + suffix if name in left else name, dtype)
            for name, dtype in right.items()
            if name not in shared
        )
        return JoinColumns(tuple(left.items()), named, shared)

    def schema(self) -> dict[str, pl.DataType]:
        return dict(self.left) | {named: dtype for _, named, dtype in self.right}

    def join_rows(
        self,
        left: pl.DataFrame,
        at_left: Rows,
        right: pl.DataFrame,
        at_right: Rows,
        only: set[str] | None = None,
    ) -> pl.DataFrame:
        """The joined rows of pairs, with all their columns or only some."""
        mine = [name for name, _ in self.left if only is None or name in only]
        theirs = [(name, named) for name, named, _ in self.right if only is None or named in only]
        of_right = gather_columns(right, [name for name, _ in theirs], at_right)
        return pl.DataFrame(
            gather_columns(left, mine, at_left)
            + [column.alias(named) for column, (_, named) in zip(of_right, theirs, strict=True)]
        )

    def unmatched_left(self) -> list[pl.Expr]:
        """What to select of left rows without a match."""
        return [
            *(pl.col(name) for name, _ in self.left),
            *(pl.lit(None, dtype).alias(named) for _, named, dtype in self.right),
        ]

    def unmatched_right(self) -> list[pl.Expr]:
        """What to select of right rows without a match; shared key columns hold the right key then."""
        return [
            *(
                pl.col(name) if name in self.shared else pl.lit(None, dtype).alias(name)
                for name, dtype in self.left
            ),
            *(pl.col(name).alias(named) for name, named, _ in self.right),
        ]


@dataclass(frozen=True)
class JoinCondition:
    """A condition over the columns of a pair, identified by its text."""

    kind: ClassVar[str] = "condition"
    state_version: ClassVar[int] = 1

    text: str
    expr: pl.Expr = field(repr=False, compare=False, metadata=NOT_STATE)

    @staticmethod
    def of(expr: pl.Expr | None) -> JoinCondition | None:
        return None if expr is None else JoinCondition(str(expr), expr)

    def evaluate(
        self, columns: JoinColumns, left: pl.DataFrame, at_left: Rows, right: pl.DataFrame, at_right: Rows
    ) -> Mask:
        """Whether the condition is true for each pair of a join; null counts as false."""
        read = set(self.expr.meta.root_names()) or {columns.left[0][0]}
        return self.is_true(columns.join_rows(left, at_left, right, at_right, read), "join")

    def is_true(self, rows: pl.DataFrame, operator: str) -> Mask:
        """Whether the condition is true for each joined row; null counts as false."""
        try:
            return _is_true(rows.with_columns(self.expr.alias("_holds"))["_holds"])
        except pl.exceptions.PolarsError as failure:
            raise UserError(
                "EXPRESSION_FAILED",
                f"the condition of a {operator} failed: {type(failure).__name__}: {failure}",
                hint="Nothing is lost: fix it and start again with the same state directory; the epoch is "
                "repeated.",
            ) from failure


@dataclass(frozen=True)
class KeyedJoin(Operator):
    """A join of two inputs by equal keys; with one port, of a stream with itself."""

    keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    columns: JoinColumns

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def keys_of(self, port: int) -> tuple[str, ...]:
        return self.right_keys if port else self.keys

    def route(self, port: int = 0) -> Route:
        return ByKey(self.keys_of(port))

    def needs(self, port: int = 0) -> set[str]:
        left = {*self.keys, *(name for name, _ in self.columns.left)}
        right = {*self.right_keys, *(name for name, _, _ in self.columns.right)}
        return left | right if self.ports == 1 else right if port else left


def gather_columns(rows: pl.DataFrame, names: Sequence[str], at: Rows) -> list[pl.Series]:
    """These columns of the rows with these numbers; without expressions, which cost too much for a few rows."""
    return rows[list(names)][pl.Series(at.astype(np.uint32))].get_columns() if names else []


def equal_keys(left: Sequence[pl.Series], right: Sequence[pl.Series]) -> Mask:
    """Whether the keys of each pair are equal; a null equals nothing. Two keys may have the same 64-bit hash."""
    same = np.ones(len(left[0]), dtype=bool)
    for one, other in zip(left, right, strict=True):
        same &= _is_true(one == other)
    return same


def _is_true(values: pl.Series) -> Mask:
    """Where a value is true, neither false nor null."""
    return (values.fill_null(False) if values.null_count() else values).to_numpy()


def describe_keys(keys: tuple[str, ...], right_keys: tuple[str, ...]) -> str:
    """The keys of both sides, for `explain`."""
    pairs = zip(keys, right_keys, strict=True)
    return ", ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in pairs)
