"""Values that are written out, and how values of different types become alike.

Receives plain values and typed expressions; hands expressions of one type, or raises TYPE_MISMATCH.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from penstock.sql import types
from penstock.sql.functions import Argument
from penstock.sql.places import refused
from penstock.sql.statements import Scalar


def literal(value: Scalar) -> Argument:
    """A value with the type that Spark gives it; a fraction is a DOUBLE."""
    dtype: pl.DataType
    if value is None:
        dtype = pl.Null()
    elif isinstance(value, bool):
        dtype = pl.Boolean()
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        dtype = pl.Int32() if -(2**31) <= value < 2**31 else pl.Int64()
    elif isinstance(value, int | float):
        dtype, value = pl.Float64(), float(value)
    else:
        dtype = pl.String()
    return Argument(pl.lit(value, dtype=dtype), dtype, value, True)


def alike(node: exp.Expr, given: Sequence[Argument]) -> tuple[list[pl.Expr], pl.DataType]:
    """The expressions brought to one type.

    Numbers go to the wider type, dates to instants; a text that is written out becomes what the others are.
    """
    known = [one for one in given if one.dtype != pl.Null]
    firm = [one for one in known if not (one.is_literal and one.dtype == pl.String)] or known
    common = firm[0].dtype if firm else pl.Null()
    for one in firm[1:]:
        common = wider(node, common, one.dtype)
    return [_as(node, one, common) for one in given], common


def plain_value(given: Argument, dtype: pl.DataType) -> Scalar:
    """The value of a literal among values of a type."""
    value = given.literal
    if dtype.is_float() and value is not None:
        return float(value)
    return int(float(value)) if isinstance(value, str) and dtype.is_integer() else value


def pattern(node: exp.Expr, like: str, escape: str) -> str:
    """The regular expression of a LIKE pattern."""
    made, signs = "", iter(like)
    for sign in signs:
        if sign == escape:
            following = next(signs, None)
            if following is None:
                raise refused(node, "BAD_ARGUMENT", f"the pattern {like!r} ends with its escape character")
            made += re.escape(following)
        else:
            made += {"%": ".*", "_": "."}.get(sign, re.escape(sign))
    return made


def wider(node: exp.Expr, one: pl.DataType, other: pl.DataType) -> pl.DataType:
    """The type that has room for both."""
    if one == other:
        return one
    if one.is_integer() and other.is_integer():
        return max(one, other, key=_bits)
    if one.is_numeric() and other.is_numeric():
        return pl.Float64()
    instants = (pl.Date, pl.Datetime)
    if one in instants and other in instants:
        return types.INSTANT
    raise refused(
        node,
        "TYPE_MISMATCH",
        f"{one} and {other} do not go together",
        "CAST one of them to the other's type.",
    )


def _bits(dtype: pl.DataType) -> int:
    return int(re.sub(r"\D", "", str(dtype)))


def _as(node: exp.Expr, given: Argument, dtype: pl.DataType) -> pl.Expr:
    if given.dtype == dtype:
        return given.expr
    if given.dtype == pl.Null:
        return pl.lit(None, dtype=dtype)
    if not given.is_literal:
        return types.cast(given.expr, given.dtype, dtype, node)
    made = pl.select(types.cast(given.expr, given.dtype, dtype, node)).item()
    if made is None:
        raise refused(
            node,
            "TYPE_MISMATCH",
            f"{given.literal!r} is compared with {dtype}, but is none",
            "Write a value of that type, or CAST.",
        )
    return pl.lit(made, dtype=dtype)
