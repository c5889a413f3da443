"""Windows of event time: which windows an instant is in, and the panes that windows consist of. Pure.

Window k starts at `k * advance + offset` (microseconds since 1970) and ends `size` later; the end is exclusive. An
instant may be in many windows (`advance` < `size`), in one, or in none (`advance` > `size`).

A *pane* is a stretch of time in which no window starts or ends; its first instant is its name. So every window is a
range of panes, and there are at most two panes per advance, whatever the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.duration import spelled
from penstock.state.buckets import HASH, expand_row_ranges

Instants = npt.NDArray[np.int64]

#: the type of an instant in rows
INSTANT = pl.Datetime("us", "UTC")
#: the start of a row's window
WINDOW = "_window"
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Panes(Protocol):
    """Cuts time into panes."""

    def covers(self, time: pl.Expr) -> pl.Expr | None:
        """Whether an instant is in any window; None when every instant is."""

    def pane(self, time: pl.Expr) -> pl.Expr:
        """The name of the pane that an instant is in."""

    @property
    def step(self) -> int:
        """A divisor of the distance between any two panes' names, in microseconds."""

    def describe(self) -> str:
        """For `explain`."""


@dataclass(frozen=True)
class TimeWindow:
    """Windows of `size` microseconds, one starting every `advance`, aligned to the clock plus `offset`."""

    kind: ClassVar[str] = "time-window"
    state_version: ClassVar[int] = 1

    size: int
    advance: int
    offset: int = 0

    @property
    def is_disjoint(self) -> bool:
        """Whether no instant is in two windows."""
        return self.size <= self.advance

    @property
    def step(self) -> int:
        """A divisor of the distance between any two panes' names."""
        return gcd(self.size, self.advance)

    def start(self, number: Any) -> Any:
        """The start of a window, or of each of an array."""
        return number * self.advance + self.offset

    def end(self, number: Any) -> Any:
        """The end of a window."""
        return self.start(number) + self.size

    def first_open(self, watermark: int) -> int:
        """The first window that ends after the watermark. What is before its start is in no open window."""
        return (watermark - self.offset - self.size) // self.advance + 1

    def find_windows(self, instants: Instants) -> tuple[Instants, Instants]:
        """The first and the last window that each instant is in; none where the first is greater."""
        since = instants - self.offset
        return (since - self.size) // self.advance + 1, since // self.advance

    def covers(self, time: pl.Expr) -> pl.Expr | None:
        """Whether an instant is in any window; None when every instant is."""
        return None if self.size >= self.advance else _since(time, self.offset, self.advance) < self.size

    def pane(self, time: pl.Expr, every: int | None = None) -> pl.Expr:
        """The first instant of the pane an instant is in. With `every`, panes end at its multiples too."""
        borders = [(self.offset, self.advance)]
        if not self.is_disjoint and self.size % self.advance:
            borders.append((self.offset + self.size, self.advance))
        if every is not None:
            borders = [(at, period) for at, period in borders if at % every or period % every]
            borders.append((0, every))
        since = [_since(time, at, period) for at, period in borders]
        return time - (since[0] if len(since) == 1 else pl.min_horizontal(since))

    def describe(self) -> str:
        every = "" if self.size == self.advance else f" every {spelled(self.advance)}"
        shifted = f", shifted by {spelled(self.offset)}" if self.offset else ""
        return f"windows of {spelled(self.size)}{every}{shifted}"


#: one window of all time
ALL_TIME = TimeWindow(2**61, 2**61, 2**60)


def _since(time: pl.Expr, at: int, period: int) -> pl.Expr:
    """The time since the last border. Borders come every `period`, one of them at `at`."""
    shift = at % period
    return (time - shift if shift else time) % period


def to_datetime(micros: pl.Expr) -> pl.Expr:
    """Microseconds since 1970 as a Datetime in UTC."""
    return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def expand_ranges(first: Instants, last: Instants) -> tuple[Instants, Instants]:
    """All numbers from each row's first to its last: for each, its row and the number."""
    return expand_row_ranges(first, last + 1)


def key_by_window(rows: pl.DataFrame, starts: Instants) -> pl.DataFrame:
    """Rows keyed by their windows too: the hash is that of key and window, in the bucket of the key."""
    spice = (starts.view(np.uint64) * _GOLDEN) >> np.uint64(16)
    return rows.with_columns(pl.Series(HASH, rows[HASH].to_numpy() ^ spice), pl.Series(WINDOW, starts))
