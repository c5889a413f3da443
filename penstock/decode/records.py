"""Split a chunk into records, reject those that no decoder can read, and collect the faults of all.

Invariants:
- One newline, one record; its row number counts every record of the chunk, also empty and unreadable ones.
- What is rejected here (empty, too long, not UTF-8) depends on the record's own bytes alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.decode.contract import BAD_SCHEMA, ROW, Decoded
from penstock.errors import UserError
from penstock.logs.contract import Chunk

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Encoding = Literal["utf-8", "latin-1"]
#: row number to what is wrong with that record; the first thing found stays
Faults = dict[int, str]

MAX_RECORD_BYTES = 1 << 20
RAW_BYTES = 4096
NEWLINE, RETURN = ord("\n"), ord("\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SCAN_BYTES = 1 << 19
_CHECK_RECORDS = 512
#: Polars takes bytes that start with one of these for a compressed file (zlib, gzip, zstd)
_LOOKS_COMPRESSED = b"x\x1f("


@dataclass(frozen=True)
class Records:
    """The records of one chunk: record i is `text[starts[i]:ends[i]]`, without its line ending.

    `marks` has the positions of every newline and of the bytes requested of `split`, `lines_at` the indexes of the
    newlines among them. `fit` marks the records for the decoder; `faults` has the others.
    """

    text: bytes
    codes: npt.NDArray[np.uint8]
    marks: Ints
    lines_at: Ints
    starts: Ints
    ends: Ints
    fit: Bools
    faults: Faults
    original: bytes

    def __len__(self) -> int:
        return len(self.ends)

    def skip_first(self) -> None:
        """Make the first record neither good nor bad: it is a header."""
        if len(self):
            self.fit[0] = False
            self.faults.pop(0, None)

    def lines(self) -> pl.Series:
        """Every record as text, those that are not UTF-8 as blanks."""
        text = self.text
        if text[:1] in _LOOKS_COMPRESSED:
            return pl.read_lines(b"\n" + text)["line"].slice(1)
        return pl.read_lines(text)["line"]

    def result(self, good: pl.DataFrame, found: Mapping[int, str]) -> Decoded:
        """Join a decoder's good rows with all faults, its own in `found`."""
        faults = {**found, **self.faults}
        rows = sorted(faults)
        raws = [self.original[self.starts[row] : self.ends[row]][:RAW_BYTES] for row in rows]
        bad = pl.DataFrame(
            {
                ROW: rows,
                "reason": [faults[row] for row in rows],
                "raw": [raw.decode("utf-8", "replace") for raw in raws],
            },
            schema=BAD_SCHEMA,
        )
        return Decoded(good, bad)


def split(chunk: Chunk, marks: bytes, encoding: Encoding, max_record_bytes: int) -> Records:
    """The records of a chunk, with the positions of the single bytes in `marks` found on the same pass.

    A byte order mark counts as nothing at the very start of a partition, and as text elsewhere.
    """
    text = chunk.data
    if chunk.start == 0 and text.startswith(_BYTE_ORDER_MARK):
        text = text[len(_BYTE_ORDER_MARK) :]
    if text and not text.endswith(b"\n"):
        text += b"\n"
    ascii_only = text.isascii()
    if encoding == "latin-1" and not ascii_only:
        text = text.decode("latin-1").encode()
    codes = np.frombuffer(text, np.uint8)
    found = positions(codes, b"\n" + marks)
    lines_at = np.flatnonzero(codes[found] == NEWLINE)
    newlines = found[lines_at]
    starts = np.zeros_like(newlines)
    starts[1:] = newlines[:-1] + 1
    ends = newlines - ((newlines > starts) & (codes[newlines - 1] == RETURN))
    sizes = ends - starts
    fit = (sizes > 0) & (sizes <= max_record_bytes)
    faults: Faults = {}
    for row in np.flatnonzero(~fit).tolist():
        faults[row] = (
            f"record of {sizes[row]} bytes is longer than {max_record_bytes} bytes"
            if sizes[row]
            else "empty line"
        )
    original = text
    if not ascii_only and encoding == "utf-8":
        undecodable = _find_not_utf8(text, starts, ends)
        if undecodable:
            blanked = bytearray(text)
            for row in undecodable:
                blanked[starts[row] : ends[row]] = b" " * int(sizes[row])
            text = bytes(blanked)
            codes = np.frombuffer(text, np.uint8)
            fit[list(undecodable)] = False
            faults = {**undecodable, **faults}
    return Records(text, codes, found, lines_at, starts, ends, fit, faults, original)


def positions(codes: npt.NDArray[np.uint8], wanted: bytes) -> Ints:
    """Where any of the wanted bytes stands, ascending. Works in blocks that stay in the processor's cache."""
    parts = [np.zeros(0, np.int64)]
    for start in range(0, len(codes), _SCAN_BYTES):
        block = codes[start : start + _SCAN_BYTES]
        hit = block == wanted[0]
        for code in wanted[1:]:
            np.logical_or(hit, block == code, out=hit)
        parts.append(np.flatnonzero(hit) + start)
    return np.concatenate(parts)


def _find_not_utf8(text: bytes, starts: Ints, ends: Ints) -> Faults:
    """The records that are not UTF-8. Looks at single records only near a position known to be wrong."""
    faults: Faults = {}
    try:
        text.decode()
        return faults
    except UnicodeDecodeError:
        pass
    for first in range(0, len(ends), _CHECK_RECORDS):
        last = min(first + _CHECK_RECORDS, len(ends))
        try:
            text[starts[first] : ends[last - 1]].decode()
        except UnicodeDecodeError:
            for row in range(first, last):
                try:
                    text[starts[row] : ends[row]].decode()
                except UnicodeDecodeError as error:
                    faults[row] = f"not UTF-8 at byte {error.start}"
    return faults


def select_columns(columns: Collection[str], schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return the requested columns in the schema's order; a name the decoder does not have is the user's error."""
    unknown = sorted(set(columns) - set(schema))
    if unknown:
        raise UserError(
            "UNKNOWN_COLUMN",
            f"the decoder has no column {', '.join(unknown)}",
            hint=f"It has: {', '.join(schema)}.",
        )
    return [name for name in schema if name in columns]


def keep_rows(frame: pl.DataFrame, faults: Collection[int]) -> pl.DataFrame:
    """The frame without the rows that have a fault."""
    if not faults:
        return frame
    return frame.filter(~pl.col(ROW).is_in(pl.Series(list(faults), dtype=pl.UInt32).implode()))
