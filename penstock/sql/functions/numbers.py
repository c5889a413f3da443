"""Functions of numbers. Whole numbers have 64 bits; everything else is computed in doubles."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl

from penstock.sql.functions.arithmetic import divide, remainder, round_to
from penstock.sql.functions.contract import Arguments, Family

NUMBERS = Family("Numbers")

_NAN = pl.lit(math.nan)
_MOST, _LEAST = 2**63 - 1, -(2**63)


def _add_unary(
    names: str,
    doc: str,
    example: str,
    result: str,
    function: Callable[[pl.Expr], pl.Expr],
    above: float | None = None,
) -> None:
    """Add a function of one double; NULL for an argument that is not `above` a bound."""

    @NUMBERS.add(names, (1, 1), doc, example, result)
    def _build(args: Arguments) -> pl.Expr:
        number = args.double(0)
        return function(number if above is None else _above(number, above))


@NUMBERS.add("abs", (1, 1), "Absolute value.", "abs(-3)", "3")
def _abs(args: Arguments) -> pl.Expr:
    return args.numeric(0)[0].abs()


@NUMBERS.add("negative", (1, 1), "Negation.", "negative(3)", "-3")
def _negative(args: Arguments) -> pl.Expr:
    return -args.numeric(0)[0]


_add_unary("sign signum", "The sign: -1.0, 0.0 or 1.0.", "sign(-3)", "-1.0", pl.Expr.sign)


@NUMBERS.add("ceil ceiling", (1, 1), "Rounds up to an integer.", "ceil(1.2)", "2")
def _ceil(args: Arguments) -> pl.Expr:
    return _to_integer(args, pl.Expr.ceil)


@NUMBERS.add("floor", (1, 1), "Rounds down to an integer.", "floor(-1.2)", "-2")
def _floor(args: Arguments) -> pl.Expr:
    return _to_integer(args, pl.Expr.floor)


def _to_integer(args: Arguments, round_: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """Cast as Java does: the nearest integer of 64 bits, and 0 for NaN."""
    number, dtype = args.numeric(0)
    if dtype.is_integer():
        return number
    value = round_(number)
    return (
        pl.when(number.is_nan())
        .then(pl.lit(0, pl.Int64))
        .when(value >= 2.0**63)
        .then(pl.lit(_MOST, pl.Int64))
        .when(value <= -(2.0**63))
        .then(pl.lit(_LEAST, pl.Int64))
        .otherwise(value.cast(pl.Int64, strict=False))
    )


@NUMBERS.add("round", (1, 2), "Rounds to n decimal places, halves away from zero.", "round(2.675, 2)", "2.68")
def _round(args: Arguments) -> pl.Expr:
    return round_to(*args.numeric(0), args.literal_integer(1) if len(args) > 1 else 0, even=False)


@NUMBERS.add("bround", (1, 2), "Rounds to n decimal places, halves to even.", "bround(2.5)", "2.0")
def _bround(args: Arguments) -> pl.Expr:
    return round_to(*args.numeric(0), args.literal_integer(1) if len(args) > 1 else 0, even=True)


_add_unary("sqrt", "Square root.", "sqrt(16)", "4.0", pl.Expr.sqrt)
_add_unary("cbrt", "Cube root.", "cbrt(-27)", "-3.0", pl.Expr.cbrt)
_add_unary("exp", "e to the power of the argument.", "exp(0)", "1.0", pl.Expr.exp)
_add_unary("ln", "Natural logarithm; NULL unless positive.", "ln(1)", "0.0", pl.Expr.log, above=0.0)


@NUMBERS.add(
    "log",
    (1, 2),
    "Natural logarithm; with two arguments, of the second to the base of the first; NULL unless positive.",
    "log(2, 8)",
    "3.0",
)
def _log(args: Arguments) -> pl.Expr:
    *base, number = (_above(args.double(at), 0.0).log() for at in range(len(args)))
    return divide(number, base[0]) if base else number


_add_unary(
    "log2", "Logarithm to base 2; NULL unless positive.", "log2(8)", "3.0", lambda x: x.log(2), above=0.0
)
_add_unary(
    "log10", "Logarithm to base 10; NULL unless positive.", "log10(100)", "2.0", pl.Expr.log10, above=0.0
)
_add_unary(
    "log1p", "ln(1 + x), exact for small x; NULL unless x > -1.", "log1p(0)", "0.0", pl.Expr.log1p, above=-1.0
)


def _above(number: pl.Expr, bound: float) -> pl.Expr:
    """NULL for numbers that have no logarithm."""
    return pl.when((number > bound) | number.is_nan()).then(number)


@NUMBERS.add("pow power", (2, 2), "The first argument to the power of the second.", "pow(2, 10)", "1024.0")
def _pow(args: Arguments) -> pl.Expr:
    base, power = args.double(0), args.double(1)
    undefined = power.is_nan() | ((base.abs() == 1.0) & power.is_infinite())
    return pl.when(undefined & base.is_not_null()).then(_NAN).otherwise(base.pow(power))


@NUMBERS.add(
    "mod", (2, 2), "Remainder with the sign of the dividend; NULL for division by 0.", "mod(-7, 3)", "-1"
)
def _mod(args: Arguments) -> pl.Expr:
    return remainder(*_pair(args))


@NUMBERS.add(
    "pmod",
    (2, 2),
    "Remainder, not negative for a positive divisor; NULL for division by 0.",
    "pmod(-7, 3)",
    "2",
)
def _pmod(args: Arguments) -> pl.Expr:
    number, by, dtype = _pair(args)
    left = remainder(number, by, dtype)
    return pl.when(left < 0).then(remainder(left + by, by, dtype)).otherwise(left)


@NUMBERS.add("div", (2, 2), "Integer quotient; NULL for division by 0.", "div(-7, 2)", "-3")
def _div(args: Arguments) -> pl.Expr:
    number, by = args.integer(0), args.integer(1)
    return number.truncdiv(pl.when(by != 0).then(by))


@NUMBERS.add("try_divide", (2, 2), "Quotient; NULL for division by 0.", "try_divide(1, 4)", "0.25")
def _try_divide(args: Arguments) -> pl.Expr:
    by = args.double(1)
    return divide(args.double(0), pl.when(by != 0).then(by))


def _pair(args: Arguments) -> tuple[pl.Expr, pl.Expr, pl.DataType]:
    """Two numbers of one type."""
    if args.numeric(0)[1].is_integer() and args.numeric(1)[1].is_integer():
        return args.integer(0), args.integer(1), pl.Int64()
    return args.double(0), args.double(1), pl.Float64()


_add_unary("sin", "Sine of an angle in radians.", "sin(0)", "0.0", pl.Expr.sin)
_add_unary("cos", "Cosine of an angle in radians.", "cos(0)", "1.0", pl.Expr.cos)
_add_unary("tan", "Tangent of an angle in radians.", "tan(0)", "0.0", pl.Expr.tan)
_add_unary("asin", "Arc sine.", "asin(0)", "0.0", pl.Expr.arcsin)
_add_unary("acos", "Arc cosine.", "acos(1)", "0.0", pl.Expr.arccos)
_add_unary("atan", "Arc tangent.", "atan(0)", "0.0", pl.Expr.arctan)


@NUMBERS.add(
    "atan2", (2, 2), "Angle of the point (x, y), with y as the first argument.", "atan2(0, 1)", "0.0"
)
def _atan2(args: Arguments) -> pl.Expr:
    sides = (args.double(0), args.double(1))
    return pl.arctan2(*(pl.when(side == 0).then(0.0).otherwise(side) for side in sides))


_add_unary("sinh", "Hyperbolic sine.", "sinh(0)", "0.0", pl.Expr.sinh)
_add_unary("cosh", "Hyperbolic cosine.", "cosh(0)", "1.0", pl.Expr.cosh)
_add_unary("tanh", "Hyperbolic tangent.", "tanh(0)", "0.0", pl.Expr.tanh)
_add_unary("degrees", "Radians to degrees.", "degrees(pi())", "180.0", pl.Expr.degrees)
_add_unary("radians", "Degrees to radians.", "radians(180)", "3.141592653589793", pl.Expr.radians)


@NUMBERS.add("pi", (0, 0), "π.", "pi()", "3.141592653589793")
def _pi(args: Arguments) -> pl.Expr:
    return pl.lit(math.pi)


@NUMBERS.add("e", (0, 0), "Euler's number.", "e()", "2.718281828459045")
def _e(args: Arguments) -> pl.Expr:
    return pl.lit(math.e)


@NUMBERS.add(
    "width_bucket",
    (4, 4),
    "Bucket of the first argument among n equal ones from the second to the third; 0 below, n + 1 above.",
    "width_bucket(5.3, 0.2, 10.6, 5)",
    "3",
)
def _width_bucket(args: Arguments) -> pl.Expr:
    value, low, high, count = args.double(0), args.double(1), args.double(2), args.integer(3)
    known = (
        (count > 0) & (count < _MOST) & (low != high) & low.is_finite() & high.is_finite() & ~value.is_nan()
    )
    rising = low < high
    before = pl.when(rising).then(value < low).otherwise(value > low)
    after = pl.when(rising).then(value >= high).otherwise(value <= high)
    share = pl.when(~before & ~after).then(divide(count.cast(pl.Float64) * (value - low), high - low))
    inside = share.floor().cast(pl.Int64, strict=False) + 1
    bucket = pl.when(before).then(pl.lit(0, pl.Int64)).when(after).then(count + 1).otherwise(inside)
    return pl.when(known).then(bucket)
