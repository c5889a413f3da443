"""Values as Spark spells them in text: `1.0E10`, `true`, `2026-11-15 10:00:00.25`.

Receives an expression and its type; hands an expression of text, or None for types that have no spelling.
"""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import instant

#: sign, digits before and behind the point, exponent
_SPELLED = r"^(-?)(\d+)(?:\.(\d+))?(?:e\+?(-?\d+))?$"


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
    pieces = pl.struct(text=text, parts=text.str.extract_groups(_SPELLED)).struct.with_fields(
        sign=pl.field("parts").struct.field("1"),
        digits=(pl.field("parts").struct.field("2") + pl.field("parts").struct.field("3").fill_null("")),
        before=pl.field("parts").struct.field("2").str.len_chars().cast(pl.Int64),
        said=pl.field("parts").struct.field("4").cast(pl.Int64).fill_null(0),
    )
    bare = pl.field("digits").str.strip_chars_start("0")
    zeros = pl.field("digits").str.len_chars().cast(pl.Int64) - bare.str.len_chars().cast(pl.Int64)
    scaled = pieces.struct.with_fields(
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
    spelled = pl.when(pl.field("digits").is_null()).then(far).when(plain).then(pl.field("text"))
    return scaled.struct.with_fields(it=spelled.otherwise(pl.concat_str(parts))).struct.field("it")
