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


@NUMBERS.add("abs", (1, 1), "Absolute value.", "abs(-3)", "3")
def _abs(args: Arguments) -> pl.Expr:
    return args.numeric(0)[0].abs()


@NUMBERS.add("negative", (1, 1), "Negation.", "negative(3)", "-3")
def _negative(args: Arguments) -> pl.Expr:
    return -args.numeric(0)[0]


@NUMBERS.add("sign signum", (1, 1), "The sign: -1.0, 0.0 or 1.0.", "sign(-3)", "-1.0")
def _sign(args: Arguments) -> pl.Expr:
    return args.double(0).sign()


@NUMBERS.add("ceil ceiling", (1, 1), "Rounds up to an integer.", "ceil(1.2)", "2")
def _ceil(args: Arguments) -> pl.Expr:
    return _to_whole(args, lambda number: number.ceil())


@NUMBERS.add("floor", (1, 1), "Rounds down to an integer.", "floor(-1.2)", "-2")
def _floor(args: Arguments) -> pl.Expr:
    return _to_whole(args, lambda number: number.floor())


def _to_whole(args: Arguments, how: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """Cast as Java does: the nearest integer of 64 bits, and 0 for NaN."""
    number, dtype = args.numeric(0)
    if dtype.is_integer():
        return number
    value = how(number)
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


@NUMBERS.add("sqrt", (1, 1), "Square root.", "sqrt(16)", "4.0")
def _sqrt(args: Arguments) -> pl.Expr:
    return args.double(0).sqrt()


@NUMBERS.add("cbrt", (1, 1), "Cube root.", "cbrt(-27)", "-3.0")
def _cbrt(args: Arguments) -> pl.Expr:
    return args.double(0).cbrt()


@NUMBERS.add("exp", (1, 1), "e to the power of the argument.", "exp(0)", "1.0")
def _exp(args: Arguments) -> pl.Expr:
    return args.double(0).exp()


@NUMBERS.add("ln", (1, 1), "Natural logarithm; NULL unless positive.", "ln(1)", "0.0")
def _ln(args: Arguments) -> pl.Expr:
    return _above(args.double(0), 0.0).log()


@NUMBERS.add(
    "log",
    (1, 2),
    "Natural logarithm; with two arguments, of the second to the base of the first; NULL unless positive.",
    "log(2, 8)",
    "3.0",
)
def _log(args: Arguments) -> pl.Expr:
    if len(args) == 1:
        return _ln(args)
    return divide(_above(args.double(1), 0.0).log(), _above(args.double(0), 0.0).log())


@NUMBERS.add("log2", (1, 1), "Logarithm to base 2; NULL unless positive.", "log2(8)", "3.0")
def _log2(args: Arguments) -> pl.Expr:
    return _above(args.double(0), 0.0).log(2)


@NUMBERS.add("log10", (1, 1), "Logarithm to base 10; NULL unless positive.", "log10(100)", "2.0")
def _log10(args: Arguments) -> pl.Expr:
    return _above(args.double(0), 0.0).log10()


@NUMBERS.add("log1p", (1, 1), "ln(1 + x), exact for small x; NULL unless x > -1.", "log1p(0)", "0.0")
def _log1p(args: Arguments) -> pl.Expr:
    return _above(args.double(0), -1.0).log1p()


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


@NUMBERS.add("sin", (1, 1), "Sine of an angle in radians.", "sin(0)", "0.0")
def _sin(args: Arguments) -> pl.Expr:
    return args.double(0).sin()


@NUMBERS.add("cos", (1, 1), "Cosine of an angle in radians.", "cos(0)", "1.0")
def _cos(args: Arguments) -> pl.Expr:
    return args.double(0).cos()


@NUMBERS.add("tan", (1, 1), "Tangent of an angle in radians.", "tan(0)", "0.0")
def _tan(args: Arguments) -> pl.Expr:
    return args.double(0).tan()


@NUMBERS.add("asin", (1, 1), "Arc sine.", "asin(0)", "0.0")
def _asin(args: Arguments) -> pl.Expr:
    return args.double(0).arcsin()


@NUMBERS.add("acos", (1, 1), "Arc cosine.", "acos(1)", "0.0")
def _acos(args: Arguments) -> pl.Expr:
    return args.double(0).arccos()


@NUMBERS.add("atan", (1, 1), "Arc tangent.", "atan(0)", "0.0")
def _atan(args: Arguments) -> pl.Expr:
    return args.double(0).arctan()


@NUMBERS.add(
    "atan2", (2, 2), "Angle of the point (x, y), with y as the first argument.", "atan2(0, 1)", "0.0"
)
def _atan2(args: Arguments) -> pl.Expr:
    sides = (args.double(0), args.double(1))
    return pl.arctan2(*(pl.when(side == 0).then(0.0).otherwise(side) for side in sides))


@NUMBERS.add("sinh", (1, 1), "Hyperbolic sine.", "sinh(0)", "0.0")
def _sinh(args: Arguments) -> pl.Expr:
    return args.double(0).sinh()


@NUMBERS.add("cosh", (1, 1), "Hyperbolic cosine.", "cosh(0)", "1.0")
def _cosh(args: Arguments) -> pl.Expr:
    return args.double(0).cosh()


@NUMBERS.add("tanh", (1, 1), "Hyperbolic tangent.", "tanh(0)", "0.0")
def _tanh(args: Arguments) -> pl.Expr:
    return args.double(0).tanh()


@NUMBERS.add("degrees", (1, 1), "Radians to degrees.", "degrees(pi())", "180.0")
def _degrees(args: Arguments) -> pl.Expr:
    return args.double(0).degrees()


@NUMBERS.add("radians", (1, 1), "Degrees to radians.", "radians(180)", "3.141592653589793")
def _radians(args: Arguments) -> pl.Expr:
    return args.double(0).radians()


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
