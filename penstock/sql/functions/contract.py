"""The contract of SQL functions: a name, the number of arguments, and a builder of the Polars expression.

An argument that does not fit raises `UserError` BAD_ARGUMENT with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from penstock.decode.values import as_instance
from penstock.errors import UserError
from penstock.sql.statements import Scalar

#: characters of a text that a function makes longer than its arguments
MOST_CHARACTERS = 100_000
#: arguments of a call
MOST_ARGUMENTS = 1_000


@dataclass(frozen=True)
class TypedExpr:
    """An expression with its type; `literal` is its value if it `is_literal`."""

    expr: pl.Expr
    dtype: pl.DataType
    literal: Scalar = None
    is_literal: bool = False


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, read by position (from 0) and required type."""

    name: str
    items: Sequence[TypedExpr]

    def __len__(self) -> int:
        return len(self.items)

    def dtype(self, at: int) -> pl.DataType:
        return self.items[at].dtype

    def expr(self, at: int) -> pl.Expr:
        """An argument of any type."""
        return self.items[at].expr

    def text(self, at: int) -> pl.Expr:
        """A text or NULL."""
        self._check(at, self.dtype(at) == pl.String, "text")
        return self._cast(at, pl.String())

    def integer(self, at: int) -> pl.Expr:
        """A whole number, as 64 bits."""
        self._check(at, self.dtype(at).is_integer(), "a whole number")
        return self._cast(at, pl.Int64())

    def length(self, at: int) -> pl.Expr:
        """The length of a text to make, or how often to repeat one, as 64 bits. A literal one is at most
        `MOST_CHARACTERS`; a row with a longer one ends the job that computes it, with an error."""
        number, value = self.integer(at), self.items[at].literal
        if not self.items[at].is_literal:
            return map_batches("length", _check_length, pl.Int64, number)
        if isinstance(value, int) and value > MOST_CHARACTERS:
            raise self.error(
                at, f"at most {MOST_CHARACTERS:,}", "A text of a result is not longer than that."
            )
        return number

    def double(self, at: int) -> pl.Expr:
        """A number, as a double."""
        self._check(at, self.dtype(at).is_numeric(), "a number")
        return self._cast(at, pl.Float64())

    def numeric(self, at: int) -> tuple[pl.Expr, pl.DataType]:
        """A number of its own type: a whole number of 64 bits, a float or a double."""
        if self.dtype(at).is_integer():
            return self.integer(at), pl.Int64()
        if self.dtype(at) == pl.Float32:
            return self.expr(at), pl.Float32()
        return self.double(at), pl.Float64()

    def boolean(self, at: int) -> pl.Expr:
        """A condition."""
        self._check(at, self.dtype(at) == pl.Boolean, "a condition")
        return self._cast(at, pl.Boolean())

    def array(self, at: int) -> tuple[pl.Expr, pl.DataType]:
        """A list and the type of its elements."""
        dtype = self.dtype(at)
        if not isinstance(dtype, pl.List):
            raise self.error(at, "a list")
        return self.expr(at), as_instance(dtype.inner)

    def literal_text(self, at: int) -> str:
        """The value of a text literal."""
        value = self.items[at].literal
        if not isinstance(value, str):
            raise self.error(at, "a text literal")
        return value

    def literal_integer(self, at: int) -> int:
        """The value of a literal whole number."""
        value = self.items[at].literal
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(at, "the literal of a whole number")
        return value

    def literal_boolean(self, at: int) -> bool:
        """The value of a literal TRUE or FALSE."""
        value = self.items[at].literal
        if not isinstance(value, bool):
            raise self.error(at, "true or false")
        return value

    def coerce(self, positions: Sequence[int]) -> tuple[list[pl.Expr], pl.DataType]:
        """Arguments cast to one type: numbers to the wider one; all others must have it already."""
        known = [at for at in positions if self.dtype(at) != pl.Null]
        common: pl.DataType = self.dtype(known[0]) if known else pl.Null()
        for at in known[1:]:
            wider = common_type(self.dtype(at), common)
            if wider is None:
                raise self.error(at, f"of type {common}, as those before it are")
            common = wider
        return [self._cast(at, common) for at in positions], common

    def error(self, at: int, wanted: str, hint: str | None = None) -> UserError:
        """The error for an argument that is not what it must be."""
        argument = self.items[at]
        actual = shorten(repr(argument.literal)) if argument.is_literal else f"of type {argument.dtype}"
        return UserError(
            "BAD_ARGUMENT",
            f"argument {at + 1} of {self.name} must be {wanted}, but it is {actual}",
            hint=hint,
        )

    def _check(self, at: int, fits: bool, wanted: str) -> None:
        if not fits and self.dtype(at) != pl.Null:
            raise self.error(at, wanted)

    def _cast(self, at: int, dtype: pl.DataType) -> pl.Expr:
        if self.dtype(at) == dtype:
            return self.expr(at)
        return (
            to_utc(self.expr(at), self.dtype(at))
            if isinstance(dtype, pl.Datetime)
            else self.expr(at).cast(dtype)
        )


