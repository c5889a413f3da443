"""What an operator may do with its state: `insert`, look up, `flush`, `empty`; on one slice, in one epoch.

Receives the run entries of the last manifest; hands the operator frames, and the commit step the changes.

Invariants:
- Nothing that exists is changed: an epoch adds runs and drops row ranges; the manifest makes it so.
- What is read is what was inserted up to the last epoch, never what this epoch inserts.
- A slice sees and touches its own buckets only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.state.buckets import HASH, buckets_of
from penstock.state.compact import MOST, Held, Turn, due, parts
from penstock.state.found import Found
from penstock.state.order import by_hash, by_hash_and_time
from penstock.state.ranges import members
from penstock.state.run import RunEntry, RunStore
from penstock.state.searched import Searched

Combine = Callable[[pl.DataFrame], pl.DataFrame]
#: what compaction makes of the rows of some runs, older ones first; and whether these are all there are
Merge = Callable[[list[pl.DataFrame], bool], pl.DataFrame]


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

    def _drop(self, entry: RunEntry, buckets: frozenset[int] | None = None) -> None:
        """Have no more of a run, or of these buckets of it."""
        mine = self._scope.buckets if buckets is None else buckets
        rest = entry.without(mine)
        if known := entry not in self._added:
            self._dropped.append((entry.name, mine & entry.sections.keys()))
        else:  # made in this very epoch: no manifest knows it
            at = self._added.index(entry)
            self._added[at : at + 1] = [] if rest is None else [rest]
        at = self._entries.index(entry)
        left = rest if rest is not None and rest.rows_in(self._scope.buckets) else None
        self._entries[at : at + 1] = [] if left is None else [left]
        if rest is None and not known:
            self._scope.store.discard(entry.name)
        elif left is None:
            self._scope.store.let_go(entry.name)

    def _write(self, rows: pl.DataFrame, through: int, time: str | None = None) -> RunEntry | None:
        entry = None
        if rows.height and self._scope.writes:
            entry = self._scope.store.write(
                rows,
                collection=self.name,
                epoch=self._scope.epoch,
                through=through,
                buckets=self._scope.bucket_count,
                time=time,
            )
            self._added.append(entry)
        return entry

    def _compact(
        self, merge: Merge, time: str | None, start: int = 0, floor: int | None = None, at_once: bool = False
    ) -> None:
        """Merge some of the runs from `start` on, if that is worth while: at once, or of large ones a few buckets.
        What is due before `floor` is left out."""
        if not self._scope.writes:
            return
        buckets = self._scope.buckets
        held = [Held(e.through, e.epoch, e.bucket_rows(buckets)) for e in self._entries[start:]]
        for turn in due(held, self._scope.epoch, at_once=at_once):
            self._merge(turn, merge, time, floor)

    def _merge(self, turn: Turn, merge: Merge, time: str | None, floor: int | None) -> None:
        """Merge what runs have of some buckets into a new run."""
        mine = [
            (entry, here)
            for entry in self._entries
            if entry.through <= turn.through and (here := turn.buckets & entry.sections.keys())
        ]
        taken = [(entry, here) for entry, here in mine if entry.through >= turn.since]
        runs = [self._scope.store.passing(entry, buckets) for entry, buckets in taken]
        if time is not None and floor is not None:  # before anything is sorted
            runs = [run.filter(pl.col(time) >= floor) for run in runs]
        # part after part: what is needed meanwhile does not grow with the state
        made = [merge(part, len(taken) == len(mine)) for part in parts(runs)]
        merged = self._write(
            pl.concat([rows for rows in made if rows.height] or made[:1], rechunk=True), turn.through, time
        )
        for entry, buckets in taken:
            self._drop(entry, buckets)
        if merged is not None:
            self._entries.append(merged)
            self._entries.sort(key=lambda entry: entry.through)


class Journal(_Collection):
    """Rows that wait for their time: events not yet in order, panes still open.

    `time` is the column that says when a row is due. Rows leave through `flush`, in time's order of
    epochs; `floor` is how far earlier epochs have flushed, below it every row is gone. With `by_time` the rows
    of a run that share a hash stand in the order of time, not in that of insertion.
    """

    def __init__(
        self, name: str, entries: Sequence[RunEntry], scope: Scope, *, time: str, by_time: bool = False
    ) -> None:
        super().__init__(name, entries, scope)
        self._time = time
        self._by_time = by_time

    def insert(self, rows: pl.DataFrame) -> None:
        """Add rows (they carry `_hash`). Reads nothing."""
        self._write(self._sorted(rows), self._scope.epoch, self._time)

    def _sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not self._by_time:
            return by_hash(rows)
        order = by_hash_and_time(rows, self._time)
        return rows if order is None else rows[order]

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
            if entry.due(floor, below)
        ]

    def runs(self, floor: int, below: int) -> list[pl.DataFrame]:
        """The runs that hold rows due from `floor` to before `below`, whole, without a copy: others are among them."""
        due = [entry for entry in self._entries if entry.due(floor, below)]
        return [self._scope.store.section(entry, self._scope.buckets) for entry in due]

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
            _, at = members(first, end)
            if len(at):
                found.append(run[at].filter(pl.col(self._time) >= floor))
        return pl.concat(found) if found else None

    def counted(self, floor: int) -> dict[int, int]:
        """How many rows are due when, from `floor` on; with those that this epoch has inserted."""
        found: Counter[int] = Counter()
        for entry in {entry.name: entry for entry in (*self._entries, *self._added)}.values():
            times = self._scope.store.times(entry, self._scope.buckets, self._time)
            found.update({time: rows for time, rows in times.items() if time >= floor})
        return found

    def empty(self, below: int) -> None:
        """Drop the runs in which every row is due before `below`."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, floor: int, combine: Combine | None = None, *, parts: int = 1) -> None:
        """Merge small runs, leaving out what has been flushed.

        With several `parts` a merged run spans at most such a part of the time from `floor` to the latest row: for
        rows that are read until they are old, so that old ones soon leave and no merge takes in all there is.
        """

        def merge(runs: list[pl.DataFrame], whole: bool) -> pl.DataFrame:
            rows = self._sorted(pl.concat(runs, rechunk=True))
            return by_hash(combine(rows)) if combine and rows.height else rows

        # what spans a part of the time only is merged at once, or it would soon be too many runs to tell the parts
        start = self._newest(floor, parts) if parts > 1 else 0
        self._compact(merge, self._time, start, floor, at_once=parts > 1)

    def _newest(self, floor: int, parts: int) -> int:
        """Where the newest runs begin that together span at most a part of the time since `floor`."""
        spans = [(e.low, e.high) for e in self._entries if e.low is not None and e.high is not None]
        if len(spans) < len(self._entries) or len(spans) > parts + MOST:
            return 0
        latest = max((high for _, high in spans), default=floor)
        low, high = latest, floor
        for start in range(len(spans), 0, -1):
            low, high = min(low, spans[start - 1][0]), max(high, spans[start - 1][1])
            if high - max(low, floor) > (latest - floor) // parts:
                return start
        return 0


