"""The types of SQL as types of Polars, and casts between them as in Spark outside its ANSI mode.

A value that does not fit the other type becomes null.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.decode.values import parse_text
from penstock.sql.errors import query_error

INSTANT = pl.Datetime("us", "UTC")
_T = exp.DType
_PLAIN: dict[exp.DType, pl.DataType] = {
    _T.TINYINT: pl.Int8(),
    _T.SMALLINT: pl.Int16(),
    _T.INT: pl.Int32(),
    _T.BIGINT: pl.Int64(),
    _T.FLOAT: pl.Float32(),
    _T.DOUBLE: pl.Float64(),
    _T.BOOLEAN: pl.Boolean(),
    _T.TEXT: pl.String(),
    _T.VARCHAR: pl.String(),
    _T.CHAR: pl.String(),
    _T.DATE: pl.Date(),
    _T.TIMESTAMP: INSTANT,
    _T.TIMESTAMPTZ: INSTANT,
    _T.TIMESTAMPLTZ: INSTANT,
    _T.TIMESTAMPNTZ: pl.Datetime("us"),
}
#: types that can be called as functions, for a cast
NAMES: dict[str, pl.DataType] = {
    "tinyint": pl.Int8(),
    "smallint": pl.Int16(),
    "int": pl.Int32(),
    "bigint": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "boolean": pl.Boolean(),
    "string": pl.String(),
    "date": pl.Date(),
    "timestamp": INSTANT,
}
_KNOWN = (
    "Known are TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), BOOLEAN, STRING, DATE, TIMESTAMP, "
    "ARRAY<...> and STRUCT<name: TYPE, ...>."
)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def dtype_of(node: exp.Expr) -> pl.DataType:
    """The Polars type of a type in a query."""
    kind = node.this if isinstance(node, exp.DataType) else None
    inner = node.expressions
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == _T.DECIMAL:
        digits = [
            int(part.name) if part.name.isdecimal() and len(part.name) < 3 else -1 for part in inner
        ] or [10]
        precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pl.Decimal(precision, scale)
    if kind == _T.ARRAY and len(inner) == 1:
        return pl.List(dtype_of(inner[0]))
    if kind == _T.STRUCT and inner and all(isinstance(part, exp.ColumnDef) for part in inner):
        return pl.Struct({part.name: dtype_of(part.args["kind"]) for part in inner})
    raise query_error(node, "UNKNOWN_TYPE", f"there is no type {node.sql()}", _KNOWN)


def cast(value: pl.Expr, source: pl.DataType, target: pl.DataType, node: exp.Expr) -> pl.Expr:
    """Cast a value; null where it does not fit."""
    if source == target:
        return value
    if source == pl.Null:
        return pl.lit(None, dtype=target)
    if source.is_nested() or target.is_nested():
        raise query_error(node, "TYPE_MISMATCH", f"{source} cannot be cast to {target}", "Cast its parts.")
    if source == pl.String:
        return _from_text(value, target)
    if target == pl.String:
        return _as_text(value, source)
    if isinstance(source, pl.Datetime):
        return _from_instant(value, source, target, node)
    if isinstance(target, pl.Datetime):
        if source == pl.Date:
            return _with_zone(value.cast(pl.Datetime("us")), target)
        if source.is_numeric():
            micros = (
                (value.cast(pl.Float64) * 1e6).round() if source.is_float() else value.cast(pl.Int64) * 10**6
            )
            return _with_zone(micros.cast(pl.Int64, strict=False).cast(pl.Datetime("us")), target)
    elif (source.is_numeric() or source == pl.Boolean) and (target.is_numeric() or target == pl.Boolean):
        return value != 0 if target == pl.Boolean else value.cast(target, strict=False)
    raise query_error(node, "TYPE_MISMATCH", f"{source} cannot be cast to {target}")


def _from_text(text: pl.Expr, target: pl.DataType) -> pl.Expr:
    trimmed = text.str.strip_chars()
    if target == pl.Boolean:
        lower = trimmed.str.to_lowercase()
        return pl.when(lower.is_in(_TRUE)).then(True).when(lower.is_in(_FALSE)).then(False)
    if target.is_integer():
        # a text with a fraction loses it
        fraction = trimmed.cast(pl.Float64, strict=False).cast(target, strict=False)
        return pl.coalesce(trimmed.cast(target, strict=False), fraction)
    if isinstance(target, pl.Datetime):
        midnight = trimmed.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
        return pl.coalesce(parse_text(trimmed, target), _with_zone(midnight, target))
    if target == pl.Date:
        return trimmed.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    return trimmed.cast(target, strict=False)


def _as_text(value: pl.Expr, source: pl.DataType) -> pl.Expr:
    if isinstance(source, pl.Datetime):
        return value.dt.to_string("%Y-%m-%d %H:%M:%S%.f")
    if source == pl.Boolean:
        return pl.when(value).then(pl.lit("true")).when(~value).then(pl.lit("false"))
    return value.cast(pl.String)


def _from_instant(value: pl.Expr, source: pl.Datetime, target: pl.DataType, node: exp.Expr) -> pl.Expr:
    if target == pl.Date:
        return value.dt.date()
    if isinstance(target, pl.Datetime):
        return value.dt.replace_time_zone(target.time_zone).cast(target)
    if target.is_integer():
        return (value.dt.epoch("us") // 10**6).cast(target, strict=False)
    if target.is_float():
        return (value.dt.epoch("us") / 1e6).cast(target)
    raise query_error(node, "TYPE_MISMATCH", f"{source} cannot be cast to {target}")


def _with_zone(value: pl.Expr, target: pl.Datetime) -> pl.Expr:
    return value.dt.replace_time_zone("UTC") if target.time_zone else value
