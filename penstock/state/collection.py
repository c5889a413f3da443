"""What an operator may do with its state: `insert`, look up, `flush`, `empty`; on one slice, in one epoch.

Receives the run entries of the last manifest; hands the operator frames, and the commit step the changes.

Invariants:
- Nothing that exists is changed: an epoch adds runs and drops row ranges; the manifest makes it so.
- What is read is what was inserted up to the last epoch, never what this epoch inserts.
- A slice sees and touches its own buckets only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import HASH
from penstock.state.compact import pick
from penstock.state.run import RunEntry, RunStore

Combine = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Changes:
    """What one slice did to one collection in one epoch."""

    added: tuple[RunEntry, ...] = ()
    dropped: tuple[tuple[str, frozenset[int]], ...] = ()


@dataclass
class Scope:
    """Where a slice works: the store, its buckets, the epoch; and whether what it changes counts."""

    store: RunStore
    epoch: int
    buckets: frozenset[int]
    bucket_count: int
    writes: bool = True

    def shared(self) -> Scope:
        """The scope of what all slices see whole: all buckets, written by the owner of the first one."""
        return Scope(
            self.store, self.epoch, frozenset(range(self.bucket_count)), self.bucket_count, 0 in self.buckets
        )


class _Collection:
    def __init__(self, name: str, entries: Sequence[RunEntry], scope: Scope) -> None:
        self.name = name
        self._scope = scope
        self._entries = [entry for entry in entries if entry.rows_in(scope.buckets)]
        self._added: list[RunEntry] = []
        self._dropped: list[tuple[str, frozenset[int]]] = []

    def changes(self) -> Changes:
        """What has to be written into the manifest."""
        return Changes(tuple(self._added), tuple(self._dropped)) if self._scope.writes else Changes()

    def _drop(self, entry: RunEntry) -> None:
        if entry in self._added:  # made by a merge of this very epoch: no manifest knows it
            self._added.remove(entry)
        else:
            self._dropped.append((entry.name, self._scope.buckets & entry.sections.keys()))
        self._entries.remove(entry)

    def _write(self, rows: pl.DataFrame, upto: int, time: str | None = None) -> RunEntry | None:
        entry = None
        if rows.height and self._scope.writes:
            entry = self._scope.store.write(
                rows,
                collection=self.name,
                epoch=self._scope.epoch,
                upto=upto,
                buckets=self._scope.bucket_count,
                time=time,
            )
            self._added.append(entry)
        return entry

    def _compact(self, merge: Combine, time: str | None = None) -> None:
        chosen = pick([entry.rows_in(self._scope.buckets) for entry in self._entries])
        if chosen is None or not self._scope.writes:
            return
        entries = self._entries[chosen]
        rows = pl.concat([self._scope.store.section(entry, self._scope.buckets) for entry in entries])
        upto = max(entry.upto for entry in entries)
        merged = self._write(merge(rows.sort(HASH, maintain_order=True)), upto, time)
        for entry in entries:
            self._drop(entry)
        if merged is not None:
            self._entries.insert(chosen.start, merged)


class Journal(_Collection):
    """Rows that wait for their time: events not yet in order, panes still open.

    `time` is the column that says when a row is due. Rows leave through `flush`, in time's order of
    epochs; `floor` is how far earlier epochs have flushed, below it every row is gone.
    """

    def __init__(self, name: str, entries: Sequence[RunEntry], scope: Scope, *, time: str) -> None:
        super().__init__(name, entries, scope)
        self._time = time

    def insert(self, rows: pl.DataFrame) -> None:
        """Add rows (they carry `_hash`). Reads nothing."""
        self._write(rows.sort(HASH, maintain_order=True), self._scope.epoch, self._time)

    def flush(self, floor: int, below: int) -> pl.DataFrame | None:
        """The rows due from `floor` to before `below`; they are gone afterwards. None when there are none."""
        rows = self.rows(floor, below)
        self.empty(below)
        return rows

    def rows(self, floor: int, below: int) -> pl.DataFrame | None:
        """The rows due from `floor` to before `below`, run after run, each sorted by hash; they stay."""
        found = self.sections(floor, below)
        return pl.concat(found) if found else None

    def sections(self, floor: int, below: int) -> list[pl.DataFrame]:
        """As `rows`, a frame for every run: rows of equal hash stand in the order they were inserted in."""
        return [
            self._scope.store.section(entry, self._scope.buckets).filter(
                pl.col(self._time).is_between(floor, below, closed="left")
            )
            for entry in self._entries
            if entry.low is not None and entry.high is not None and entry.low < below and entry.high >= floor
        ]

    def of(self, hashes: npt.NDArray[np.uint64], floor: int) -> pl.DataFrame | None:
        """The rows of these hashes (in order, each once) due from `floor` on, in the order they were inserted in.

        They stay. Costs what is found: runs are searched, not scanned. None when there are none.
        """
        found = []
        for entry in self._entries:
            if entry.high is None or entry.high < floor:
                continue
            run = self._scope.store.section(entry, self._scope.buckets)
            there = run[HASH].to_numpy()
            first, end = np.searchsorted(there, hashes), np.searchsorted(there, hashes, side="right")
            count = end - first
            at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
            if len(at):
                found.append(run[at].filter(pl.col(self._time) >= floor))
        return pl.concat(found) if found else None

    def empty(self, below: int) -> None:
        """Drop the runs in which every row is due before `below`."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, floor: int, combine: Combine | None = None) -> None:
        """Merge small runs, leaving out what has been flushed."""

        def merge(rows: pl.DataFrame) -> pl.DataFrame:
            rows = rows.filter(pl.col(self._time) >= floor)
            return combine(rows).sort(HASH) if combine and rows.height else rows

        self._compact(merge, self._time)


