"""Convert columns to what JSON and SQL can represent: times to ISO-8601 text in UTC, bytes to base64, and so on.

Guarantees:
- A time without a zone is taken as UTC. The times of a column have the same number of digits, so text sorts as time.
- Durations become seconds, decimals their exact digits. Null stays null, at any depth of lists and structs.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from polars.datatypes import DataTypeClass

_SECOND_DIGITS = {"ms": 3, "us": 6, "ns": 9}


def to_portable(rows: pl.DataFrame, *, keep_bytes: bool = False) -> pl.DataFrame:
    """Convert rows to types that every reader knows. `keep_bytes` leaves top-level binary columns as they are."""
    return rows.with_columns(
        _convert(pl.col(name), dtype).alias(name)
        for name, dtype in rows.schema.items()
        if _needs_conversion(dtype) and not (keep_bytes and dtype == pl.Binary)
    )


def reorder_columns(rows: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """Put the columns in this order if they are the same ones; rows of an altered job keep their own columns."""
    return rows.select(columns) if rows.columns != [*columns] and {*rows.columns} == {*columns} else rows


def _needs_conversion(dtype: pl.DataType) -> bool:
    """Whether any part of the type, at any depth, is not portable."""
    if isinstance(dtype, pl.List | pl.Array):
        return isinstance(dtype, pl.Array) or _needs_conversion(_instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return any(_needs_conversion(_instance(field.dtype)) for field in dtype.fields)
    return dtype.is_temporal() or isinstance(dtype, pl.Binary | pl.Decimal)


def _convert(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    match dtype:
        case pl.Datetime():
            if dtype.time_zone:
                value = value.dt.convert_time_zone("UTC")
            return value.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.{_SECOND_DIGITS[dtype.time_unit]}fZ")
        case pl.Date():
            return value.dt.strftime("%Y-%m-%d")
        case pl.Time():
            return value.dt.strftime("%H:%M:%S%.6f")
        case pl.Duration():
            return value.dt.total_microseconds() / 1e6
        case pl.Decimal():
            return value.cast(pl.String)
        case pl.Binary():
            return value.bin.encode("base64")
        case pl.Array():
            return _convert(value.arr.to_list(), pl.List(dtype.inner))
        case pl.List():
            inner = _instance(dtype.inner)
            return value.list.eval(_convert(pl.element(), inner)) if _needs_conversion(inner) else value
        case pl.Struct():
            fields = [
                _convert(value.struct.field(field.name), _instance(field.dtype)).alias(field.name)
                for field in dtype.fields
            ]
            return pl.when(value.is_not_null()).then(pl.struct(fields))
        case _:
            return value


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()
