"""Decode lines of any text format with a regular expression whose named groups are the columns.

It is for formats without a decoder of their own: it matches every line, so it is several times slower.

Invariants:
- The expression must match the whole record; one it does not match is bad, whatever columns are requested.
- A group that took no part in the match is null. A value that is not of its column's type spoils a record
  only when that column is requested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.decode.contract import ROW, Decoded, Decoder
from penstock.decode.records import MAX_RECORD_BYTES, Encoding, Faults, select_columns, split
from penstock.decode.values import cast_columns, check_schema
from penstock.errors import UserError
from penstock.logs.contract import Chunk

_WHOLE = "_whole"


@dataclass(frozen=True)
class Pattern(Decoder):
    """Lines that match `regex` (Rust's syntax: no look-around, no back references).

    `columns` gives types to groups, the others are text; `times` formats to times, as in `Delimited`.

    >>> Pattern(r"(?P<level>[A-Z]+) (?P<took_ms>[0-9]+)", {"took_ms": pl.Int64}).schema()
    {'level': String, 'took_ms': Int64}
    """

    regex: str
    columns: Mapping[str, pl.DataType | type[pl.DataType]] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)
    encoding: Encoding = "utf-8"
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        missing = set(self.columns) - set(self.schema())
        if missing:
            raise UserError("BAD_SCHEMA", f"the pattern has no group {', '.join(sorted(missing))}")

    def _anchored_regex(self) -> str:
        return f"^(?P<{_WHOLE}>{self.regex})$"

    def schema(self) -> dict[str, pl.DataType]:
        try:
            matched = pl.select(pl.lit("").str.extract_groups(self._anchored_regex()).struct.unnest())
        except pl.exceptions.PolarsError as error:
            raise UserError("BAD_PATTERN", "the pattern cannot be compiled", detail=str(error)) from error
        groups = [name for name in matched.columns if not name.isdigit() and name != _WHOLE]
        if not groups:
            raise UserError(
                "BAD_PATTERN", "the pattern has no named group", hint="Name what you want: (?P<name>[a-z]+)."
            )
        return check_schema({name: self.columns.get(name, pl.String) for name in groups}, self.times)

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        schema = self.schema()
        names = select_columns(columns, schema)
        faults: Faults = {}
        records = split(chunk, b"", self.encoding, self.max_record_bytes)
        rows = np.flatnonzero(records.fit)
        frame = pl.DataFrame(
            {ROW: pl.Series(rows, dtype=pl.UInt32), "_line": records.lines().gather(pl.Series(rows))}
        )
        groups = pl.col("_line").str.extract_groups(self._anchored_regex()).struct.unnest()
        matched = frame.select(ROW, groups).select(ROW, _WHOLE, *names)
        for row in matched.filter(pl.col(_WHOLE).is_null())[ROW]:
            faults[row] = "does not match the pattern"
        good = matched.filter(pl.col(_WHOLE).is_not_null()).drop(_WHOLE)
        return records.result(cast_columns(good, names, schema, self.times, faults), faults)
