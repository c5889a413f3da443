"""Literals, and expressions of different types brought to one type."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from penstock.query.limits import check_time
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
    values = _convert_literals(node, operands, common)
    return [
        pl.lit(values[at], dtype=common) if at in values else types.cast(one.expr, one.dtype, common, node)
        for at, one in enumerate(operands)
    ], common


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


def _convert_literals(node: exp.Expr, operands: Sequence[TypedExpr], dtype: pl.DataType) -> dict[int, object]:
    """The literals of another type as values of this one, by their positions; all of one type are cast at once."""
    foreign: dict[pl.DataType, list[int]] = {}
    for at, one in enumerate(operands):
        if one.is_literal and one.dtype not in (dtype, pl.Null):
            foreign.setdefault(one.dtype, []).append(at)
    converted: dict[int, object] = {}
    for source, places in foreign.items():
        if source.is_numeric() and dtype.is_numeric():  # to a wider type, so nothing needs to be computed
            kind = float if dtype.is_float() else int
            converted |= {at: kind(operands[at].literal) for at in places}  # type: ignore[arg-type]
            continue
        literals = pl.Series("v", [operands[at].literal for at in places], dtype=source)
        check_time()
        values = (
            literals.to_frame().select(types.cast(pl.col("v"), source, dtype, node).alias("v"))["v"].to_list()
        )
        for at, value in zip(places, values, strict=True):
            if value is None:
                raise query_error(
                    node,
                    "TYPE_MISMATCH",
                    f"{operands[at].literal!r} is compared with {dtype}, but is none",
                    "Write a value of that type, or CAST.",
                )
            converted[at] = value
    return converted
