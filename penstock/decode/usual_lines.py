r"""The fast path through an access log: Polars' CSV reader cuts whole chunks, and this proves that it cut them right.

The slow path then decodes the unusual lines. A chunk about which nothing can be proved takes the slow path whole.

The reader splits at every quote and knows nothing of escapes, so each line must be shown to have exactly the
quotes it should. Let a usual line have q of them. Lines that hold `\"`, or whose blanks between quoted fields
are not single blanks, or whose last quoted field is empty, are left out. Every other line ends with a quote
and so has at least q of them; if together they have q times their number, each has exactly q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

_TIME_FORMAT = "%d/%b/%Y:%H:%M:%S %z"
_TIME_SHAPE = r"^[0-9]{2}/[A-Za-z]{3}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}$"
_DASHES = " - - ["
_TIME_WIDTH, _TAIL_WIDTH = 26, 34
_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")
_PROTOCOLS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2.0")
_BLOCK = 1 << 19
#: longer lines take the slow path
_LONGEST = 1 << 19
#: with more unusual lines than this share, the slow path is quicker for the whole chunk
_MOST_UNUSUAL = 0.1


@dataclass(frozen=True)
class UsualLines:
    """A chunk's lines: `pieces` has one row a line, right wherever `usual` is true; `others` are the rest.

    Columns: `time`, `host`, `method`, `path`, `protocol`, `numbers`, `q0`, `q1`, ... as far as requested.
    """

    pieces: pl.DataFrame
    usual: npt.NDArray[np.bool_]
    others: list[bytes]


def usual_lines(text: bytes, quoted: int, wanted: set[str]) -> UsualLines | None:
    """Cut the lines of a chunk that have the request and `quoted` further quoted fields."""
    marks = _find_marks(text)
    lines = len(marks.newlines)
    escaped = _find_escapes(text, marks.newlines)
    if escaped is None or not lines or text[:1] in b"x\x1f(\xef" or b"\r" in text or marks.longest > _LONGEST:
        return None
    if (
        text.count(b'"', 0, text.find(b"\n")) != 2 + 2 * quoted
    ):  # the reader takes the width of all from the first line
        return None
    # pieces between quotes: head, request, numbers, then a quoted field and a blank, alternating
    width = 3 + 2 * quoted
    columns_read = {0, 1, 2} if "numbers" in wanted or not quoted else {0, 1}
    columns_read |= {3 + 2 * at for at in range(quoted) if f"q{at}" in wanted or at == quoted - 1}
    columns_read |= {4 + 2 * at for at in range(quoted - 1)}
    frame = pl.read_csv(
        text,
        separator='"',
        quote_char=None,
        has_header=False,
        schema={str(at): pl.String for at in range(width)},
        columns=sorted(columns_read),
        truncate_ragged_lines=True,
    )
    if frame.height != lines:
        return None
    usual = _check_structure(frame, quoted)
    usual[escaped] = False
    pieces, fine = _extract_pieces(frame, quoted, wanted)
    usual &= fine
    unusual = np.flatnonzero(~usual)
    if len(unusual) > _MOST_UNUSUAL * lines:
        return None
    others = [marks.line(text, row) for row in unusual.tolist()]
    left = lines - len(others)
    right = marks.quotes - sum(line.count(b'"') for line in others) == (2 + 2 * quoted) * left
    ending = marks.ending_quoted - sum(line.endswith(b'"\n') for line in others)
    if not right or (quoted and ending != left):
        return None
    return UsualLines(pieces, usual, others)


@dataclass(frozen=True)
class _Marks:
    """Where the lines of a text end, how many quotes it has, and how many lines end with one."""

    newlines: npt.NDArray[np.int64]
    quotes: int
    ending_quoted: int
    longest: int

    def line(self, text: bytes, row: int) -> bytes:
        """A line with its newline."""
        return text[int(self.newlines[row - 1]) + 1 if row else 0 : int(self.newlines[row]) + 1]


def _find_marks(text: bytes) -> _Marks:
    codes = np.frombuffer(text, np.uint8)
    found, quotes = [np.zeros(0, np.int64)], 0
    for start in range(0, len(codes), _BLOCK):  # blocks that stay in the processor's cache
        block = codes[start : start + _BLOCK]
        quotes += int(np.count_nonzero(block == ord('"')))
        found.append(np.flatnonzero(block == ord("\n")) + start)
    newlines = np.concatenate(found)
    ending = int(np.count_nonzero(codes[np.maximum(newlines - 1, 0)] == ord('"')))
    longest = int(np.diff(newlines, prepend=-1).max()) if len(newlines) else 0
    return _Marks(newlines, quotes, ending, longest)


def _check_structure(frame: pl.DataFrame, quoted: int) -> npt.NDArray[np.bool_]:
    conditions = [pl.col(str(4 + 2 * at)) == " " for at in range(quoted - 1)]
    conditions.append(pl.col(str(1 + 2 * quoted)).is_not_null() if quoted else pl.col("2").is_not_null())
    return frame.select(pl.all_horizontal(conditions).fill_null(False)).to_series().to_numpy().copy()


def _extract_pieces(
    frame: pl.DataFrame, quoted: int, wanted: set[str]
) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
    """The pieces, and for which lines the head and the request are usual too."""
    tail = frame["0"].str.slice(-_TAIL_WIDTH)
    host = frame["0"].str.head(-_TAIL_WIDTH)
    time, real_time = _parse_times(tail.str.slice(len(_DASHES), _TIME_WIDTH))
    fine = (
        tail.str.starts_with(_DASHES)
        & tail.str.ends_with("] ")
        & (host.str.len_bytes() > 0)
        & ~host.str.contains(" ", literal=True)
    ).fill_null(False)
    mask = fine.to_numpy() & real_time
    columns = [time, host.alias("host")]
    if not {"method", "path", "protocol"}.isdisjoint(wanted):
        request = frame["1"].str.splitn(" ", 3).struct.unnest()
        method, path, protocol = request.get_columns()
        mask &= (method.is_in(_METHODS) & protocol.is_in(_PROTOCOLS)).fill_null(False).to_numpy()
        columns += [method.alias("method"), path.alias("path"), protocol.alias("protocol")]
    if "2" in frame.columns:
        columns.append(frame["2"].alias("numbers"))
    for at in range(quoted):
        if f"q{at}" in wanted:
            # the reader gives an empty field as null
            columns.append(frame[str(3 + 2 * at)].fill_null("").alias(f"q{at}"))
    return pl.DataFrame(columns), mask


def _parse_times(texts: pl.Series) -> tuple[pl.Series, npt.NDArray[np.bool_]]:
    """The instants, and which are real; lines of one second stand together, so few texts are parsed."""
    runs = texts.rle().struct.unnest()
    values = runs["value"]
    instants = values.str.to_datetime(_TIME_FORMAT, strict=False, time_unit="us")
    real = (values.str.contains(_TIME_SHAPE) & instants.is_not_null()).fill_null(False).to_numpy()
    lengths = runs["len"].to_numpy()
    physical = instants.to_physical().fill_null(0).to_numpy()
    times = pl.Series("time", np.repeat(physical, lengths)).cast(pl.Datetime("us", "UTC"))
    return times, np.repeat(real, lengths)


def _find_escapes(text: bytes, newlines: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """The numbers of the lines that hold an escaped quote; None when they are many."""
    rows: list[int] = []
    at = text.find(b'\\"') if b"\\" in text else -1
    while at >= 0:
        row = int(np.searchsorted(newlines, at))
        rows.append(row)
        if len(rows) > 64 + _MOST_UNUSUAL * len(newlines):
            return None
        at = text.find(b'\\"', int(newlines[row]))
    return np.asarray(rows, dtype=np.int64)
