"""Values as Spark spells them in text: `1.0E10`, `true`, `2026-11-15 10:00:00.25`.

Receives an expression and its type; hands an expression of text, or None for types that have no spelling.
"""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import instant


def spelled(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    """A value as text, as Spark's `CAST(... AS STRING)` gives it."""
    if dtype == pl.String:
        return expr
    if dtype.is_float():
        return _double(expr.cast(pl.String))
    if dtype.is_integer() or dtype.is_decimal() or dtype in (pl.Boolean, pl.Null, pl.Date):
        return expr.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        digits = instant(expr, dtype).dt.strftime("%Y-%m-%d %H:%M:%S.%6f")
        return digits.str.replace(r"\.?0+$", "")
    return None


def _double(text: pl.Expr) -> pl.Expr:
    """Java's spelling of Polars': plain from 0.001 up to ten million, otherwise with an exponent."""
    sign = text.str.starts_with("-").replace_strict([True, False], ["-", ""], return_dtype=pl.String)
    size = text.str.strip_prefix("-")
    before = size.str.extract(r"^(\d+)", 1)
    after = size.str.extract(r"\.(\d+)", 1).fill_null("")
    said = size.str.extract(r"e\+?(-?\d+)$", 1).cast(pl.Int64).fill_null(0)
    digits = (before + after).str.strip_chars_start("0")
    zeros = (before + after).str.len_chars().cast(pl.Int64) - digits.str.len_chars().cast(pl.Int64)
    power = said + before.str.len_chars().cast(pl.Int64) - 1 - zeros
    digits = digits.str.strip_chars_end("0")
    rest = digits.str.slice(1)
    rest = pl.when(rest == "").then(pl.lit("0")).otherwise(rest)
    return (
        pl.when(size == "inf")
        .then(sign + pl.lit("Infinity"))
        .when(size == "NaN")
        .then(pl.lit("NaN"))
        .when((digits == "") | (power.is_between(-3, 6) & (said == 0)))
        .then(text)
        .otherwise(sign + digits.str.head(1) + pl.lit(".") + rest + pl.lit("E") + power.cast(pl.String))
    )
