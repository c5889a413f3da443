"""Decode JSON lines: one object a line.

A chunk without faults is read at once. Otherwise the blocks that fail are searched for the faulty lines, and the rest
is read again.

Invariants:
- Fields a record lacks are null, fields that are not requested are ignored; of a field given twice the first holds.
- A record that is not a JSON object is bad, whatever columns are requested. A field of the wrong type
  spoils a record only when it is requested. A String column takes any value: what is no string, as its JSON text.
- A Decimal is what was written, number or text, to the last digit; one with more places than its column is bad.
- A line is good or bad alone as among others: the reader of the whole chunk decides, and a line found wrong beforehand
  is one that this reader refuses too.

The reader turns a number with a fraction into a double before it becomes text. That keeps 15 digits; records in which a
number may have more, or an exponent, are read again one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from penstock.decode.contract import ROW, Decoded, Decoder
from penstock.decode.records import MAX_RECORD_BYTES, Encoding, Faults, Records, select_columns, split
from penstock.decode.values import EPOCH_UNITS, as_instance, cast_columns, check_schema, mismatch
from penstock.logs.contract import Chunk

_BLOCK_RECORDS = 256
_REFUSED = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
#: read when no field is requested, so that the records are still checked
_NOTHING = {"_nothing": pl.String()}


@dataclass(frozen=True)
class JsonLines(Decoder):
    """JSON objects. `columns` names the fields with their types (lists and structs too).

    `times` gives the format of time columns: "iso" (the default), a pattern such as "%d.%m.%Y %H:%M", or
    "s", "ms", "us" for epoch numbers.
    """

    columns: Mapping[str, pl.DataType | type[pl.DataType]]
    times: Mapping[str, str] = field(default_factory=dict)
    encoding: Encoding = "utf-8"
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        self.schema()

    def schema(self) -> dict[str, pl.DataType]:
        return check_schema(self.columns, self.times, nested=True)

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        schema = self.schema()
        names = select_columns(columns, schema)
        written = {name: self._written_type(name, schema[name]) for name in names} or _NOTHING
        faults: Faults = {}
        records = split(chunk, b"", self.encoding, self.max_record_bytes)
        rows = np.flatnonzero(records.fit).tolist()
        frame = _read(records, rows, written)
        if frame is None:
            rows = _without_fragments(records, rows, written, faults)
            frame = _read(records, rows, written)
        if frame is None:
            blocks = [rows[at : at + _BLOCK_RECORDS] for at in range(0, len(rows), _BLOCK_RECORDS)]
            frame = pl.concat([_read_block(records, block, written, faults) for block in blocks])
        frame = restore_decimals(frame, records, {name: schema[name] for name in names})
        other = [name for name in names if written[name] != schema[name]]
        good = cast_columns(frame, other, schema, self.times, faults)
        return records.result(good.select(ROW, *names), faults)

    def _written_type(self, name: str, dtype: pl.DataType) -> pl.DataType:
        """The type a field has in the JSON text."""
        if not dtype.is_temporal():
            return readable_type(dtype)
        return pl.Int64() if self.times.get(name) in EPOCH_UNITS else pl.String()


def _read(records: Records, rows: Sequence[int], written: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Read the given records' fields; None if the reader refuses any of them."""
    numbers = pl.Series(ROW, rows, dtype=pl.UInt32)
    if not rows:
        return pl.DataFrame(schema={ROW: pl.UInt32, **written})
    text, starts, ends = records.text, records.starts, records.ends
    if len(rows) < len(records):
        text = b"\n".join([text[starts[row] : ends[row]] for row in rows])
    if not text.startswith(b"{"):
        # Keeps the reader from taking the first line's first bytes for a sign of the file's kind.
        text = b"\n" + text
    try:
        frame = pl.read_ndjson(text, schema=dict(written))
    except _REFUSED:
        return None
    return frame.insert_column(0, numbers) if frame.height == len(rows) else None


def _without_fragments(
    records: Records, rows: Sequence[int], written: Mapping[str, pl.DataType], faults: Faults
) -> list[int]:
    """The records without the wrong ones that lack a brace at an end: most bad lines are cut off."""
    codes, index = records.codes, np.array(rows)
    braced = (codes[records.starts[index]] == ord("{")) & (codes[records.ends[index] - 1] == ord("}"))
    for row in index[~braced].tolist():
        wrong = _find_fault(records.text[records.starts[row] : records.ends[row]], written)
        if wrong is not None:
            faults[row] = wrong
    return [row for row in rows if row not in faults]


def _read_block(
    records: Records, rows: Sequence[int], written: Mapping[str, pl.DataType], faults: Faults
) -> pl.DataFrame:
    """Read the good ones of the given records; faults for the others."""
    frame = _read(records, rows, written)
    if frame is not None:
        return frame
    rest = []
    for row in rows:
        wrong = _find_fault(records.text[records.starts[row] : records.ends[row]], written)
        if wrong is None:
            rest.append(row)
        else:
            faults[row] = wrong
    return _bisect(records, rest, written, faults)


def _bisect(
    records: Records, rows: Sequence[int], written: Mapping[str, pl.DataType], faults: Faults
) -> pl.DataFrame:
    """Read the good ones of records in which no fault is known, by bisection."""
    frame = _read(records, rows, written)
    if frame is not None:
        return frame
    if len(rows) == 1:
        faults[rows[0]] = "not readable as JSON with the requested columns"
        return pl.DataFrame(schema={ROW: pl.UInt32, **written})
    middle = len(rows) // 2
    halves = (rows[:middle], rows[middle:])
    return pl.concat([_bisect(records, half, written, faults) for half in halves])


def _find_fault(line: bytes, written: Mapping[str, pl.DataType]) -> str | None:
    """The certain fault of a record; None where only the reader can decide."""
    try:
        found = json.loads(line.decode(), object_pairs_hook=keep_first)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return "not a JSON object"
    for name, dtype in written.items():
        value = found.get(name)
        kinds = _python_types(dtype)
        if value is not None and kinds and (type(value) not in kinds or not _is_in_range(dtype, value)):
            return mismatch(name, value, dtype)
    return None


def _is_in_range(dtype: pl.DataType, value: object) -> bool:
    """Whether a whole number is not too great for a column of whole numbers."""
    if not dtype.is_integer() or not isinstance(value, int):
        return True
    bits = int(str(dtype).lstrip("UInt"))
    if dtype.is_signed_integer():
        return -(1 << bits - 1) <= value < 1 << bits - 1
    return 0 <= value < 1 << bits


def _python_types(dtype: pl.DataType) -> tuple[type, ...]:
    """The Python types a JSON value may have for a column; none where any type may do."""
    if dtype.is_integer():
        return (int,)
    if dtype.is_float():
        return (int, float)
    return (bool,) if dtype == pl.Boolean else ()


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