class Table(_Collection):
    """The latest row of every key. With `time`, the column by which rows grow old, old ones can be forgotten."""

    def __init__(
        self,
        name: str,
        entries: Sequence[RunEntry],
        scope: Scope,
        *,
        keys: Sequence[str],
        time: str | None = None,
    ) -> None:
        super().__init__(name, entries, scope)
        self._keys = list(keys)
        self._time = time

    def insert(self, rows: pl.DataFrame) -> None:
        """Put one row a key (they carry `_hash`); it replaces the key's former row."""
        self._write(rows.sort(HASH, maintain_order=True), self._scope.epoch, self._time)

    def lookup(self, wanted: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
        """For every row of `wanted` (its keys and `_hash`) the values of its key's latest row, else nulls.

        Costs what is wanted times the logarithm of what is there: runs are searched, not scanned.
        """
        hashes = wanted[HASH].to_numpy()
        missing = np.arange(wanted.height)
        found = _Found()
        for entry in reversed(self._entries):
            if not len(missing):
                break
            run = self._scope.store.section(entry, self._scope.buckets)
            missing = self._search(run, wanted, hashes, missing, values, found)
        aligned = found.aligned(wanted.height)
        return pl.DataFrame(dict.fromkeys(values, [None] * wanted.height)) if aligned is None else aligned

    def _search(
        self,
        run: pl.DataFrame,
        wanted: pl.DataFrame,
        hashes: np.ndarray,
        missing: np.ndarray,
        values: Sequence[str],
        found: _Found,
    ) -> np.ndarray:
        there = run[HASH].to_numpy()
        position = np.searchsorted(there, hashes[missing])
        unmatched = np.ones(len(missing), dtype=bool)
        open_ = np.arange(len(missing))
        # more than one step only where two keys share a 64-bit hash
        while len(open_):
            inside = position[open_] < len(there)
            open_ = open_[inside]
            open_ = open_[there[position[open_]] == hashes[missing[open_]]]
            if not len(open_):
                break
            rows = run[position[open_]]
            same = _same_keys(rows, wanted[missing[open_]], self._keys)
            hit = open_[same]
            found.add(missing[hit], rows.filter(pl.Series(same)).select(values))
            unmatched[hit] = False
            open_ = open_[~same]
            position[open_] += 1
        return missing[unmatched]

    def all(self) -> pl.DataFrame | None:
        """The latest row of every key, sorted by hash. Reads the whole slice's state."""
        sections = [self._scope.store.section(entry, self._scope.buckets) for entry in self._entries]
        if not sections:
            return None
        return self._latest(pl.concat(sections).sort(HASH, maintain_order=True))

    def empty(self) -> None:
        """Forget every key of the slice."""
        for entry in list(self._entries):
            self._drop(entry)

    def expire(self, below: int) -> None:
        """Forget what is older than `below`, run by run: rows of a run that has younger ones too may still be found."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, below: int | None = None) -> None:
        """Merge small runs, keeping the latest row of every key, unless it is older than `below`."""

        def merge(rows: pl.DataFrame) -> pl.DataFrame:
            latest = self._latest(rows)
            if below is None or self._time is None:
                return latest
            return latest.filter(pl.col(self._time) >= below)

        self._compact(merge, self._time)

    def _latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Of rows sorted by hash, older before newer: the last row of every key."""
        if rows.height < 2:
            return rows
        following = rows.select(HASH, *self._keys)[1:]
        before = rows.select(HASH, *self._keys)[:-1]
        same_hash = (before[HASH] == following[HASH]).to_numpy()
        same = same_hash & _same_keys(before, following, self._keys)
        if (same_hash != same).any():
            return rows.unique(subset=self._keys, keep="last", maintain_order=True)
        return rows.filter(pl.Series(np.append(~same, True)))


@dataclass
class _Found:
    at: list[np.ndarray] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)

    def add(self, at: np.ndarray, rows: pl.DataFrame) -> None:
        self.at.append(at)
        self.rows.append(rows)

    def aligned(self, height: int) -> pl.DataFrame | None:
        if not self.rows:
            return None
        rows = pl.concat(self.rows)
        index = np.full(height, -1, dtype=np.int64)
        index[np.concatenate(self.at)] = np.arange(rows.height)
        where = pl.Series(index).replace(-1, None)
        return rows.select(pl.all().gather(where))


def _same_keys(left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str]) -> np.ndarray:
    same = np.ones(left.height, dtype=bool)
    for key in keys:
        same &= left[key].eq_missing(right[key]).to_numpy()
    return same
