"""Decode the partial results of reducing agents: one JSON object a line, with the time of its newest event.

    {"p": PLAN, "t": 1772366400000000, "c": 0, "c0k0": "/a", "c0a0": 3}   a partial result of cut 0
    {"p": PLAN, "t": 1772366401000000, "c": -1}                           the watermark of the agent
    {"p": PLAN, "why": "not a date", "bad": "..."}                        a line the agent could not read

Floats travel as the integer of the same bits, bytes as hex digits, times as integers, so nothing changes on the way. A
result of another plan is bad: its columns would mean something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.decode.contract import BAD_SCHEMA, ROW, Decoded, Decoder
from penstock.decode.json_lines import JsonLines
from penstock.decode.records import select_columns
from penstock.logs.contract import Chunk

#: the newest event time in a partial result, and the cut it is of
AT, CUT = "t", "c"
#: the cut of lines that have only a watermark
MARK = -1
_HEAD: dict[str, pl.DataType] = {AT: pl.Datetime("us", "UTC"), CUT: pl.Int32()}
_BAD = [pl.col(name).cast(dtype) for name, dtype in BAD_SCHEMA.items()]
_ABOUT: dict[str, pl.DataType] = {"p": pl.String(), "why": pl.String(), "bad": pl.String()}


def is_transferable(dtype: pl.DataType) -> bool:
    """Whether values of a type can be written into such lines and come back as they were."""
    if isinstance(dtype, pl.Struct):
        return all(_is_plain_json(field.dtype) for field in dtype.fields)
    return _is_plain_json(dtype) or dtype in (pl.Float32, pl.Float64, pl.Binary) or dtype.is_temporal()


def _is_plain_json(dtype: object) -> bool:
    """Whether JSON has such values as they are."""
    whole = isinstance(dtype, pl.DataType) and dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)
    return whole or dtype in (pl.String, pl.Boolean)


def pack_column(column: pl.Series) -> pl.Series:
    """Encode a column for the wire."""
    if column.dtype.is_float():
        whole = np.int32 if column.dtype == pl.Float32 else np.int64
        bits = pl.Series(column.name, column.fill_null(0).to_numpy().view(whole))
        return bits.set(column.is_null(), None)
    if column.dtype == pl.Binary:
        return column.bin.encode("hex")
    return column.to_physical() if column.dtype.is_temporal() else column


def unpack_column(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Decode a column from the wire."""
    if dtype.is_float():
        kind = np.float32 if dtype == pl.Float32 else np.float64
        floats = pl.Series(column.name, column.fill_null(0).to_numpy().view(kind))
        return floats.set(column.is_null(), None)
    return column.str.decode("hex") if dtype == pl.Binary else column.cast(dtype)


def _wire_type(dtype: pl.DataType) -> pl.DataType:
    return pack_column(pl.Series("", [], dtype)).dtype


@dataclass(frozen=True)
class Partials(Decoder):
    """Partial results of one plan. `columns` are those of all its cuts, with their types."""

    plan: str
    columns: Mapping[str, pl.DataType]

    def schema(self) -> dict[str, pl.DataType]:
        return {**_HEAD, **self.columns}

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        schema = self.schema()
        names = select_columns(columns, schema)
        written = {name: _wire_type(schema[name]) for name in names} | _ABOUT
        read = JsonLines(written).decode(chunk, written)
        rows = read.good
        ours = (pl.col("p") == self.plan).fill_null(False)
        unread = rows.filter(ours & pl.col("why").is_not_null())
        foreign = rows.filter(~ours)
        faults = [
            unread.select(ROW, reason="why", raw=pl.col("bad").fill_null("").str.slice(0, 4096)),
            foreign.select(
                ROW,
                reason=pl.lit("another plan reduced it: give agents and engine the same file"),
                raw=pl.concat_str(pl.lit("reduced by plan "), pl.col("p").fill_null("none")),
            ),
        ]
        bad = pl.concat([read.bad, *(found.select(_BAD) for found in faults)]).sort(ROW)
        good = rows.filter(ours & pl.col("why").is_null())
        return Decoded(good.select(ROW, *(unpack_column(good[name], schema[name]) for name in names)), bad)
