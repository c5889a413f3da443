"""Totals per key and pane of many selections of the same events: count, sum, least and greatest of whole numbers.

The events are sorted by key once. A selection is a mask; its totals are those of stretches of equal keys in that order.
This costs a few nanoseconds an event and selection, where a group-by costs hundreds.
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
from penstock.operators.panes import PANE

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
#: (step, offset, shift): the pane of a time is named `t - (t - offset) % step + shift`
PaneOf = tuple[int, int, int]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Values:
    """A column of whole numbers, sorted by key. `low` and `high` have neutral values for nulls; `known` is 1 where
    there is a value (None: everywhere)."""

    plain: Numbers
    low: Numbers
    high: Numbers
    known: Numbers | None


@dataclass(frozen=True)
class Cells:
    """Totals, one row for each key and pane: the number of events, and for each column count, sum, least, greatest."""

    codes: Numbers
    panes: Numbers
    rows: Numbers
    columns: tuple[tuple[Numbers, Numbers, Numbers, Numbers], ...]


class PaneTotals:
    """The events of a batch sorted by key, ready for any mask and any values."""

    def __init__(self, codes: Numbers, times: Numbers) -> None:
        self._order = pl.Series(codes).arg_sort().to_numpy()
        self._codes, self._times = codes[self._order], times[self._order]
        self._first, self._last = int(times.min()), int(times.max())
        self._values: dict[int, _Values] = {}

    def select(
        self, mask: Mask, pane: PaneOf, values: Sequence[pl.Series], extremes: Sequence[bool]
    ) -> Cells | None:
        """The totals of the events that a mask selects; None if there are none. `extremes`: for each of the values,
        whether its least and greatest are computed."""
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
            _totals(self._sort(column), at, starts, rows, extreme)
            for column, extreme in zip(values, extremes, strict=True)
        )
        return Cells(codes[starts], panes, rows, columns)

    def _sort(self, column: pl.Series) -> _Values:
        """A column sorted by key; each column is sorted once."""
        if id(column) not in self._values:
            self._values[id(column)] = _sort_values(column, self._order)
        return self._values[id(column)]


def _sort_values(column: pl.Series, order: Numbers) -> _Values:
    plain = column.fill_null(0).to_numpy()[order]
    if not column.null_count():
        return _Values(plain, plain, plain, None)
    known = column.is_not_null().to_numpy()[order]
    low, high = np.where(known, plain, _MOST), np.where(known, plain, _LEAST)
    return _Values(plain, low, high, known.astype(np.int64))


def _totals(
    values: _Values, at: Numbers, starts: Numbers, rows: Numbers, extremes: bool
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    selected = values.plain.take(at)
    total = np.add.reduceat(selected, starts)
    n = rows if values.known is None else np.add.reduceat(values.known[at], starts)
    if not extremes:
        return n, total, total, total
    low, high = (selected, selected) if values.known is None else (values.low[at], values.high[at])
    return n, total, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def can_be_summed(column: pl.Series) -> bool:
    """Whether every sum of a column's numbers fits into 64 bits."""
    low, high = column.min(), column.max()
    if low is None or high is None:
        return True
    assert isinstance(low, int)
    assert isinstance(high, int)
    return max(-low, high) * len(column) < 2**62


@dataclass
class GroupTotals:
    """The totals of many jobs of a template group."""

    _jobs: list[int] = field(default_factory=list)
    _cells: list[Cells] = field(default_factory=list)
    _first_codes: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: int, cells: Cells, first_code: int) -> None:
        """Add a job's totals; its keys are numbered from `first_code` on."""
        self._jobs.append(job)
        self._cells.append(cells)
        self._first_codes.append(first_code)

    def to_frame(self) -> pl.DataFrame:
        """All totals as partial results whose keys are numbers."""
        lengths = [len(cells.codes) for cells in self._cells]
        codes = np.concatenate([cells.codes for cells in self._cells])
        columns = [
            pl.Series(JOB, np.repeat(np.array(self._jobs, dtype=np.uint32), lengths)),
            pl.Series(CODE, codes + np.repeat(self._first_codes, lengths)),
            pl.Series(PANE, np.concatenate([cells.panes for cells in self._cells])),
            pl.Series(COUNT_PART, np.concatenate([cells.rows for cells in self._cells])),
        ]
        for number in range(len(self._cells[0].columns)):
            parts = [
                np.concatenate([cells.columns[number][part] for cells in self._cells]) for part in range(4)
            ]
            columns += partial_columns(f"a{number}", *parts)
        return pl.DataFrame(columns)
