"""Functions that choose between values by NULL, NaN, a condition or order."""

from __future__ import annotations

import math

import polars as pl

from penstock.sql.functions.contract import Arguments, Family

CONDITIONS = Family("Conditions")

_FALSE = pl.lit(False)


@CONDITIONS.add("coalesce", (1, None), "The first argument that is not NULL.", "coalesce(NULL, 2, 3)", "2")
def _coalesce(args: Arguments) -> pl.Expr:
    return pl.coalesce(args.coerce(range(len(args)))[0])


@CONDITIONS.add(
    "nvl ifnull",
    (2, 2),
    "The first argument, or the second if the first is NULL.",
    "nvl(NULL, 'none')",
    "'none'",
)
def _nvl(args: Arguments) -> pl.Expr:
    return pl.coalesce(args.coerce((0, 1))[0])


@CONDITIONS.add(
    "nvl2", (3, 3), "The second argument, or the third if the first is NULL.", "nvl2(NULL, 1, 2)", "2"
)
def _nvl2(args: Arguments) -> pl.Expr:
    one, other = args.coerce((1, 2))[0]
    return pl.when(args.expr(0).is_not_null()).then(one).otherwise(other)


@CONDITIONS.add(
    "if",
    (3, 3),
    "The second argument if the condition is true, otherwise the third.",
    "if(true, 'yes', 'no')",
    "'yes'",
)
def _if(args: Arguments) -> pl.Expr:
    one, other = args.coerce((1, 2))[0]
    return pl.when(args.boolean(0)).then(one).otherwise(other)


@CONDITIONS.add("nullif", (2, 2), "The first argument, or NULL if both are equal.", "nullif(5, 5)", "NULL")
def _nullif(args: Arguments) -> pl.Expr:
    one, other = args.coerce((0, 1))[0]
    return pl.when((one == other).fill_null(False)).then(None).otherwise(args.expr(0))


@CONDITIONS.add("nullifzero", (1, 1), "NULL for 0.", "nullifzero(0)", "NULL")
def _nullifzero(args: Arguments) -> pl.Expr:
    number, _ = args.numeric(0)
    return pl.when(number != 0).then(number)


@CONDITIONS.add("zeroifnull", (1, 1), "0 for NULL.", "zeroifnull(NULL)", "0")
def _zeroifnull(args: Arguments) -> pl.Expr:
    number = args.integer(0) if args.dtype(0) == pl.Null else args.numeric(0)[0]
    return number.fill_null(0)


@CONDITIONS.add("isnull", (1, 1), "Whether the argument is NULL.", "isnull(NULL)", "true")
def _isnull(args: Arguments) -> pl.Expr:
    return args.expr(0).is_null()


@CONDITIONS.add("isnotnull", (1, 1), "Whether the argument is not NULL.", "isnotnull(NULL)", "false")
def _isnotnull(args: Arguments) -> pl.Expr:
    return args.expr(0).is_not_null()


@CONDITIONS.add("isnan", (1, 1), "Whether the argument is NaN; false for NULL.", "isnan(1.5)", "false")
def _isnan(args: Arguments) -> pl.Expr:
    return args.double(0).is_nan().fill_null(False)


@CONDITIONS.add(
    "nanvl", (2, 2), "The first argument, or the second if the first is NaN.", "nanvl(sqrt(-1), 0)", "0.0"
)
def _nanvl(args: Arguments) -> pl.Expr:
    number = args.double(0)
    return pl.when(number.is_nan()).then(args.double(1)).otherwise(number)


@CONDITIONS.add(
    "equal_null",
    (2, 2),
    "Whether both arguments are equal or both are NULL.",
    "equal_null(NULL, NULL)",
    "true",
)
def _equal_null(args: Arguments) -> pl.Expr:
    one, other = args.coerce((0, 1))[0]
    return one.eq_missing(other)


@CONDITIONS.add(
    "greatest",
    (2, None),
    "The greatest argument; skips NULLs, NaN is the greatest.",
    "greatest(3, NULL, 7)",
    "7",
)
def _greatest(args: Arguments) -> pl.Expr:
    values, dtype = _coerce_ordered(args)
    if not dtype.is_float():
        return pl.max_horizontal(values)
    nan = pl.any_horizontal([value.is_nan().fill_null(False) for value in values])
    return pl.when(nan).then(pl.lit(math.nan, dtype)).otherwise(pl.max_horizontal(values))


@CONDITIONS.add(
    "least", (2, None), "The least argument; skips NULLs, NaN is the greatest.", "least(3, NULL, 7)", "3"
)
def _least(args: Arguments) -> pl.Expr:
    return pl.min_horizontal(_coerce_ordered(args)[0])


def _coerce_ordered(args: Arguments) -> tuple[list[pl.Expr], pl.DataType]:
    values, dtype = args.coerce(range(len(args)))
    if dtype.is_nested():
        raise args.error(0, "a number, text, a condition, a date or a time")
    return values, dtype
