r"""Decode the access logs of Apache and nginx: common, combined, and combined with more quoted fields.

    host ident user [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 512 "referer" "agent" "session=u7"

This is the hot path: bytes at known positions prove that a line is usual, and regular expressions see only the others.

Invariants:
- The structure decides whether a record is good, whatever columns are requested: the number of quotes
  (escaped ones, `\"`, not counted), nothing after the last one, `host ident user [time]` before the first,
  and a time that exists. `status` and `bytes` can spoil a record only when they are requested.
- Escapes stay as the server wrote them. "-" is null in ident, user, status, bytes, referer, agent and extras.
- A request that is no request ("-", the bytes of a TLS handshake) gives null method, path and protocol.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.decode.contract import BAD_SCHEMA, ROW, Decoded, Decoder
from penstock.decode.marked_lines import MarkedLines, marked_lines
from penstock.decode.records import (
    MAX_RECORD_BYTES,
    NEWLINE,
    Bools,
    Encoding,
    Faults,
    Ints,
    Records,
    keep_rows,
    select_columns,
    split,
)
from penstock.decode.usual_lines import usual_lines
from penstock.decode.values import cast_columns
from penstock.errors import UserError
from penstock.logs.contract import Chunk

_TIME_FORMAT = "%d/%b/%Y:%H:%M:%S %z"
#: how far before the first quote the time starts and ends, and the user ends
_TIME_STARTS, _TIME_ENDS, _USER_ENDS = 28, 2, 30
_HEAD = r"^[^ ]+ [^ ]* .* \[[0-9]{2}/[A-Za-z]{3}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}\] $"
_USUAL_HEAD = (b' - - [00/Aaa/0000:00:00:00 +0000] "', b' - - [99/Zzz/9999:99:99:99 +9999] "')
_REQUEST = r"^(?P<method>[A-Za-z]+) (?P<path>.*?)(?: (?P<protocol>HTTP/[0-9.]+))?$"
_HEAD_COLUMNS = frozenset(("host", "ident", "user"))
_REQUEST_COLUMNS = ("method", "path", "protocol")
_USUAL_PROTOCOL = (b' HTTP/0.0"', b' HTTP/9.9"')
_NUMBERS: dict[str, pl.DataType] = {"status": pl.Int32(), "bytes": pl.Int64()}


@dataclass(frozen=True)
class Cookie:
    """An extra quoted field of cookies; its column has the value of the cookie `name`, else null."""

    name: str


@dataclass(frozen=True)
class CombinedLog(Decoder):
    """Access-log lines. `extra` names the quoted fields after the agent, in order; with `common` there is
    neither a referer nor an agent. The extra `Cookie("session")` gives the column `session`."""

    extra: tuple[str | Cookie, ...] = ()
    common: bool = False
    encoding: Encoding = "utf-8"
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        if len(self.schema()) != 9 + len(self._quoted()) or ROW in self.schema():
            raise UserError("BAD_SCHEMA", "two fields of the access log have the same name")

    def schema(self) -> dict[str, pl.DataType]:
        names = (
            "host",
            "ident",
            "user",
            "time",
            *_REQUEST_COLUMNS,
            "status",
            "bytes",
            *map(_field_name, self._quoted()),
        )
        strings: dict[str, pl.DataType] = {name: pl.String() for name in names}
        return strings | {"time": pl.Datetime("us", "UTC")} | _NUMBERS

    def _quoted(self) -> tuple[str | Cookie, ...]:
        """The quoted fields after the request."""
        return self.extra if self.common else ("referer", "agent", *self.extra)

    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        names = select_columns(columns, self.schema())
        return self._decode_fast(chunk, names) or self._decode_slow(chunk, names)

    def _decode_fast(self, chunk: Chunk, names: list[str]) -> Decoded | None:
        """Usual lines cut by the CSV reader; only the others take the slow path."""
        text = chunk.data
        if self.max_record_bytes < MAX_RECORD_BYTES or not text.isascii() or not text.endswith(b"\n"):
            return None
        quoted = self._quoted()
        wanted = {*names} | {f"q{at}" for at, field in enumerate(quoted) if _field_name(field) in names}
        if not _NUMBERS.keys().isdisjoint(names):
            wanted.add("numbers")
        found = usual_lines(text, len(quoted), wanted)
        if found is None:
            return None
        cut = found.pieces.rename(
            {f"q{at}": _field_name(field) for at, field in enumerate(quoted)} | {"numbers": "_numbers"},
            strict=False,
        )
        rows = pl.Series(ROW, np.arange(cut.height, dtype=np.uint32))
        dash = pl.lit(None, pl.String)
        cut = cut.with_columns(rows, ident=dash, user=dash)
        good = cut.with_columns(self._refine(cut, names))
        faults: Faults = {}
        good = cast_columns(good, [name for name in names if name in _NUMBERS], _NUMBERS, {}, faults)
        if faults:
            return None
        usual, good = found.usual, good.select(ROW, *names)
        if usual.all():
            return Decoded(good, pl.DataFrame(schema=BAD_SCHEMA))
        unusual, others = np.flatnonzero(~usual), b"".join(found.others)
        # a chunk of its own that is not the first of its partition
        slow = self._decode_slow(Chunk(chunk.partition, max(1, chunk.start), others), names)
        renumbered = [
            frame.with_columns(pl.Series(ROW, unusual[frame[ROW].to_numpy()].astype(np.uint32)))
            for frame in (slow.good, slow.bad)
        ]
        fast = good.filter(pl.Series(usual))
        return Decoded(pl.concat([fast, renumbered[0]]).sort(ROW), renumbered[1])

    def _decode_slow(self, chunk: Chunk, names: list[str]) -> Decoded:
        faults: Faults = {}
        records = split(chunk, b'"', self.encoding, self.max_record_bytes)
        quoted = self._quoted()
        lines = _quoted_lines(records, 2 + 2 * len(quoted), bool(quoted), faults)
        lines = _check_heads(lines, faults)
        pieces = self._pieces(lines, names)
        requests = [name for name in names if name in _REQUEST_COLUMNS]
        usual, parts = _match_usual_requests(lines, requests) if requests else (np.ones(0, np.bool_), {})
        pieces |= parts
        cut = lines.frame().select(ROW, *(piece.alias(name) for name, piece in pieces.items()))
        if cut["time"].null_count():
            for row in cut.filter(pl.col("time").is_null())[ROW]:
                faults[row] = "there is no such time"
        if not usual.all():
            cut = _fill_unusual_requests(cut, requests, lines, np.flatnonzero(~usual))
        good = cut.with_columns(self._refine(cut, names))
        good = cast_columns(good, [name for name in names if name in _NUMBERS], _NUMBERS, {}, faults)
        return records.result(keep_rows(good, faults).select(ROW, *names), faults)

    def _pieces(self, lines: MarkedLines, names: Collection[str]) -> dict[str, pl.Expr]:
        """The time, and the pieces of the lines that hold what is requested, except those of the request itself."""
        first, second = lines.marks[:, 0], lines.marks[:, 1]
        time = lines.cut(first - _TIME_STARTS, first - _TIME_ENDS)
        pieces = {"time": time.str.to_datetime(_TIME_FORMAT, strict=False, time_unit="us")}
        if not _HEAD_COLUMNS.isdisjoint(names):
            pieces["_head"] = lines.cut(lines.starts, first - _USER_ENDS)
        if not _NUMBERS.keys().isdisjoint(names):
            pieces["_numbers"] = lines.cut(second + 1, lines.marks[:, 2] if self._quoted() else lines.ends)
        for place, field in enumerate(self._quoted()):
            if _field_name(field) in names:
                pieces[_field_name(field)] = lines.cut(
                    lines.marks[:, 2 * place + 2] + 1, lines.marks[:, 2 * place + 3]
                )
        return pieces

    def _refine(self, cut: pl.DataFrame, names: Collection[str]) -> list[pl.Series | pl.Expr]:
        """The requested columns that are only a part of a piece, or null where it is a dash."""
        columns: list[pl.Series | pl.Expr] = []
        if "_head" in cut.columns:
            host, ident, user = cut["_head"].str.splitn(" ", 3).struct.unnest()
            columns += [host.alias("host"), _null_dashes(ident, "ident"), _null_dashes(user, "user")]
        if "_numbers" in cut.columns:
            status, size = cut["_numbers"].str.strip_chars(" ").str.splitn(" ", 2).struct.unnest()
            columns += [
                _null_dashes(status.fill_null(""), "status"),
                _null_dashes(size.fill_null(""), "bytes"),
            ]
        for field in self._quoted():
            if isinstance(field, Cookie) and field.name in names:
                columns.append(_extract_cookie(cut[field.name]))
            elif isinstance(field, str) and field in names:
                columns.append(_null_dashes(cut[field], field))
        return columns


def combined_log(extra: Iterable[str | Cookie] = (), common: bool = False) -> CombinedLog:
    """A decoder of combined (or common) log lines with further quoted fields.

    >>> combined_log(extra=[Cookie("session")]).schema()["session"]
    String
    """
    return CombinedLog(tuple(extra), common)


def _field_name(field: str | Cookie) -> str:
    return field.name if isinstance(field, Cookie) else field


def _null_dashes(text: pl.Series, name: str) -> pl.Expr:
    return pl.when(text != "-").then(text).alias(name)


def _quoted_lines(records: Records, count: int, closed: bool, faults: Faults) -> MarkedLines:
    """Select the fit records with `count` quotes, the last one at the end when `closed`; faults for the others.

    A quote after an odd number of backslashes is escaped: it belongs to the field and is not counted.
    """
    marks, lines_at = records.marks, records.lines_at
    if b"\\" in records.text:
        marks = _drop_escaped(records)
        if len(marks) < len(records.marks):
            lines_at = np.flatnonzero(records.codes[marks] == NEWLINE)
    found = np.diff(lines_at, prepend=-1) - 1
    good = records.fit & (found == count)
    for row in np.flatnonzero(records.fit & ~good).tolist():
        faults[row] = f"expected {count} quotes, found {found[row]}"
    if closed and len(records):
        at_end = marks[lines_at - 1] == records.ends - 1
        for row in np.flatnonzero(good & ~at_end).tolist():
            faults[row] = "text after the last quote"
        good &= at_end
    return marked_lines(records, np.flatnonzero(good), marks, lines_at, count)


def _drop_escaped(records: Records) -> Ints:
    """The marks without the quotes that stand after an odd number of backslashes."""
    codes, marks = records.codes, records.marks
    after_backslash = (codes[marks - 1] == ord("\\")) & (codes[marks] != NEWLINE) & (marks > 0)
    if not after_backslash.any():
        return marks
    slashes = np.flatnonzero(codes == ord("\\"))
    index = np.arange(len(slashes))
    run_starts = np.maximum.accumulate(np.where(np.diff(slashes, prepend=-2) != 1, index, 0))
    last = np.searchsorted(slashes, marks[after_backslash] - 1)
    odd = (last - run_starts[last]) % 2 == 0
    escaped = after_backslash.copy()
    escaped[after_backslash] = odd
    unescaped: Ints = marks[~escaped]
    return unescaped


def _check_heads(lines: MarkedLines, faults: Faults) -> MarkedLines:
    """The lines that start as an access log does; faults for the others."""
    first = lines.marks[:, 0]
    dashes = first - len(_USUAL_HEAD[0]) + 1
    fine = (
        lines.fits(dashes, *_USUAL_HEAD) & (dashes > lines.starts) & (lines.codes[lines.starts] != ord(" "))
    )
    if fine.all():
        return lines
    unusual = np.flatnonzero(~fine)
    others = lines.take(unusual)
    heads = others.frame().select(head=others.cut(others.starts, others.marks[:, 0]))
    fine[unusual] = heads.select(pl.col("head").str.contains(_HEAD))["head"].to_numpy()
    for row in lines.rows[~fine].tolist():
        faults[row] = "does not start with host, ident, user and [time]"
    return lines.take(fine)


def _match_usual_requests(lines: MarkedLines, names: Collection[str]) -> tuple[Bools, dict[str, pl.Expr]]:
    """Which requests are a method of three or four letters, a path and HTTP/x.y, and their named parts."""
    first, second = lines.marks[:, 0], lines.marks[:, 1]
    three = lines.fits(first, b'"AAA ', b'"ZZZ ')
    four = lines.fits(first, b'"AAAA ', b'"ZZZZ ') if not three.all() else ~three
    space = np.where(four, first + 5, first + 4)
    protocol = second - len(_USUAL_PROTOCOL[0]) + 1
    usual = (three | four) & lines.fits(protocol, *_USUAL_PROTOCOL) & (protocol > space)
    end = second
    if not usual.all():
        # Nothing is cut from the others: any position but a field's edge may be inside a character.
        space, protocol, end = (
            np.where(usual, at, first + place) for place, at in ((1, space), (2, protocol), (3, second))
        )
    places = {"method": (first + 1, space), "path": (space + 1, protocol), "protocol": (protocol + 1, end)}
    return usual, {name: lines.cut(*places[name]) for name in names}


def _fill_unusual_requests(
    good: pl.DataFrame, names: list[str], lines: MarkedLines, unusual: Ints
) -> pl.DataFrame:
    """Fill in the parts of the unusual requests; null where the text is no request."""
    others = lines.take(unusual)
    request = others.cut(others.marks[:, 0] + 1, others.marks[:, 1])
    parts = others.frame().select(request.str.extract_groups(_REQUEST).alias("request")).unnest("request")
    return good.with_columns(good[name].scatter(pl.Series(unusual), parts[name]) for name in names)


def _extract_cookie(cookies: pl.Series) -> pl.Series:
    """The value of the cookie the column is named after; the usual field holds that cookie alone."""
    prefix = cookies.name + "="
    alone = (cookies.str.starts_with(prefix) & ~cookies.str.contains(";", literal=True)).fill_null(True)
    values = cookies.str.strip_prefix(prefix)
    if alone.all():
        return values
    unusual = (~alone).arg_true()
    found = cookies.gather(unusual).str.extract(rf"(?:^|;) *{re.escape(cookies.name)}=([^;]*)")
    return values.scatter(unusual, found)
