"""Journals: state that holds rows until they are due, such as events not yet in order and open panes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import HASH, expand_row_ranges, order_by_hash_and_time, sort_by_hash
from penstock.state.collection import Collection, Scope
from penstock.state.compact import MAX_RUNS
from penstock.state.run import RunEntry

Combine = Callable[[pl.DataFrame], pl.DataFrame]


class Journal(Collection):
    """Rows that wait until they are due, by the column `time`.

    `flush` removes due rows. `floor` is the time up to which earlier epochs have flushed; rows before it are gone.
    With `by_time`, rows of a run that share a hash are in the order of time, else in the order of insertion.
    """

    def __init__(
        self, name: str, entries: Sequence[RunEntry], scope: Scope, *, time: str, by_time: bool = False
    ) -> None:
        super().__init__(name, entries, scope)
        self._time = time
        self._by_time = by_time

    def insert(self, rows: pl.DataFrame) -> None:
        """Add rows, which have the column `_hash`. Reads nothing."""
        self._write(self._sorted(rows), self._scope.epoch, self._time)

    def _sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not self._by_time:
            return sort_by_hash(rows)
        order = order_by_hash_and_time(rows, self._time)
        return rows if order is None else rows[order]

    def flush(self, floor: int, below: int) -> pl.DataFrame | None:
        """Remove and return the rows due from `floor` to before `below`; None if there are none."""
        rows = self.rows(floor, below)
        self.empty(below)
        return rows

    def rows(self, floor: int, below: int) -> pl.DataFrame | None:
        """The rows due from `floor` to before `below`, run after run, each run sorted by hash."""
        sections = self.sections(floor, below)
        return pl.concat(sections) if sections else None

    def sections(self, floor: int, below: int) -> list[pl.DataFrame]:
        """As `rows`, a frame for each run: rows of equal hash are in the order of insertion."""
        return [
            self._scope.store.section(entry, self._scope.buckets).filter(
                pl.col(self._time).is_between(floor, below, closed="left")
            )
            for entry in self._entries
            if entry.may_have_due(floor, below)
        ]

    def runs(self, floor: int, below: int) -> list[pl.DataFrame]:
        """The whole runs with rows due from `floor` to before `below`, without a copy; other rows are among them."""
        due = [entry for entry in self._entries if entry.may_have_due(floor, below)]
        return [self._scope.store.section(entry, self._scope.buckets) for entry in due]

    def of(self, hashes: npt.NDArray[np.uint64], floor: int) -> pl.DataFrame | None:
        """The rows of these hashes (sorted, each once) due from `floor` on, in the order of insertion; None if there
        are none. Searches the runs instead of scanning them."""
        found = []
        for entry in self._entries:
            if entry.high is None or entry.high < floor:
                continue
            run = self._scope.store.section(entry, self._scope.buckets)
            there = run[HASH].to_numpy()
            first, end = np.searchsorted(there, hashes), np.searchsorted(there, hashes, side="right")
            _, at = expand_row_ranges(first, end)
            if len(at):
                found.append(run[at].filter(pl.col(self._time) >= floor))
        return pl.concat(found) if found else None

    def counted(self, floor: int) -> dict[int, int]:
        """The number of rows by the time they are due, from `floor` on, with those that this epoch has inserted."""
        found: Counter[int] = Counter()
        for entry in {entry.name: entry for entry in (*self._entries, *self._added)}.values():
            times = self._scope.store.count_times(entry, self._scope.buckets, self._time)
            found.update({time: rows for time, rows in times.items() if time >= floor})
        return found

    def empty(self, below: int) -> None:
        """Drop the runs in which every row is due before `below`."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, floor: int, combine: Combine | None = None, *, parts: int = 1) -> None:
        """Merge small runs, without the rows that were flushed.

        With several `parts`, a merged run spans at most such a part of the time from `floor` to the latest row. This is
        for rows that are read until they are old: so old runs leave soon and no merge includes all rows.
        """

        def merge(runs: list[pl.DataFrame], whole: bool) -> pl.DataFrame:
            rows = self._sorted(pl.concat(runs, rechunk=True))
            return sort_by_hash(combine(rows)) if combine and rows.height else rows

        # runs that span a part of the time are merged at once: several epochs would leave too many runs to see parts
        start = self._newest(floor, parts) if parts > 1 else 0
        self._compact(merge, self._time, start, floor, at_once=parts > 1)

    def _newest(self, floor: int, parts: int) -> int:
        """The index of the first of the newest runs that together span at most a part of the time since `floor`."""
        spans = [(e.low, e.high) for e in self._entries if e.low is not None and e.high is not None]
        if len(spans) < len(self._entries) or len(spans) > parts + MAX_RUNS:
            return 0
        latest = max((high for _, high in spans), default=floor)
        low, high = latest, floor
        for start in range(len(spans), 0, -1):
            low, high = min(low, spans[start - 1][0]), max(high, spans[start - 1][1])
            if high - max(low, floor) > (latest - floor) // parts:
                return start
        return 0


class ReadOnlyJournal(Journal):
    """The `wanted` rows of a journal as the last epoch left them. Changes have no effect."""

    def __init__(
        self, name: str, entries: Sequence[RunEntry], scope: Scope, *, time: str, wanted: pl.Expr
    ) -> None:
        super().__init__(name, entries, scope, time=time)
        self._wanted = wanted

    def rows(self, floor: int, below: int) -> pl.DataFrame | None:
        found = super().rows(floor, below)
        return None if found is None else found.filter(self._wanted)

    def insert(self, rows: pl.DataFrame) -> None:
        pass

    def empty(self, below: int) -> None:
        pass

    def compact(self, floor: int, combine: Combine | None = None, *, parts: int = 1) -> None:
        pass
