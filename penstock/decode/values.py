"""Cast columns of text to the types of a schema, and report each row with a value that does not fit.

Invariants:
- A value parses the same whatever stands in the other rows: nothing is inferred from the data.
- Null text stays null and is no fault. A type is checked only when its column is requested.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.decode.contract import ROW
from penstock.decode.records import Faults, keep_rows
from penstock.errors import UserError
from penstock.origin import here

#: units of epoch numbers, with their count in a second
EPOCH_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
ISO = "iso"
#: seconds from 1970 to the years 1 and 9999: outside, an epoch number is a mistake and not a time
_EARLIEST_S, _LATEST_S = -62_135_596_800, 253_402_300_799
_SHOWN_CHARACTERS = 40

Schema = Mapping[str, pl.DataType]


@functools.lru_cache(maxsize=256)
def as_instance(dtype: object) -> pl.DataType:
    """A type as an instance: Polars takes `pl.Int64` for `pl.Int64()` but not the other way round."""
    return pl.Series(dtype=dtype).dtype  # type: ignore[arg-type]


def check_schema(
    schema: Mapping[str, object], times: Mapping[str, str], nested: bool = False
) -> dict[str, pl.DataType]:
    """Return the schema with instances of types; refuse types that text cannot be turned into."""
    if not isinstance(schema, Mapping):
        raise _schema_error(f"a schema maps columns to types, but this is a {type(schema).__name__}")
    types: dict[str, pl.DataType] = {}
    for name, dtype in schema.items():
        try:
            types[name] = as_instance(dtype)
        except (TypeError, pl.exceptions.PolarsError):
            raise _schema_error(f"column {name}: {dtype!r} is no type") from None
    for name, how in times.items():
        kind = types.get(name)
        if kind is None or not kind.is_temporal():
            raise UserError(
                "BAD_TIME_FORMAT", f"column {name} has a time format but is not a time in the schema"
            )
        if how not in EPOCH_UNITS and how != ISO and "%" not in how:
            raise UserError(
                "BAD_TIME_FORMAT",
                f"column {name}: {how!r} is no time format",
                hint="Use 's', 'ms' or 'us' for epoch numbers, 'iso', or a pattern such as '%Y-%m-%d'.",
            )
    for name, kind in types.items():
        if name == ROW or (kind.is_nested() and not nested) or kind in (pl.Object, pl.Binary):
            raise UserError("BAD_SCHEMA", f"column {name} cannot be a {kind} read from text")
    return types


def _schema_error(primary: str) -> UserError:
    return UserError(
        "BAD_SCHEMA",
        primary,
        where=str(here()),
        hint='As in {"time": ps.Datetime("us", "UTC"), "user": ps.String, "n": ps.Int64}.',
    )


def parse_text(text: pl.Expr, dtype: pl.DataType, how: str | None = None) -> pl.Expr:
    """Parse the text as `dtype`, null where it does not parse. `how` is a time format (see `check_schema`)."""
    if dtype == pl.String:
        return text
    if dtype == pl.Boolean:
        lower = text.str.to_lowercase()
        return pl.when(lower == "true").then(True).when(lower == "false").then(False)
    if isinstance(dtype, pl.Datetime):
        return _parse_instant(text, dtype, how or ISO)
    if dtype == pl.Date:
        return text.str.to_date(how or "%Y-%m-%d", strict=False)
    if dtype == pl.Time:
        return text.str.to_time(how or "%H:%M:%S", strict=False)
    if dtype.is_nested() or isinstance(dtype, pl.Decimal):
        return pl.when(_has_room(text, dtype)).then(text.cast(dtype, strict=False))
    return text.cast(dtype, strict=False)


def _has_room(text: pl.Expr, dtype: Any) -> pl.Expr:
    """Whether every decimal in a value, now text, has room in its type."""
    if isinstance(dtype, pl.Decimal):
        written = text.str.extract(r"\.([0-9]*?)0*(?:[eE]|$)").str.len_bytes().fill_null(0).cast(pl.Int64)
        shifted = text.str.extract("[eE]([+-]?[0-9]+)$").cast(pl.Int64, strict=False).fill_null(0)
        exact = written - shifted <= dtype.scale
        return text.is_null() | (exact & text.cast(dtype, strict=False).is_not_null())
    if isinstance(dtype, pl.Array):
        return _has_room(text.arr.to_list(), pl.List(dtype.inner))
    if isinstance(dtype, pl.List):
        return text.list.eval(_has_room(pl.element(), dtype.inner)).list.all().fill_null(True)
    if isinstance(dtype, pl.Struct):
        return pl.all_horizontal(_has_room(text.struct.field(one.name), one.dtype) for one in dtype.fields)
    return pl.lit(True)


def _parse_instant(text: pl.Expr, dtype: pl.Datetime, how: str) -> pl.Expr:
    if how in EPOCH_UNITS:
        return from_epoch(text.cast(pl.Int64, strict=False), dtype, how)
    unit = dtype.time_unit
    if how != ISO:
        time = text.str.to_datetime(how, strict=False, time_unit=unit)
        return (
            _convert_zone(time, dtype)
            if any(mark in how for mark in ("%z", "%:z", "%#z", "%+"))
            else _attach_zone(time, dtype)
        )
    has_zone = text.str.contains(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})$")
    zoned = pl.when(has_zone).then(text).str.to_datetime("%+", strict=False, time_unit=unit)
    plain = pl.when(~has_zone).then(text.str.replace(" ", "T", literal=True))
    local = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit=unit)
    return pl.coalesce(_convert_zone(zoned, dtype), _attach_zone(local, dtype))


def from_epoch(number: pl.Expr, dtype: pl.Datetime, unit: str) -> pl.Expr:
    """Epoch numbers as times; null outside the years 1 to 9999."""
    scale = EPOCH_UNITS[unit]
    inside = number.is_between(_EARLIEST_S * scale, _LATEST_S * scale)
    micros = pl.when(inside).then(number) * (1_000_000 // scale)
    return _convert_zone(micros.cast(pl.Datetime("us", "UTC")).dt.cast_time_unit(dtype.time_unit), dtype)


def _convert_zone(time: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    """A time with a zone, shown in the column's zone (in UTC when the column has none)."""
    return time.dt.convert_time_zone(dtype.time_zone) if dtype.time_zone else time.dt.replace_time_zone(None)


def _attach_zone(time: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    """A time without a zone, read as the column's wall clock; an hour that clock skips is null."""
    if dtype.time_zone is None:
        return time
    return time.dt.replace_time_zone(dtype.time_zone, ambiguous="earliest", non_existent="null")


def cast_columns(
    frame: pl.DataFrame, names: Sequence[str], schema: Schema, times: Mapping[str, str], faults: Faults
) -> pl.DataFrame:
    """Cast the named text columns of a frame; rows that do not fit leave it for `faults`."""
    typed = frame.with_columns(
        parse_text(pl.col(name), schema[name], times.get(name)).alias(name) for name in names
    )
    before = len(faults)
    for name in names:
        if schema[name] == pl.String or typed[name].null_count() == frame[name].null_count():
            continue
        wrong = frame.filter(typed[name].is_null() & frame[name].is_not_null())
        for row, value in zip(wrong[ROW].to_list(), wrong[name].to_list(), strict=True):
            faults.setdefault(row, mismatch(name, value, schema[name]))
    return keep_rows(typed, faults) if len(faults) > before else typed


def mismatch(column: str, value: object, dtype: pl.DataType) -> str:
    """The reason that a value does not fit its column."""
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return f"column {column}: {shown} is not {dtype}"
