"""Operators in expressions: arithmetic, comparisons, pattern matches, AND and OR, as in Spark outside its ANSI mode."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Protocol

import polars as pl
from sqlglot import exp

from penstock.query.purity import matches_empty, try_pattern
from penstock.sql.coercion import coerce, literal
from penstock.sql.errors import query_error
from penstock.sql.functions import TypedExpr
from penstock.sql.statements import Scalar

#: values of IN that are compared in a chain
_FEW_VALUES = 50
Binary = Callable[[pl.Expr, pl.Expr], pl.Expr]
ARITHMETIC: dict[type[exp.Expr], Binary] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
BITWISE: dict[type[exp.Expr], Binary] = {
    exp.BitwiseAnd: operator.and_,
    exp.BitwiseOr: operator.or_,
    exp.BitwiseXor: operator.xor,
}
COMPARISONS: dict[type[exp.Expr], Binary] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.NullSafeEQ: pl.Expr.eq_missing,
    exp.NullSafeNEQ: pl.Expr.ne_missing,
}


class Compiler(Protocol):
    """Compiles the operands."""

    def compile(self, node: exp.Expr) -> TypedExpr:
        """An expression with its type."""

    def condition(self, node: exp.Expr) -> pl.Expr:
        """A condition."""

    def literal_value(self, node: exp.Expr) -> Scalar:
        """The value of a literal or a parameter."""


# -- arithmetic ----------------------------------------------------------------------------------


def _number(compiler: Compiler, node: exp.Expr) -> TypedExpr:
    """A number or a time."""
    operand = compiler.compile(node)
    if operand.dtype == pl.Null:
        return TypedExpr(pl.lit(None, dtype=pl.Int32()), pl.Int32())
    if not (operand.dtype.is_numeric() or operand.dtype.is_temporal()):
        raise query_error(
            node, "TYPE_MISMATCH", f"a number is needed here, but this is {operand.dtype}", "CAST it first."
        )
    return operand


def calculate(compiler: Compiler, node: exp.Binary) -> pl.Expr:
    """A sum, a difference or a product."""
    left, right = _number(compiler, node.this), _number(compiler, node.expression)
    return ARITHMETIC[type(node)](left.expr, right.expr)


def divide(compiler: Compiler, node: exp.Div) -> pl.Expr:
    """A quotient, always a DOUBLE; null for division by zero."""
    left, right = _number(compiler, node.this), _number(compiler, node.expression)
    if left.dtype.is_temporal() or right.dtype.is_temporal():
        raise query_error(node, "TYPE_MISMATCH", "times cannot be divided", "CAST them to DOUBLE first.")
    divisor = right.expr.cast(pl.Float64)
    return pl.when(divisor != 0).then(left.expr.cast(pl.Float64) / divisor)


def divide_integers(compiler: Compiler, node: exp.Binary) -> pl.Expr:
    """DIV and %; null for division by zero."""
    operands = [_number(compiler, node.this), _number(compiler, node.expression)]
    (left, right), dtype = coerce(node, operands)
    if isinstance(node, exp.Mod):
        return pl.when(right != 0).then(_remainder(left, right))
    if not dtype.is_integer():
        raise query_error(node, "TYPE_MISMATCH", "DIV divides whole numbers", "CAST them, or use /.")
    left, right = left.cast(pl.Int64), right.cast(pl.Int64)
    return pl.when(right != 0).then((left - _remainder(left, right)) // right)


def _remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder with the sign of the dividend; that of Polars has the sign of the divisor."""
    rest = left % right
    return pl.when((rest != 0) & ((left < 0) != (right < 0))).then(rest - right).otherwise(rest)


def combine_bits(compiler: Compiler, node: exp.Binary) -> pl.Expr:
    """`&`, `|` and `^` of whole numbers."""
    operands = [_number(compiler, node.this), _number(compiler, node.expression)]
    (left, right), dtype = coerce(node, operands)
    if not dtype.is_integer():
        raise query_error(node, "TYPE_MISMATCH", "only whole numbers have bits", "CAST them first.")
    return BITWISE[type(node)](left, right)


def negate(compiler: Compiler, node: exp.Neg) -> pl.Expr | TypedExpr:
    """A number with the other sign."""
    operand = _number(compiler, node.this)
    if operand.is_literal and isinstance(operand.literal, int | float):
        return literal(-operand.literal)
    return -operand.expr


# -- conditions ----------------------------------------------------------------------------------


def connect(compiler: Compiler, node: exp.Connector) -> TypedExpr:
    """AND and OR, as a balanced tree: thousands of conditions stay shallow."""
    join = operator.and_ if isinstance(node, exp.And) else operator.or_
    parts = [compiler.condition(part) for part in node.flatten(unnest=False)]
    return TypedExpr(_join_balanced(join, parts), pl.Boolean())


