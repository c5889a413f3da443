"""Cut fields out of lines by the positions of their marks (quotes, separators).

Text between two positions is cut by an expression, and bytes at a position are compared in bulk: no line is read
character by character.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.decode.contract import ROW
from penstock.decode.records import Bools, Ints, Records

_LINE = "_line"
_TEMPLATE_ROWS = 4096


@dataclass(frozen=True)
class MarkedLines:
    """Lines that all have the same number of marks; `marks[i, k]` is where mark k of line i stands."""

    codes: npt.NDArray[np.uint8]
    rows: Ints
    lines: pl.Series
    starts: Ints
    ends: Ints
    marks: Ints

    def frame(self) -> pl.DataFrame:
        """What the expressions of `cut` are evaluated on."""
        return pl.DataFrame({ROW: pl.Series(self.rows, dtype=pl.UInt32), _LINE: self.lines.cast(pl.Binary)})

    def cut(self, start: Ints, end: Ints) -> pl.Expr:
        """Cut the text between two positions of each line (both counted in bytes of the chunk)."""
        offset, length = pl.Series(start - self.starts), pl.Series(end - start)
        return pl.col(_LINE).bin.slice(pl.lit(offset), pl.lit(length)).cast(pl.String)

    def take(self, which: Ints | Bools) -> MarkedLines:
        """Select some of the lines, in order, by index or mask."""
        index = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return MarkedLines(
            self.codes,
            self.rows[index],
            self.lines.gather(pl.Series(index)),
            self.starts[index],
            self.ends[index],
            self.marks[index],
        )

    def fits(self, at: Ints, low: bytes, high: bytes) -> Bools:
        """Whether each line's bytes from `at` on lie between `low` and `high`, byte by byte."""
        width = len(low)
        if len(self.codes) < width:
            return np.zeros(len(at), np.bool_)
        inside = (at >= 0) & (at <= len(self.codes) - width)
        windows = np.ndarray(len(self.codes) - width + 1, f"V{width}", self.codes.data, strides=(1,))
        floor, distance = _template(low, high)
        if not inside.all():
            at = np.where(inside, at, 0)
        for start in range(0, len(at), _TEMPLATE_ROWS):
            seen = windows[at[start : start + _TEMPLATE_ROWS]].view(np.uint8)
            # One flat comparison: a byte below its floor wraps around to above any distance.
            between = seen - floor[: len(seen)] <= distance[: len(seen)]
            if not between.all():
                inside[start : start + _TEMPLATE_ROWS] &= between.reshape(-1, width).all(axis=1)
        return inside


@lru_cache(maxsize=32)
def _template(low: bytes, high: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The lowest bytes and how far above them bytes may lie, repeated for a block of lines."""
    floor, ceiling = np.frombuffer(low, np.uint8), np.frombuffer(high, np.uint8)
    return np.tile(floor, _TEMPLATE_ROWS), np.tile(ceiling - floor, _TEMPLATE_ROWS)


def marked_lines(records: Records, rows: Ints, marks: Ints, lines_at: Ints, count: int) -> MarkedLines:
    """The given records, each of which has `count` marks; `lines_at` has the indexes of newlines in `marks`."""
    lines, starts, ends = records.lines(), records.starts, records.ends
    if len(rows) == len(records):
        return MarkedLines(records.codes, rows, lines, starts, ends, marks.reshape(-1, count + 1)[:, :count])
    positions = marks[lines_at[rows][:, None] + np.arange(-count, 0)]
    return MarkedLines(
        records.codes, rows, lines.gather(pl.Series(rows)), starts[rows], ends[rows], positions
    )
