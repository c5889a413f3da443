"""Numbers that the reader of JSON has no type for: the types to read them as, and decimals to the last digit.

The reader turns a number with a fraction into a double before it becomes text. That keeps 15 digits; records
in which a number may have more, or an exponent, are read again one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.decode.contract import ROW
from penstock.decode.records import Records
from penstock.decode.values import as_instance

#: types that the reader of JSON has in lists and structs, but not at the top of a record
_NARROW = (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16)
#: a number that a double may not hold: at least 16 digits and a point, or an exponent
_LONG = re.compile(rb"(?=[0-9.]{17})[0-9]+\.[0-9]|[0-9][eE][+-]?[0-9]")


def readable_type(dtype: pl.DataType) -> pl.DataType:
    """The type to read a column as; the same if the reader knows it."""
    return pl.Int64() if dtype in _NARROW else _with_text(dtype)


def has_decimals(dtype: pl.DataType) -> bool:
    """Whether a type is a decimal or has one inside."""
    return _with_text(dtype) != dtype


def restore_decimals(
    frame: pl.DataFrame, records: Records, schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Put the text of every decimal back as it was written; `schema` has the columns' types."""
    decimals = {name: dtype for name, dtype in schema.items() if has_decimals(dtype)}
    if not decimals or frame.is_empty():
        return frame
    places = [found.start() for found in _LONG.finditer(records.text)]
    rows = np.unique(np.searchsorted(records.starts, places, side="right") - 1)
    touched = frame.filter(pl.col(ROW).is_in(pl.Series(rows, dtype=pl.UInt32).implode()))
    if touched.is_empty():
        return frame
    corrections = []
    for read in touched.select(ROW, *decimals).iter_rows(named=True):
        line = records.text[records.starts[read[ROW]] : records.ends[read[ROW]]]
        found = json.loads(line, parse_float=str, object_pairs_hook=keep_first)
        texts = {name: _restore_value(read[name], found.get(name), dtype) for name, dtype in decimals.items()}
        corrections.append({ROW: read[ROW], **texts})
    types = {ROW: pl.UInt32(), **{name: frame.schema[name] for name in decimals}}
    return frame.update(pl.DataFrame(corrections, schema=types), on=ROW)


def keep_first(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a field given twice the first holds: a hook for `json.loads`."""
    return dict(reversed(pairs))


def _with_text(dtype: pl.DataType) -> pl.DataType:
    """The type with text in the place of decimals."""
    if isinstance(dtype, pl.Decimal):
        return pl.String()
    if isinstance(dtype, pl.List):
        return pl.List(_with_text(as_instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return pl.Array(_with_text(as_instance(dtype.inner)), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _with_text(as_instance(field.dtype)) for field in dtype.fields})
    return dtype


def _restore_value(read: Any, found: Any, dtype: pl.DataType) -> Any:
    """Return what was read, with the decimals in it as they were written."""
    if read is None:
        return None
    if isinstance(dtype, pl.Decimal):
        return found if isinstance(found, str) else read
    if isinstance(dtype, pl.List | pl.Array) and isinstance(found, list):
        inner = as_instance(dtype.inner)
        return [_restore_value(one, other, inner) for one, other in zip(read, found, strict=True)]
    if isinstance(dtype, pl.Struct) and isinstance(found, dict):
        return {
            field.name: _restore_value(read[field.name], found.get(field.name), as_instance(field.dtype))
            for field in dtype.fields
        }
    return read
