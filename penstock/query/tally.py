"""Tallies: counts, sums, least and greatest of whole numbers per key, for one choice of a batch's events after another.

Receives a batch of events as numbers, once; hands, for every choice (a mask), the totals of each key and pane.

The events are put in order of their keys once; a choice then is a walk over them, and its totals are those of
stretches of equal keys. That costs a few nanoseconds an event and choice, where grouping costs hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.summary import COUNT_PART, partial_columns
from penstock.operators.job_windows import JOB
from penstock.operators.key_codes import CODE
from penstock.operators.partials import PANE

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
#: panes are named `t - (t - offset) % step + shift`
PaneOf = tuple[int, int, int]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Values:
    """A column of whole numbers in order of the keys; `known` where some are null."""

    plain: Numbers
    low: Numbers
    high: Numbers
    known: Numbers | None


@dataclass(frozen=True)
class Cells:
    """Totals, one row for each key and pane: how many events, and of each column n, sum, least and greatest."""

    codes: Numbers
    panes: Numbers
    rows: Numbers
    columns: tuple[tuple[Numbers, Numbers, Numbers, Numbers], ...]


class Tally:
    """A batch's events in order of one choice of keys, ready for any choice of events and values."""

    def __init__(self, codes: Numbers, times: Numbers) -> None:
        self._order = pl.Series(codes).arg_sort().to_numpy()
        self._codes, self._times = codes[self._order], times[self._order]
        self._first, self._last = int(times.min()), int(times.max())
        self._values: dict[int, _Values] = {}

    def cells(
        self, mask: Mask, pane: PaneOf, values: Sequence[pl.Series], asked: Sequence[bool]
    ) -> Cells | None:
        """The totals of the events a mask chooses; None when it chooses none. `asked`: of which values also the least
        and the greatest are."""
        at = mask.take(self._order).nonzero()[0]
        if not len(at):
            return None
        codes = self._codes.take(at)
        new = np.empty(len(at), dtype=np.bool_)
        new[0] = True
        np.not_equal(codes[1:], codes[:-1], out=new[1:])
        step, offset, shift = pane
        first = self._first - (self._first - offset) % step
        if self._last < first + step:  # all in one pane, as nearly always
            starts = new.nonzero()[0]
            panes = np.full(len(starts), first + shift)
        else:
            times = self._times[at]
            each = times - (times - offset) % step + shift
            new[1:] |= each[1:] != each[:-1]
            starts = new.nonzero()[0]
            panes = each[starts]
        rows = np.empty_like(starts)
        np.subtract(starts[1:], starts[:-1], out=rows[:-1])
        rows[-1] = len(at) - starts[-1]
        columns = tuple(
            _totals(self._ordered(column), at, starts, rows, ends)
            for column, ends in zip(values, asked, strict=True)
        )
        return Cells(codes[starts], panes, rows, columns)

    def _ordered(self, column: pl.Series) -> _Values:
        """A column in order of the keys; the same column is put in order once."""
        if id(column) not in self._values:
            self._values[id(column)] = _in_order(column, self._order)
        return self._values[id(column)]


def _in_order(column: pl.Series, order: Numbers) -> _Values:
    plain = column.fill_null(0).to_numpy()[order]
    if not column.null_count():
        return _Values(plain, plain, plain, None)
    known = column.is_not_null().to_numpy()[order]
    low, high = np.where(known, plain, _MOST), np.where(known, plain, _LEAST)
    return _Values(plain, low, high, known.astype(np.int64))


def _totals(
    values: _Values, at: Numbers, starts: Numbers, rows: Numbers, ends: bool
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    chosen = values.plain.take(at)
    total = np.add.reduceat(chosen, starts)
    n = rows if values.known is None else np.add.reduceat(values.known[at], starts)
    if not ends:
        return n, total, total, total
    low, high = (chosen, chosen) if values.known is None else (values.low[at], values.high[at])
    return n, total, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def can_be_added(column: pl.Series) -> bool:
    """Whether no sum of a column's numbers can be beyond 64 bits."""
    low, high = column.min(), column.max()
    if low is None or high is None:
        return True
    assert isinstance(low, int)
    assert isinstance(high, int)
    return max(-low, high) * len(column) < 2**62


@dataclass
class Counted:
    """The totals of many jobs of a group, put together."""

    jobs: list[int] = field(default_factory=list)
    found: list[Cells] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)

    def add(self, job: int, cells: Cells, first: int) -> None:
        """A job's totals, whose keys' numbers begin at `first`."""
        self.jobs.append(job)
        self.found.append(cells)
        self.firsts.append(first)

    def frame(self) -> pl.DataFrame:
        """All of it, as partial answers with the keys' numbers: in the order of what these begin at."""
        lengths = [len(cells.codes) for cells in self.found]
        codes = np.concatenate([cells.codes for cells in self.found]) + np.repeat(self.firsts, lengths)
        columns = [
            pl.Series(JOB, np.repeat(np.array(self.jobs, dtype=np.uint32), lengths)),
            pl.Series(CODE, codes),
            pl.Series(PANE, np.concatenate([cells.panes for cells in self.found])),
            pl.Series(COUNT_PART, np.concatenate([cells.rows for cells in self.found])),
        ]
        for number in range(len(self.found[0].columns)):
            parts = [
                np.concatenate([cells.columns[number][part] for cells in self.found]) for part in range(4)
            ]
            columns += partial_columns(f"a{number}", *parts)
        return pl.DataFrame(columns)
