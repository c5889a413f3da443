"""Decode separated values (CSV, TSV): one record is one line, fields may be quoted.

Invariants:
- A newline always ends a record, also inside quotes: a stray quote spoils one line and never the next.
- The structure decides whether a record is good, whatever columns are requested: balanced quotes, quotes only
  around whole fields (doubled inside), and one field per column. A value that is not of its column's type
  spoils a record only when that column is requested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.decode.contract import ROW, Decoded, Decoder
from penstock.decode.marked_lines import MarkedLines, marked_lines
from penstock.decode.records import (
    MAX_RECORD_BYTES,
    NEWLINE,
    Bools,
    Encoding,
    Faults,
    Records,
    select_columns,
    split,
)
from penstock.decode.values import cast_columns, check_schema
from penstock.errors import UserError
from penstock.logs.contract import Chunk


@dataclass(frozen=True)
class Delimited(Decoder):
    """Separated values. `columns` names every field of a record in order, with its type.

    `times` gives the format of time columns: a pattern such as "%Y-%m-%d %H:%M:%S", "iso" (the default), or
    "s", "ms", "us" for epoch numbers. With `has_header` the first record of each partition is skipped.
    A field whose text is one of `null_values` is null. `quote=None` turns quoting off.
    """

    columns: Mapping[str, pl.DataType | type[pl.DataType]]
    separator: str = ","
    quote: str | None = '"'
    has_header: bool = False
    times: Mapping[str, str] = field(default_factory=dict)
    null_values: tuple[str, ...] = ("",)
    encoding: Encoding = "utf-8"
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        marks = [mark for mark in (self.separator, self.quote) if mark is not None]
        if any(len(mark) != 1 or not mark.isascii() or mark in "\r\n" for mark in marks) or len(
            set(marks)
        ) < len(marks):
            raise UserError(
                "BAD_SEPARATOR", "separator and quote must be two different single ASCII characters"
            )
        if not self.schema():
            raise UserError("BAD_SCHEMA", "separated values need at least one column")

    def schema(self) -> dict[str, pl.DataType]:
        return check_schema(self.columns, self.times)

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        schema = self.schema()
        names = select_columns(columns, schema)
        faults: Faults = {}
        records = split(
            chunk, (self.separator + (self.quote or "")).encode(), self.encoding, self.max_record_bytes
        )
        if self.has_header and chunk.start == 0:
            records.skip_first()
        lines = self._split_fields(records, len(schema), faults)
        texts = {name: self._text(lines, place) for place, name in enumerate(schema) if name in names}
        good = lines.frame().select(ROW, *(text.alias(name) for name, text in texts.items()))
        if self.quote is not None and self.quote.encode() in records.text:
            good = good.with_columns(_strip_quotes(pl.col(name), self.quote).alias(name) for name in names)
        if self.null_values:
            nulls = pl.Series(self.null_values, dtype=pl.String).implode()
            good = good.with_columns(
                pl.when(~pl.col(name).is_in(nulls)).then(name).alias(name) for name in names
            )
        good = cast_columns(good, names, schema, self.times, faults)
        return records.result(good, faults)

    def _text(self, lines: MarkedLines, place: int) -> pl.Expr:
        """The text of one field, still in its quotes."""
        start = lines.marks[:, place - 1] + 1 if place else lines.starts
        end = lines.marks[:, place] if place < lines.marks.shape[1] else lines.ends
        return lines.cut(start, end)

    def _split_fields(self, records: Records, fields: int, faults: Faults) -> MarkedLines:
        """The fit records that have the right number of fields, with their separators as marks."""
        marks, lines_at, fit = records.marks, records.lines_at, records.fit
        if self.quote is not None and self.quote.encode() in records.text:
            inside, balanced, well_placed = _find_quoting(records, ord(self.quote), ord(self.separator))
            for row in np.flatnonzero(fit & ~balanced).tolist():
                faults[row] = "a quote is not closed"
            for row in np.flatnonzero(fit & balanced & ~well_placed).tolist():
                faults[row] = "a quote inside a field is not doubled"
            fit = fit & balanced & well_placed
            kinds = records.codes[marks]
            marks = marks[(kinds == NEWLINE) | ((kinds == ord(self.separator)) & ~inside)]
            lines_at = np.flatnonzero(records.codes[marks] == NEWLINE)
        found = np.diff(lines_at, prepend=-1)
        for row in np.flatnonzero(fit & (found != fields)).tolist():
            faults[row] = f"expected {fields} fields, found {found[row]}"
        return marked_lines(records, np.flatnonzero(fit & (found == fields)), marks, lines_at, fields - 1)


def _find_quoting(records: Records, quote: int, separator: int) -> tuple[Bools, Bools, Bools]:
    """Which marks stand inside quotes; which records have all quotes closed; which have them in place."""
    codes, marks, lines_at = records.codes, records.marks, records.lines_at
    is_quote = codes[marks] == quote
    line = np.repeat(np.arange(len(records)), np.diff(lines_at, prepend=-1))
    quotes_before = np.cumsum(is_quote)
    before_line = np.concatenate([[0], quotes_before[lines_at]])[:-1]
    earlier = quotes_before - is_quote - before_line[line]
    inside = earlier % 2 == 1
    balanced = np.diff(quotes_before[lines_at], prepend=0) % 2 == 0
    # The neighbours of a quote: the byte before one that opens, the byte after one that closes.
    at, its_line, closes = marks[is_quote], line[is_quote], inside[is_quote]
    neighbour = codes[np.where(closes, at + 1, at - 1)]
    at_edge = np.where(closes, at + 1 == records.ends[its_line], at == records.starts[its_line])
    well_placed = np.ones(len(records), np.bool_)
    well_placed[its_line[~(at_edge | (neighbour == separator) | (neighbour == quote))]] = False
    return inside, balanced, well_placed


def _strip_quotes(text: pl.Expr, quote: str) -> pl.Expr:
    """The field without the quotes around it, doubled quotes made single."""
    inner = text.str.slice(1).str.head(-1).str.replace_all(quote * 2, quote, literal=True)
    return pl.when(text.str.starts_with(quote)).then(inner).otherwise(text)