def _join_balanced(join: Binary, parts: list[pl.Expr]) -> pl.Expr:
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [functools.reduce(join, pair) for pair in pairs]
    return parts[0]


def compare(compiler: Compiler, node: exp.Binary) -> pl.Expr | TypedExpr:
    """`=`, `<>`, `<`, `<=`, `>`, `>=`, `<=>` and IS DISTINCT FROM."""
    (left, right), dtype = coerce(node, [compiler.compile(node.this), compiler.compile(node.expression)])
    compared = COMPARISONS[type(node)](left, right)
    return compared if dtype.is_nested() else TypedExpr(compared, pl.Boolean())


def is_value(compiler: Compiler, node: exp.Is) -> pl.Expr:
    """IS NULL, IS TRUE and IS FALSE."""
    wanted = node.expression
    if isinstance(wanted, exp.Null):
        return compiler.compile(node.this).expr.is_null()
    if isinstance(wanted, exp.Boolean):
        return compiler.condition(node.this).eq_missing(pl.lit(bool(wanted.this)))
    raise query_error(node, "UNSUPPORTED_SQL", "IS takes NULL, TRUE or FALSE", "Use = or IS DISTINCT FROM.")


def between(compiler: Compiler, node: exp.Between) -> pl.Expr:
    """BETWEEN, with both bounds included."""
    operands = [compiler.compile(part) for part in (node.this, node.args["low"], node.args["high"])]
    (value, low, high), _ = coerce(node, operands)
    return (value >= low) & (value <= high)


def is_in(compiler: Compiler, node: exp.In) -> pl.Expr:
    """IN with a list of values; one look-up if all of them are literals."""
    if node.args.get("query") is not None or not node.expressions:
        raise query_error(
            node,
            "UNSUPPORTED_SQL",
            "IN needs a list of values",
            "For the rows of another stream: JOIN LATEST(other) ON ....",
        )
    operands = [compiler.compile(part) for part in (node.this, *node.expressions)]
    (value, *others), dtype = coerce(node, operands)
    literals = [_literal_of_type(one, dtype) for one in operands[1:] if one.is_literal]
    if len(literals) < len(others) or dtype.is_temporal():
        equal = [value == other for other in others]
        few = len(equal) <= _FEW_VALUES  # whose expressions stay as they were, for the identity of state
        return functools.reduce(operator.or_, equal) if few else _join_balanced(operator.or_, equal)
    known = [one for one in literals if one is not None]
    result = value.is_in(pl.lit(known, dtype=pl.List(dtype)))
    return pl.when(result).then(pl.lit(True)) if None in literals else result


def _literal_of_type(operand: TypedExpr, dtype: pl.DataType) -> Scalar:
    value = operand.literal
    if dtype.is_float() and value is not None:
        return float(value)
    return int(float(value)) if isinstance(value, str) and dtype.is_integer() else value


def match_pattern(compiler: Compiler, node: exp.Binary) -> pl.Expr:
    """LIKE, ILIKE and RLIKE with a literal pattern, and LIKE with an ESCAPE."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        character = compiler.literal_value(node.expression)
        if not isinstance(character, str) or len(character) != 1:
            raise query_error(
                node, "BAD_ARGUMENT", "ESCAPE needs one character", "As in LIKE '50!%' ESCAPE '!'."
            )
        escape, node = character, node.this
    text, pattern = compiler.compile(node.this), compiler.literal_value(node.expression)
    word = "RLIKE" if isinstance(node, exp.RegexpLike) else "LIKE"
    if text.dtype not in (pl.String, pl.Null) or not isinstance(pattern, str):
        raise query_error(
            node, "TYPE_MISMATCH", f"{word} compares a text with a literal pattern", "CAST it first."
        )
    if word == "LIKE":
        flags = "(?si)" if isinstance(node, exp.ILike) else "(?s)"
        regex = f"{flags}^{_like_to_regex(node, pattern, escape)}$"
    else:
        regex = pattern
        try:
            try_pattern(matches_empty, regex)
        except pl.exceptions.PolarsError:
            raise query_error(node, "BAD_ARGUMENT", f"{pattern!r} is no regular expression") from None
    return text.expr.cast(pl.String).str.contains(regex)


def _like_to_regex(node: exp.Expr, pattern: str, escape: str) -> str:
    regex, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise query_error(
                    node, "BAD_ARGUMENT", f"the pattern {pattern!r} ends with its escape character"
                )
            regex += re.escape(following)
        else:
            regex += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return regex
