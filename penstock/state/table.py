"""Tables: state that holds the latest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.state.buckets import HASH, buckets_of, expand_row_ranges, sort_by_hash
from penstock.state.collection import Collection, Scope
from penstock.state.run import RunEntry
from penstock.state.run_rows import RunRows


class Table(Collection):
    """The latest row of each key. With `time`, the column by which rows age, old rows can expire.

    With `gone`, a Boolean column, a key is deleted by a row in which it is true.
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[RunEntry],
        scope: Scope,
        *,
        keys: Sequence[str],
        time: str | None = None,
        gone: str | None = None,
    ) -> None:
        super().__init__(name, entries, scope)
        self._keys = list(keys)
        self._time = time
        self._gone = gone

    def insert(self, rows: pl.DataFrame) -> None:
        """Add rows, one for each key, with the column `_hash`; each replaces the former row of its key."""
        self._write(sort_by_hash(rows), self._scope.epoch, self._time)

    def lookup(self, wanted: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
        """For each row of `wanted` (its keys and `_hash`), the values of its key's latest row, else nulls.

        Costs the number of wanted rows times the logarithm of the state: runs are searched, not scanned.
        """
        hashes = wanted[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")  # sorted searches are faster
        many = np.bincount(buckets_of(hashes, self._scope.bucket_count), minlength=self._scope.bucket_count)
        ends = np.cumsum(many)
        missing = np.ones(wanted.height, dtype=bool)
        found = _Found(self._gone)
        for entry in reversed(self._entries):
            here = np.array(sorted(self._scope.buckets & entry.sections.keys()), dtype=np.int64)
            searched = order[expand_row_ranges(ends[here] - many[here], ends[here])[1]]
            searched = searched[missing[searched]]
            if len(searched):
                run = self._scope.store.open_rows(entry, self._scope.buckets)
                missing[searched] = False
                missing[self._search(run, wanted, hashes, searched, values, found)] = True
        aligned = found.aligned(wanted.height)
        return pl.DataFrame(dict.fromkeys(values, [None] * wanted.height)) if aligned is None else aligned

    def _search(
        self,
        run: RunRows,
        wanted: pl.DataFrame,
        hashes: np.ndarray,
        missing: np.ndarray,
        values: Sequence[str],
        found: _Found,
    ) -> np.ndarray:
        """Search a run for the `missing` ones of the wanted rows; returns those that are still missing."""
        there, keys = run.hashes, wanted.select(HASH, *self._keys)
        columns = list(dict.fromkeys([*self._keys, *values, *filter(None, [self._gone])]))
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
            rows = run.gather(position[open_], columns)
            same = _same_keys(rows, keys[missing[open_]], self._keys)
            hit = open_[same]
            found.add(missing[hit], rows if same.all() else rows.filter(pl.Series(same)), values)
            unmatched[hit] = False
            open_ = open_[~same]
            position[open_] += 1
        return missing[unmatched]

    def all(self) -> pl.DataFrame | None:
        """The latest row of each key, sorted by hash. Reads all state of the slice."""
        sections = [self._scope.store.section(entry, self._scope.buckets) for entry in self._entries]
        if not sections:
            return None
        return self._without_gone(self._latest(sections))

    def due(self, floor: int, below: int) -> pl.DataFrame | None:
        """The latest rows whose time is from `floor` to before `below`, sorted by hash; None if there are none.

        Scans the times of all runs that may have such rows, and looks up the keys it finds there.
        """
        assert self._time is not None
        between = pl.col(self._time).is_between(floor, below, closed="left")
        sections = [
            self._scope.store.section(entry, self._scope.buckets).filter(between)
            for entry in self._entries
            if entry.may_have_due(floor, below)
        ]
        if not sections:
            return None
        wanted = self._latest([rows.select(HASH, *self._keys) for rows in sections])
        values = [name for name in sections[0].columns if name not in wanted.columns]
        return wanted.hstack(self.lookup(wanted, values)).filter(between) if wanted.height else None

    def empty(self) -> None:
        """Delete all keys of the slice."""
        for entry in list(self._entries):
            self._drop(entry)

    def expire(self, below: int) -> None:
        """Drop the runs in which every row is older than `below`; older rows of other runs can still be found."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, below: int | None = None) -> None:
        """Merge small runs, keeping the latest row of each key unless it is older than `below`.

        Rows that delete their key are left out once no older run has rows of that key.
        """

        def merge(runs: list[pl.DataFrame], whole: bool) -> pl.DataFrame:
            latest = self._latest(runs)
            if whole:  # otherwise an older run may have a row of a deleted key
                latest = self._without_gone(latest)
            if below is None or self._time is None:
                return latest
            return latest.filter(pl.col(self._time) >= below)

        self._compact(merge, self._time)

    def _without_gone(self, latest: pl.DataFrame) -> pl.DataFrame:
        return latest if self._gone is None else latest.filter(~pl.col(self._gone))

    def _latest(self, runs: list[pl.DataFrame]) -> pl.DataFrame:
        """The last row of each key, sorted by hash; older runs come first."""
        rows = pl.concat(runs, rechunk=True)
        hashes = rows[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")  # stable sort recognizes sorted runs and merges them
        hashes = hashes[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1])
        keys = rows.select(HASH, *self._keys)
        if not _same_keys(keys[order[again]], keys[order[again + 1]], self._keys).all():
            # two keys share a 64-bit hash
            return rows[order].unique(subset=self._keys, keep="last", maintain_order=True)
        return rows[np.delete(order, again)]


def _same_keys(left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str]) -> np.ndarray:
    same = np.ones(left.height, dtype=bool)
    for key in keys:
        same &= left[key].eq_missing(right[key]).to_numpy()
    return same


@dataclass
class _Found:
    """The rows that a lookup has found so far, run by run. `gone` is the column that marks a deleted key."""

    gone: str | None
    at: list[np.ndarray] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)

    def add(self, at: np.ndarray, rows: pl.DataFrame, values: Sequence[str]) -> None:
        """Add the rows found for the wanted rows of these numbers."""
        if self.gone is not None:
            present = ~rows[self.gone]
            at, rows = at[present.to_numpy()], rows.filter(present)
        self.at.append(at)
        self.rows.append(rows.select(values))

    def aligned(self, height: int) -> pl.DataFrame | None:
        """A row for each of `height` wanted rows, nulls where none was found; None if nothing was found at all."""
        if not self.rows:
            return None
        rows = pl.concat(self.rows, rechunk=True)
        index = np.full(height, -1, dtype=np.int64)
        index[np.concatenate(self.at)] = np.arange(rows.height)
        where = pl.Series(index).replace(-1, None)
        return rows.select(pl.all().gather(where))
