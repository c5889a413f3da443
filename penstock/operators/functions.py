"""Aggregate functions, each as four expressions: start from events, merge partial answers, run on, finish.

Receives nothing; hands the aggregate operator what to compute. A function is a frozen description, so plans
can be compared, explained and shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from penstock.words.errors import UserError

Name = Literal["count", "sum", "min", "max", "avg"]


#: Sums of floats are kept as integers, so that no order of summing can change a result: the whole numbers,
#: 2**-20ths, and 2**-40ths. Two small parts, so that their sums have room for 2**43 events.
_FRACTION = 2**20
#: floats from here on have no fraction; their sum, and that of infinities and NaN, is kept as a float
_LARGE = 2.0**53


@dataclass(frozen=True)
class Aggregate:
    """One aggregate column: a function over a column, named `alias` in the output.

    `floating` is known once the plan knows its types (see `resolved`).
    """

    function: Name
    column: str | None
    alias: str
    floating: bool = False

    def resolved(self, incoming: Mapping[str, pl.DataType]) -> Aggregate:
        """The same, knowing whether it sums floats; raises if the column's type does not fit."""
        self.dtype(incoming)
        sums = self.function in ("sum", "avg")
        return replace(
            self, floating=sums and self.column is not None and not incoming[self.column].is_integer()
        )

    def parts(self) -> tuple[Part, ...]:
        """The partial answers it needs."""
        if self.function == "count":
            return (Part(self._part("n"), "sum", pl.lit(1, pl.Int64)),)
        assert self.column is not None
        value = pl.col(self.column)
        if self.function in ("min", "max"):
            return (Part(self._part("x"), self.function, value),)
        if self.floating:
            wide = value.cast(pl.Float64)
            plain = wide.abs() < _LARGE
            whole = pl.when(plain).then(wide.floor())
            fraction = ((wide - whole) * _FRACTION**2).round().cast(pl.Int64)
            sums = [
                _sum(self._part("s"), whole),
                _sum(self._part("f"), fraction // _FRACTION),
                _sum(self._part("g"), fraction % _FRACTION),
                Part(self._part("o"), "sum", pl.when(~plain).then(wide).fill_null(0.0)),
            ]
        else:
            sums = [_sum(self._part("s"), value)]
        if self.function == "avg":
            sums.append(_sum(self._part("n"), value.is_not_null()))
        return tuple(sums)

    def result(self) -> pl.Expr:
        """The answer, from merged parts."""
        answer = pl.col(self.parts()[0].name)
        if self.floating:
            fraction = (pl.col(self._part("f")) + pl.col(self._part("g")) / _FRACTION) / _FRACTION
            answer = answer + fraction + pl.col(self._part("o"))
        if self.function == "avg":
            count = pl.col(self._part("n"))
            answer = pl.when(count > 0).then(answer / count)
        return answer.alias(self.alias)

    def _part(self, name: str) -> str:
        """A column for a partial answer; the underscore keeps it apart from the user's columns."""
        return f"_{self.alias}.{name}"

    def dtype(self, incoming: Mapping[str, pl.DataType]) -> pl.DataType:
        """The type of the answer."""
        if self.function == "count":
            return pl.Int64()
        assert self.column is not None
        given = incoming[self.column]
        if self.function in ("sum", "avg") and not given.is_numeric():
            raise UserError(
                "TYPE_MISMATCH",
                f"{self.function} of column {self.column!r} needs numbers, but it is {given}",
                hint=f"Cast it first: .map({self.column}=col({self.column!r}).cast(pl.Int64)).",
            )
        if self.function == "avg":
            return pl.Float64()
        if self.function == "sum":
            return pl.Int64() if given.is_integer() else pl.Float64()
        return given

    def describe(self) -> str:
        return f"{self.function}({self.column or '*'}) as {self.alias}"


@dataclass(frozen=True)
class Part:
    """A partial answer: what one event contributes, and how partial answers become one.

    The partial answers of a `sum` are never null.
    """

    name: str
    merge: Literal["sum", "min", "max"]
    each: pl.Expr

    def of_event(self) -> pl.Expr:
        """The partial answer of a single event."""
        return self.each.alias(self.name)

    def of_events(self) -> pl.Expr:
        """The partial answer of a group of events."""
        if self.each.meta.root_names():
            return self._together(self.each).alias(self.name)
        return pl.len().cast(pl.Int64).alias(self.name)

    def merged(self) -> pl.Expr:
        """One partial answer of several."""
        return self._together(pl.col(self.name))

    def joined(self, other: pl.Expr) -> pl.Expr:
        """This part together with another partial answer that may be null."""
        column = pl.col(self.name)
        if self.merge == "sum":
            return column + other.fill_null(0)
        return (pl.min_horizontal if self.merge == "min" else pl.max_horizontal)(column, other)

    def running(self, group: str) -> pl.Expr:
        """Merged with all rows before it of the same group."""
        column = pl.col(self.name)
        if self.merge == "sum":
            return column.cum_sum().over(group)
        ran = column.cum_min() if self.merge == "min" else column.cum_max()
        return ran.forward_fill().over(group)

    def _together(self, values: pl.Expr) -> pl.Expr:
        return {"sum": values.sum, "min": values.min, "max": values.max}[self.merge]()


def _sum(name: str, value: pl.Expr) -> Part:
    return Part(name, "sum", value.cast(pl.Int64, strict=False).fill_null(0))


def count(alias: str = "count") -> Aggregate:
    """How many events."""
    return Aggregate("count", None, alias)


def sum_(column: str, alias: str | None = None) -> Aggregate:
    """The sum of a column; nulls count as nothing."""
    return Aggregate("sum", column, alias or f"sum_{column}")


def min_(column: str, alias: str | None = None) -> Aggregate:
    """The least value of a column."""
    return Aggregate("min", column, alias or f"min_{column}")


def max_(column: str, alias: str | None = None) -> Aggregate:
    """The greatest value of a column."""
    return Aggregate("max", column, alias or f"max_{column}")


def avg(column: str, alias: str | None = None) -> Aggregate:
    """The mean of a column's values."""
    return Aggregate("avg", column, alias or f"avg_{column}")
