"""What a function of the query language is: a name, how many arguments, and how expressions become one.

Receives arguments as Polars expressions with their types from the planner; hands an expression back, or raises
`BAD_ARGUMENT` with the argument's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from penstock.errors import UserError
from penstock.sql.statements import Scalar


@dataclass(frozen=True)
class Argument:
    """One argument of a call; `literal` is its value if it `is_literal`."""

    expr: pl.Expr
    dtype: pl.DataType
    literal: Scalar | None
    is_literal: bool


@dataclass(frozen=True)
class Function:
    """A function of the query language, between `least` and `most` arguments (None: any number)."""

    name: str
    least: int
    most: int | None
    build: Callable[[Sequence[Argument]], pl.Expr]
    doc: str
    example: str
    result: str


@dataclass(frozen=True)
class Given:
    """A call's arguments, asked for by place (from 0) and by what they must be."""

    name: str
    arguments: Sequence[Argument]

    def __len__(self) -> int:
        return len(self.arguments)

    def dtype(self, at: int) -> pl.DataType:
        return self.arguments[at].dtype

    def any(self, at: int) -> pl.Expr:
        """Whatever it is."""
        return self.arguments[at].expr

    def text(self, at: int) -> pl.Expr:
        """Text; NULL is text too."""
        self._must(at, self.dtype(at) in (pl.String, pl.Null), "text")
        return self._as(at, pl.String())

    def whole(self, at: int) -> pl.Expr:
        """A whole number, as 64 bits."""
        self._must(at, self.dtype(at).is_integer() or self.dtype(at) == pl.Null, "a whole number")
        return self._as(at, pl.Int64())

    def number(self, at: int) -> pl.Expr:
        """A number, as a double."""
        self._must(at, self.dtype(at).is_numeric() or self.dtype(at) == pl.Null, "a number")
        return self._as(at, pl.Float64())

    def numeric(self, at: int) -> tuple[pl.Expr, pl.DataType]:
        """A number of its own type: a whole number of 64 bits, or a double."""
        if self.dtype(at).is_integer():
            return self.whole(at), pl.Int64()
        if self.dtype(at) == pl.Float32:
            return self.any(at), pl.Float32()
        return self.number(at), pl.Float64()

    def truth(self, at: int) -> pl.Expr:
        """True or false."""
        self._must(at, self.dtype(at) in (pl.Boolean, pl.Null), "a condition")
        return self._as(at, pl.Boolean())

    def values(self, at: int) -> tuple[pl.Expr, pl.DataType]:
        """A list and the type of what is in it."""
        dtype = self.dtype(at)
        if not isinstance(dtype, pl.List):
            raise self.bad(at, "a list")
        return self.any(at), instance(dtype.inner)

    def said_text(self, at: int) -> str:
        """The value of a text literal."""
        value = self.arguments[at].literal
        if not self.arguments[at].is_literal or not isinstance(value, str):
            raise self.bad(at, "a text literal")
        return value

    def said_whole(self, at: int) -> int:
        """The value of a whole number's literal."""
        value = self.arguments[at].literal
        if not self.arguments[at].is_literal or not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(at, "the literal of a whole number")
        return value

    def alike(self, places: Sequence[int]) -> tuple[list[pl.Expr], pl.DataType]:
        """Arguments brought to one type: numbers to the wider one, everything else must be equal already."""
        known = [at for at in places if self.dtype(at) != pl.Null]
        common: pl.DataType = self.dtype(known[0]) if known else pl.Null()
        for at in known[1:]:
            common = self._wider(at, common)
        return [self.any(at) if self.dtype(at) == common else self._as(at, common) for at in places], common

    def bad(self, at: int, wanted: str, hint: str | None = None) -> UserError:
        """The error that an argument is not what it must be."""
        argument = self.arguments[at]
        found = repr(argument.literal) if argument.is_literal else f"of type {argument.dtype}"
        return UserError(
            "BAD_ARGUMENT", f"argument {at + 1} of {self.name} must be {wanted}, but it is {found}", hint=hint
        )

    def _wider(self, at: int, common: pl.DataType) -> pl.DataType:
        dtype = self.dtype(at)
        wide = wider(dtype, common)
        if wide is None:
            raise self.bad(at, f"of type {common}, as those before it are")
        return wide

    def _must(self, at: int, holds: bool, wanted: str) -> None:
        if not holds:
            raise self.bad(at, wanted)

    def _as(self, at: int, dtype: pl.DataType) -> pl.Expr:
        if self.dtype(at) == dtype:
            return self.any(at)
        if isinstance(dtype, pl.Datetime):
            return instant(self.any(at), self.dtype(at))
        return self.any(at).cast(dtype)


def wider(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """The type that holds the values of both; None if there is none."""
    if one == other:
        return one
    if one.is_integer() and other.is_integer():
        return pl.Int64()
    if one.is_numeric() and other.is_numeric():
        return pl.Float64()
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        inner = wider(instance(one.inner), instance(other.inner))
        return None if inner is None else pl.List(inner)
    if pl.Null in (one, other):
        return one if other == pl.Null else other
    dated = (pl.Date, pl.Datetime)
    return pl.Datetime("us", "UTC") if isinstance(one, dated) and isinstance(other, dated) else None


def instance(dtype: object) -> pl.DataType:
    """A type as an instance: Polars takes `pl.Int64` for `pl.Int64()` but not the other way round."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype  # type: ignore[assignment]
    return made


def instant(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A date or time as microseconds in UTC; what has no zone is taken for UTC."""
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return expr.dt.convert_time_zone("UTC").cast(pl.Datetime("us", "UTC"))
    return expr.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


Builder = Callable[[Given], pl.Expr]


@dataclass
class Family:
    """The functions of one kind, in the order the docs show them; aliases stand beside their function."""

    title: str
    named: dict[str, Function] = field(default_factory=dict)

    def add(
        self, names: str, takes: tuple[int, int | None], doc: str, example: str, result: str
    ) -> Callable[[Builder], Builder]:
        """Put the builder below into the family, under one or more names."""
        first, *_ = every = names.split()

        def put(builder: Builder) -> Builder:
            build = partial(_build, first, takes, builder)
            made = Function(first, *takes, build=build, doc=doc, example=example, result=result)
            self.named.update(dict.fromkeys(every, made))
            return builder

        return put


def _build(
    name: str, takes: tuple[int, int | None], builder: Builder, arguments: Sequence[Argument]
) -> pl.Expr:
    least, most = takes
    if len(arguments) < least or (most is not None and len(arguments) > most):
        span = f"{least} or more" if most is None else str(least) if most == least else f"{least} to {most}"
        raise UserError("BAD_ARGUMENT", f"{name} takes {span} arguments, but {len(arguments)} are given")
    return builder(Given(name, arguments))
