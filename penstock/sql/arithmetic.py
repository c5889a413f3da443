"""Numbers: sums, quotients, remainders and bits, as Spark has them outside its ANSI mode.

Receives parts of a tree; hands typed expressions. What is divided by zero is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import polars as pl
from sqlglot import exp

from penstock.sql.functions import Argument
from penstock.sql.literals import alike, literal
from penstock.sql.places import refused

COUNTED: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.Add: lambda left, right: left + right,
    exp.Sub: lambda left, right: left - right,
    exp.Mul: lambda left, right: left * right,
}
BITS: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.BitwiseAnd: lambda left, right: left & right,
    exp.BitwiseOr: lambda left, right: left | right,
    exp.BitwiseXor: lambda left, right: left ^ right,
}


class Typing(Protocol):
    """What gives the parts of a tree their types."""

    def of(self, node: exp.Expr) -> Argument:
        """An expression with its type."""

    def typed(self, node: exp.Expr, expr: pl.Expr) -> Argument:
        """An expression that was made of a node, with the type it has."""


def number(of: Typing, node: exp.Expr) -> Argument:
    """A number, or a time."""
    made = of.of(node)
    if made.dtype == pl.Null:
        return Argument(pl.lit(None, dtype=pl.Int32()), pl.Int32(), None, False)
    if not (made.dtype.is_numeric() or made.dtype.is_temporal()):
        raise refused(
            node, "TYPE_MISMATCH", f"a number is needed here, but this is {made.dtype}", "CAST it first."
        )
    return made


def counted(of: Typing, node: exp.Binary) -> Argument:
    """A sum, a difference or a product."""
    left, right = number(of, node.this), number(of, node.expression)
    return of.typed(node, COUNTED[type(node)](left.expr, right.expr))


def divided(of: Typing, node: exp.Div) -> Argument:
    """A quotient, always a DOUBLE; null by zero."""
    left, right = number(of, node.this), number(of, node.expression)
    if left.dtype.is_temporal() or right.dtype.is_temporal():
        raise refused(node, "TYPE_MISMATCH", "times cannot be divided", "CAST them to DOUBLE first.")
    divisor = right.expr.cast(pl.Float64)
    return of.typed(node, pl.when(divisor != 0).then(left.expr.cast(pl.Float64) / divisor))


def whole_divided(of: Typing, node: exp.Binary) -> Argument:
    """DIV and %; null by zero."""
    left, right = number(of, node.this), number(of, node.expression)
    (a, b), dtype = alike(node, [left, right])
    if isinstance(node, exp.IntDiv):
        if not dtype.is_integer():
            raise refused(node, "TYPE_MISMATCH", "DIV divides whole numbers", "CAST them, or use /.")
        a, b = a.cast(pl.Int64), b.cast(pl.Int64)
        return of.typed(node, pl.when(b != 0).then((a - _remainder(a, b)) // b))
    return of.typed(node, pl.when(b != 0).then(_remainder(a, b)))


def bits(of: Typing, node: exp.Binary) -> Argument:
    """Bits of whole numbers."""
    (left, right), dtype = alike(node, [number(of, node.this), number(of, node.expression)])
    if not dtype.is_integer():
        raise refused(node, "TYPE_MISMATCH", "bits are those of whole numbers", "CAST them first.")
    return of.typed(node, BITS[type(node)](left, right))


def negative(of: Typing, node: exp.Neg) -> Argument:
    """The opposite."""
    made = number(of, node.this)
    if made.is_literal and isinstance(made.literal, int | float):
        return literal(-made.literal)
    return of.typed(node, -made.expr)


def _remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """What is left of a division, with the sign of the dividend."""
    rest = left % right
    return pl.when((rest != 0) & ((left < 0) != (right < 0))).then(rest - right).otherwise(rest)
