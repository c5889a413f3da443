"""Format values as Spark does: `1.0E10`, `true`, `2026-11-15 10:00:00.25`."""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import to_utc

#: sign, digits before and after the point, exponent
_NUMBER = r"^(-?)(\d+)(?:\.(\d+))?(?:e\+?(-?\d+))?$"


def to_text(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    """A value as text, as by Spark's `CAST(... AS STRING)`; None for types that have no text form."""
    if dtype == pl.String:
        return expr
    if dtype.is_float():
        return _double(expr.cast(pl.String))
    if dtype.is_integer() or dtype.is_decimal() or dtype in (pl.Boolean, pl.Null, pl.Date):
        return expr.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        digits = to_utc(expr, dtype).dt.strftime("%Y-%m-%d %H:%M:%S.%6f")
        return digits.str.replace(r"\.?0+$", "")
    return None


def _double(text: pl.Expr) -> pl.Expr:
    """Turn Polars' text of a double into Java's: plain from 0.001 up to ten million, otherwise with an exponent.

    The names of struct fields stay: they are in the expression's text, of which the identity of state is made.
    """
    pieces = pl.struct(text=text, parts=text.str.extract_groups(_NUMBER)).struct.with_fields(
        sign=pl.field("parts").struct.field("1"),
        digits=(pl.field("parts").struct.field("2") + pl.field("parts").struct.field("3").fill_null("")),
        before=pl.field("parts").struct.field("2").str.len_chars().cast(pl.Int64),
        said=pl.field("parts").struct.field("4").cast(pl.Int64).fill_null(0),
    )
    bare = pl.field("digits").str.strip_chars_start("0")
    zeros = pl.field("digits").str.len_chars().cast(pl.Int64) - bare.str.len_chars().cast(pl.Int64)
    count_steps = pieces.struct.with_fields(
        power=pl.field("said") + pl.field("before") - 1 - zeros,
        digits=bare.str.strip_chars_end("0"),
    )
    plain = (pl.field("digits") == "") | (pl.field("power").is_between(-3, 6) & (pl.field("said") == 0))
    rest = pl.field("digits").str.slice(1)
    parts = [
        pl.field("sign"),
        pl.field("digits").str.head(1),
        pl.lit("."),
        pl.when(rest == "").then(pl.lit("0")).otherwise(rest),
        pl.lit("E"),
        pl.field("power").cast(pl.String),
    ]
    far = pl.field("text").str.replace("inf", "Infinity", literal=True)
    to_text = pl.when(pl.field("digits").is_null()).then(far).when(plain).then(pl.field("text"))
    return count_steps.struct.with_fields(it=to_text.otherwise(pl.concat_str(parts))).struct.field("it")
