"""Map column types to those of PostgreSQL, and convert rows to what COPY accepts.

Times keep their microseconds (PostgreSQL has no finer ones); lists and structs are `jsonb`, with times in them as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import polars as pl

from penstock.sinks.portable import to_portable

_SIMPLE: tuple[tuple[type[pl.DataType], str], ...] = (
    (pl.Int8, "smallint"),
    (pl.Int16, "smallint"),
    (pl.Int32, "integer"),
    (pl.Int64, "bigint"),
    (pl.UInt8, "smallint"),
    (pl.UInt16, "integer"),
    (pl.UInt32, "bigint"),
    (pl.UInt64, "numeric"),
    (pl.Int128, "numeric"),
    (pl.Decimal, "numeric"),
    (pl.Float32, "real"),
    (pl.Float64, "double precision"),
    (pl.Boolean, "boolean"),
    (pl.Date, "date"),
    (pl.Time, "time without time zone"),
    (pl.Duration, "interval"),
    (pl.Binary, "bytea"),
)


def column_type(dtype: pl.DataType) -> str:
    """The type of PostgreSQL, as `format_type` returns it."""
    if isinstance(dtype, pl.Datetime):
        return f"timestamp {'with' if dtype.time_zone else 'without'} time zone"
    if dtype.is_nested():
        return "jsonb"
    return next((name for kind, name in _SIMPLE if isinstance(dtype, kind)), "text")


def to_copy_rows(rows: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Convert rows to tuples of the values that the types of the columns accept."""
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    plain = rows.with_columns(to_portable(rows.select(nested)).get_columns())
    plain = plain.with_columns(
        pl.col(name).dt.total_microseconds() for name, dtype in rows.schema.items() if dtype == pl.Duration
    )
    plain = plain.with_columns(
        pl.col(name).cast(pl.String)
        for name, dtype in rows.schema.items()
        if isinstance(dtype, pl.Categorical | pl.Enum)
    )
    json_at = {rows.columns.index(name) for name in nested}
    spans_at = {at for at, dtype in enumerate(rows.dtypes) if dtype == pl.Duration}
    if not json_at and not spans_at:
        return plain.iter_rows()
    return (
        tuple(
            value
            if value is None
            else json.dumps(value, ensure_ascii=False)
            if at in json_at
            else timedelta(microseconds=value)
            if at in spans_at
            else value
            for at, value in enumerate(row)
        )
        for row in plain.iter_rows()
    )