def shorten(text: str) -> str:
    """A text, or the start of a long one, for an error."""
    return text if len(text) <= 200 else f"{text[:200]}..."


Builder = Callable[[Arguments], pl.Expr]


@dataclass(frozen=True)
class Function:
    """A SQL function with `least` to `most` arguments (None: any number)."""

    name: str
    least: int
    most: int | None
    builder: Builder
    doc: str
    example: str
    result: str

    def build(self, arguments: Sequence[TypedExpr]) -> pl.Expr:
        """The expression of a call."""
        if len(arguments) < self.least or (self.most is not None and len(arguments) > self.most):
            count = f"{self.least}" if self.most == self.least else f"{self.least} to {self.most}"
            raise UserError(
                "BAD_ARGUMENT",
                f"{self.name} takes {f'{self.least} or more' if self.most is None else count} arguments, "
                f"but {len(arguments)} are given",
                hint=f"As in {self.example}.",
            )
        if len(arguments) > MOST_ARGUMENTS:
            raise UserError(
                "BAD_ARGUMENT",
                f"{self.name} takes at most {MOST_ARGUMENTS:,} arguments, but {len(arguments):,} are given",
                hint="Call it for some of them at a time.",
            )
        return self.builder(Arguments(self.name, arguments))


@dataclass
class Family:
    """The functions of one kind, in the order of the docs, by name; aliases follow their function."""

    title: str
    by_name: dict[str, Function] = field(default_factory=dict)

    def add(
        self, names: str, counts: tuple[int, int | None], doc: str, example: str, result: str
    ) -> Callable[[Builder], Builder]:
        """Register the decorated builder under a name and its aliases."""

        def register(builder: Builder) -> Builder:
            function = Function(names.split()[0], *counts, builder, doc, example, result)
            self.by_name.update(dict.fromkeys(names.split(), function))
            return builder

        return register


def common_type(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """The type that holds the values of both; None if there is none."""
    if one == other:
        return one
    if one.is_integer() and other.is_integer():
        return pl.Int64()
    if one.is_numeric() and other.is_numeric():
        return pl.Float64()
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        inner = common_type(as_instance(one.inner), as_instance(other.inner))
        return None if inner is None else pl.List(inner)
    if pl.Null in (one, other):
        return one if other == pl.Null else other
    temporal = (pl.Date, pl.Datetime)
    return pl.Datetime("us", "UTC") if isinstance(one, temporal) and isinstance(other, temporal) else None


def to_utc(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A date or time as microseconds in UTC; a time without a zone counts as UTC."""
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return expr.dt.convert_time_zone("UTC").cast(pl.Datetime("us", "UTC"))
    return expr.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def map_batches(
    name: str, function: Callable[..., pl.Series], dtype: type[pl.DataType], *inputs: pl.Expr
) -> pl.Expr:
    """Apply a function to whole columns, where Polars has no expression; a row's result depends on that row alone.

    `name` travels as a literal, so that the text of the expression identifies the function. The function must be at the
    top level of a module, where workers find it.
    """
    return pl.map_batches(
        [*inputs, pl.lit(name)], partial(_without_name, function), return_dtype=dtype, is_elementwise=True
    )


def _check_length(numbers: pl.Series) -> pl.Series:
    most = numbers.max()
    if isinstance(most, int) and most > MOST_CHARACTERS:
        raise UserError(
            "TEXT_TOO_LONG",
            f"a text of {most:,} characters would be made of a row",
            detail=f"at most {MOST_CHARACTERS:,} characters are made",
            hint=f"Bound the length in the query, as in least(n, {MOST_CHARACTERS}).",
        )
    return numbers


def check_repeated(sizes: pl.Series, times: pl.Series) -> pl.Series:
    """How often each text is repeated, given their sizes; raises TEXT_TOO_LONG for a result that is too long."""
    _check_length(sizes.cast(pl.Int64) * times.clip(0, MOST_CHARACTERS + 1))
    return times


def _without_name(function: Callable[..., pl.Series], columns: Sequence[pl.Series]) -> pl.Series:
    return function(*columns[:-1])