class Table(_Collection):
    """The latest row of every key. With `time`, the column by which rows grow old, old ones can be forgotten.

    With `gone`, a Boolean column, a key can be taken out: by a row in which it is true.
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
        """Put one row a key (they carry `_hash`); it replaces the key's former row."""
        self._write(by_hash(rows), self._scope.epoch, self._time)

    def lookup(self, wanted: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
        """For every row of `wanted` (its keys and `_hash`) the values of its key's latest row, else nulls.

        Costs what is wanted times the logarithm of what is there: runs are searched, not scanned.
        """
        hashes = wanted[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")  # what is searched for in order is found sooner
        many = np.bincount(buckets_of(hashes, self._scope.bucket_count), minlength=self._scope.bucket_count)
        ends = np.cumsum(many)
        missing = np.ones(wanted.height, dtype=bool)
        found = Found(self._gone)
        for entry in reversed(self._entries):
            here = np.array(sorted(self._scope.buckets & entry.sections.keys()), dtype=np.int64)
            asked = order[members(ends[here] - many[here], ends[here])[1]]
            asked = asked[missing[asked]]
            if len(asked):
                run = self._scope.store.searched(entry, self._scope.buckets)
                missing[asked] = False
                missing[self._search(run, wanted, hashes, asked, values, found)] = True
        aligned = found.aligned(wanted.height)
        return pl.DataFrame(dict.fromkeys(values, [None] * wanted.height)) if aligned is None else aligned

    def _search(
        self,
        run: Searched,
        wanted: pl.DataFrame,
        hashes: np.ndarray,
        missing: np.ndarray,
        values: Sequence[str],
        found: Found,
    ) -> np.ndarray:
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
        """The latest row of every key, sorted by hash. Reads the whole slice's state."""
        sections = [self._scope.store.section(entry, self._scope.buckets) for entry in self._entries]
        if not sections:
            return None
        return self._there(self._latest(sections))

    def due(self, floor: int, below: int) -> pl.DataFrame | None:
        """The latest rows whose time is from `floor` to before `below`, sorted by hash. None when there are none.

        Looks through the times of all runs that have such rows, and looks up what it finds there.
        """
        assert self._time is not None
        between = pl.col(self._time).is_between(floor, below, closed="left")
        sections = [
            self._scope.store.section(entry, self._scope.buckets).filter(between)
            for entry in self._entries
            if entry.due(floor, below)
        ]
        if not sections:
            return None
        wanted = self._latest([rows.select(HASH, *self._keys) for rows in sections])
        values = [name for name in sections[0].columns if name not in wanted.columns]
        return wanted.hstack(self.lookup(wanted, values)).filter(between) if wanted.height else None

    def empty(self) -> None:
        """Forget every key of the slice."""
        for entry in list(self._entries):
            self._drop(entry)

    def expire(self, below: int) -> None:
        """Forget what is older than `below`, run by run: rows of a run that has younger ones too may still be found."""
        for entry in [entry for entry in self._entries if entry.high is not None and entry.high < below]:
            self._drop(entry)

    def compact(self, below: int | None = None) -> None:
        """Merge small runs, keeping the latest row of every key, unless it is older than `below`.

        Rows that say their key is gone are left out once no older run is left in which it could be found.
        """

        def merge(runs: list[pl.DataFrame], whole: bool) -> pl.DataFrame:
            latest = self._latest(runs)
            if whole:  # otherwise an older run may have a row of a key that is gone
                latest = self._there(latest)
            if below is None or self._time is None:
                return latest
            return latest.filter(pl.col(self._time) >= below)

        self._compact(merge, self._time)

    def _there(self, latest: pl.DataFrame) -> pl.DataFrame:
        return latest if self._gone is None else latest.filter(~pl.col(self._gone))

    def _latest(self, runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Of runs, older before newer: the last row of every key, sorted by hash."""
        rows = pl.concat(runs, rechunk=True)
        hashes = rows[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")  # it finds the runs, and merges them
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
