"""Define what an aggregate function is: the pieces of its partial aggregate, and how the result is computed from them.

A function is a frozen description, so plans can be compared, explained and sent to other processes. It gives operators
expressions and column arithmetic. A *piece* is one kind of column arithmetic (sums, least values, ...).

Guarantees: a result depends on the events alone, to the last bit. It is the same however they are cut into groups, and
in whichever order partial aggregates are merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn, Self

import numpy as np
import polars as pl

from penstock.errors import UserError
from penstock.operators.functions.ranges import aggregate_ranges
from penstock.origin import here


class Piece(ABC):
    """Some columns of a partial aggregate: their values from events, and how they are merged."""

    #: whether the cost of `merge_ranges` does not depend on the length of the ranges
    subtracts = False

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The columns."""

    @abstractmethod
    def from_event(self) -> list[pl.Expr]:
        """Partial aggregates of single events, row by row."""

    @abstractmethod
    def from_events(self) -> list[pl.Expr]:
        """The partial aggregate of a group of events."""

    @abstractmethod
    def merge(self) -> list[pl.Expr]:
        """One partial aggregate of several, which come in any order."""

    @abstractmethod
    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        """Each row's merged with that in the columns with the suffix; null there means nothing."""

    @abstractmethod
    def merge_running(self, group: str) -> list[pl.Expr]:
        """Each row's merged with those of all rows before it of the same group."""

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        """One partial aggregate for each row range [low, high)."""
        return aggregate_ranges(rows.select(self.names), low, high, self.merge())


class _Alias(str):
    """The name of a result's column. A call raises a clear error: for a Polars expression `alias` is a method."""

    __slots__ = ()

    def __call__(self, *names: object) -> NoReturn:
        raise UserError(
            "ALIAS_NOT_A_METHOD",
            f"the aggregate is called {str(self)!r}; its name is given as an argument",
            where=str(here()),
            hint='As in ps.sum_("bytes", "total") or ps.sum_("bytes", alias="total").',
        )


@dataclass(frozen=True)
class AggregateFunction(ABC):
    """One aggregate column: a function of `column`, named `alias` in the output.

    `of` is the column's type, known once the plan knows its types (see `resolve`).
    """

    #: what it is, in the identity of state; stays when the class is renamed
    kind: ClassVar[str]
    #: the format of its partial aggregates; state in another one is refused, except for those in `reads_versions`
    state_version: ClassVar[int]
    reads_versions: ClassVar[frozenset[int]] = frozenset()

    alias: str
    column: str | None
    of: pl.DataType | None = None

    def __post_init__(self) -> None:
        for given in (self.alias, self.column):
            if given is not None and not isinstance(given, str):
                raise _name_error(self.name, given)
        object.__setattr__(self, "alias", _Alias(self.alias))

    # -- declared by each function ---------------------------------------------------------------

    @abstractmethod
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of its partial aggregate."""

    @abstractmethod
    def result(self) -> pl.Expr:
        """The result, from the columns of the partial aggregate."""

    @abstractmethod
    def result_type(self, given: pl.DataType) -> pl.DataType:
        """The type of the result for a column of this type; raises an error if the function cannot use it."""

    @property
    def name(self) -> str:
        """Its name in plans."""
        return type(self).__name__.lower()

    @property
    def sequential(self) -> bool:
        """Whether it reads the order of events: the columns `_time`, `_partition` and `_sequence`."""
        return False

    @property
    def grows(self) -> bool:
        """Whether a partial aggregate grows with the number of its events or of their different values."""
        return False

    # -- derived ---------------------------------------------------------------------------------

    @property
    def column_type(self) -> pl.DataType:
        """The column's type; Int64 until it is known."""
        return pl.Int64() if self.of is None else self.of

    def resolve(self, incoming: Mapping[str, pl.DataType]) -> Self:
        """The same function with the type of its column; raises an error if it cannot use that type."""
        self.dtype(incoming)
        return self if self.column is None else replace(self, of=incoming[self.column])

    def dtype(self, incoming: Mapping[str, pl.DataType]) -> pl.DataType:
        """The type of the result."""
        return self.result_type(pl.Null() if self.column is None else incoming[self.column])

    def input_columns(self) -> tuple[str, ...]:
        """The columns of an event that it reads."""
        return () if self.column is None else (self.column,)

    @property
    def subtracts(self) -> bool:
        """Whether `merge_ranges` costs the same however long the ranges are."""
        return all(piece.subtracts for piece in self.pieces())

    def parts(self) -> tuple[str, ...]:
        """The columns of its partial aggregate. Their names start with an underscore, unlike the user's."""
        return tuple(name for piece in self.pieces() for name in piece.names)

    def from_event(self) -> list[pl.Expr]:
        """The partial aggregate of a single event, row by row."""
        return [expr for piece in self.pieces() for expr in piece.from_event()]

    def from_events(self) -> list[pl.Expr]:
        """The partial aggregate of a group of events, for `group_by(...).agg(...)`."""
        return [expr for piece in self.pieces() for expr in piece.from_events()]

    def merge(self) -> list[pl.Expr]:
        """One partial aggregate of several, in any order, for `group_by(...).agg(...)`."""
        return [expr for piece in self.pieces() for expr in piece.merge()]

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        """The partial aggregates of the row ranges [low, high) of partial aggregates.

        Ranges may overlap and come in any order; none is empty.
        """
        return [series for piece in self.pieces() for series in piece.merge_ranges(rows, low, high)]

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        """Each row's partial aggregate merged with that in the columns with the suffix.

        Those must have the types of `parts`; null there means nothing.
        """
        return [expr for piece in self.pieces() for expr in piece.merge_columns(suffix)]

    def merge_running(self, group: str) -> list[pl.Expr]:
        """Each row's partial aggregate merged with those of all rows before it of the same group."""
        return [expr for piece in self.pieces() for expr in piece.merge_running(group)]

    def describe(self) -> str:
        return f"{self.name}({self.column or '*'}) as {self.alias}"

    def part(self, name: str) -> str:
        """The name of a column of its partial aggregate."""
        return f"_{self.alias}.{name}"

    def type_error(self, needs: str, given: pl.DataType, cast: str = "pl.Int64") -> UserError:
        """The error for a column of the wrong type."""
        return UserError(
            "TYPE_MISMATCH",
            f"{self.name} of column {self.column!r} needs {needs}, but it is {given}",
            hint=f"Cast it first: .map({self.column}=col({self.column!r}).cast({cast})).",
        )


def _name_error(function: str, given: object) -> UserError:
    """The error for an argument that is not a column's name."""
    hint = 'Write the column\'s name, as in ps.sum_("bytes").'
    if isinstance(given, pl.Expr) and given.meta.is_column():
        hint = f"Write the column's name: {given.meta.output_name()!r}."
    elif isinstance(given, pl.Expr):
        hint = f"Make it a column first, with .map(name={given}) before key_by, and then pass its name."
    return UserError(
        "NOT_A_COLUMN_NAME",
        f"{function} needs a column's name, but this is {given if isinstance(given, pl.Expr) else repr(given)}",
        where=str(here()),
        hint=hint,
    )
