"""Compile SQL expressions of literals, columns and calls with FUNCTIONS: the part of a planner that tests need."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from sqlglot import Tokenizer
from sqlglot.tokens import Token, TokenType

from penstock.sql.functions import FUNCTIONS, TypedExpr

Schema = Mapping[str, pl.DataType]


def compile_expression(text: str, schema: Schema | None = None) -> TypedExpr:
    """Compile an expression."""
    tokens = Tokenizer().tokenize(text)
    parsed, rest = _parse(tokens, schema or {})
    assert not rest, text
    return parsed


def evaluate(text: str) -> object:
    """Evaluate an expression without columns."""
    values = pl.DataFrame({"row": [0]}).select(compile_expression(text).expr.alias("value"))["value"]
    return values.to_list()[0]


def _parse(tokens: list[Token], schema: Schema) -> tuple[TypedExpr, list[Token]]:
    first, *rest = tokens
    if first.token_type == TokenType.DASH:
        inner, rest = _parse(rest, schema)
        assert isinstance(inner.literal, int | float)
        return _literal(-inner.literal), rest
    if first.token_type == TokenType.STRING:
        return _literal(first.text), rest
    if first.token_type == TokenType.NUMBER:
        return _literal(float(first.text) if set(first.text) & set(".eE") else int(first.text)), rest
    if rest and rest[0].token_type == TokenType.L_PAREN:
        return _parse_call(first.text.lower(), rest[1:], schema)
    words = {"null": None, "true": True, "false": False}
    if first.text.lower() in words:
        return _literal(words[first.text.lower()]), rest
    return TypedExpr(pl.col(first.text), schema[first.text], None, False), rest


def _parse_call(name: str, tokens: list[Token], schema: Schema) -> tuple[TypedExpr, list[Token]]:
    arguments = []
    while tokens[0].token_type != TokenType.R_PAREN:
        parsed, tokens = _parse(tokens, schema)
        arguments.append(parsed)
        if tokens[0].token_type == TokenType.COMMA:
            tokens = tokens[1:]
    expr = FUNCTIONS[name].build(arguments)
    frame = pl.LazyFrame(schema=schema or {"row": pl.Int64()})
    return TypedExpr(expr, frame.select(expr.alias("it")).collect_schema()["it"], None, False), tokens[1:]


def _literal(literal: str | int | float | bool | None) -> TypedExpr:
    expr = pl.lit(literal)
    return TypedExpr(expr, pl.select(expr).to_series().dtype, literal, True)
