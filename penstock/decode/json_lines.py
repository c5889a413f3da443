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
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.decode.contract import ROW, Decoded, Decoder
from penstock.decode.json_numbers import keep_first, readable_type, restore_decimals
from penstock.decode.records import MAX_RECORD_BYTES, Encoding, Faults, Records, select_columns, split
from penstock.decode.values import EPOCH_UNITS, cast_columns, check_schema, mismatch
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
