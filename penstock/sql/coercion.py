"""Literals, and expressions of different types brought to one type."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from penstock.sql import types
from penstock.sql.errors import query_error
from penstock.sql.functions import TypedExpr
from penstock.sql.statements import Scalar


def literal(value: Scalar) -> TypedExpr:
    """A value with the type that Spark gives it, except that a fraction is a DOUBLE."""
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
    return TypedExpr(pl.lit(value, dtype=dtype), dtype, value, True)


def coerce(node: exp.Expr, operands: Sequence[TypedExpr]) -> tuple[list[pl.Expr], pl.DataType]:
    """Cast expressions to one type, or raise TYPE_MISMATCH.

    Numbers take the wider type, dates become instants, and a string literal takes the type of the others.
    """
    known = [one for one in operands if one.dtype != pl.Null]
    decisive = [one for one in known if not (one.is_literal and one.dtype == pl.String)] or known
    common = decisive[0].dtype if decisive else pl.Null()
    for one in decisive[1:]:
        common = common_type(node, common, one.dtype)
    return [_cast(node, one, common) for one in operands], common


def common_type(node: exp.Expr, one: pl.DataType, other: pl.DataType) -> pl.DataType:
    """The type that has room for both."""
    if one == other:
        return one
    if one.is_integer() and other.is_integer():
        return max(one, other, key=lambda dtype: int(re.sub(r"\D", "", str(dtype))))
    if one.is_numeric() and other.is_numeric():
        return pl.Float64()
    instants = (pl.Date, pl.Datetime)
    if one in instants and other in instants:
        return types.INSTANT
    raise query_error(
        node,
        "TYPE_MISMATCH",
        f"{one} and {other} do not go together",
        "CAST one of them to the other's type.",
    )


def _cast(node: exp.Expr, operand: TypedExpr, dtype: pl.DataType) -> pl.Expr:
    cast = types.cast(operand.expr, operand.dtype, dtype, node)
    if operand.dtype in (dtype, pl.Null) or not operand.is_literal:
        return cast
    value = pl.select(cast).item()
    if value is None:
        raise query_error(
            node,
            "TYPE_MISMATCH",
            f"{operand.literal!r} is compared with {dtype}, but is none",
            "Write a value of that type, or CAST.",
        )
    return pl.lit(value, dtype=dtype)
