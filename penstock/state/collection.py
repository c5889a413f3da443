"""Collections: the state of an operator on one slice, in one epoch. This module has what journals and tables share.

A collection reads the runs that the last manifest names, and collects what the epoch changes for the next manifest.

Guarantees:
- No run is changed: an epoch adds runs and drops row ranges, and the next manifest puts that into effect.
- A read returns what was inserted up to the last epoch, never what this epoch inserts.
- A slice reads and changes its own buckets only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.state.compact import Merge, RunSize, plan_merges, split_runs
from penstock.state.run import RunEntry
from penstock.state.run_store import RunStore

#: merges the rows of some runs, older runs first; the flag says whether no other run has rows of their buckets
MergeRows = Callable[[list[pl.DataFrame], bool], pl.DataFrame]


@dataclass(frozen=True)
class Changes:
    """What one slice did to one collection in one epoch."""

    added: tuple[RunEntry, ...] = ()
    dropped: tuple[tuple[str, frozenset[int]], ...] = ()


@dataclass
class Scope:
    """The slice and epoch that a collection works in. If not `writes`, its changes are left out of the manifest."""

    store: RunStore
    epoch: int
    buckets: frozenset[int]
    bucket_count: int
    writes: bool = True

    def shared(self) -> Scope:
        """The scope of a collection that every slice reads whole; the owner of the first bucket writes it."""
        return Scope(
            self.store, self.epoch, frozenset(range(self.bucket_count)), self.bucket_count, 0 in self.buckets
        )


class Collection:
    """Runs of one slice: those of the last manifest, and those that this epoch adds or drops."""

    def __init__(self, name: str, entries: Sequence[RunEntry], scope: Scope) -> None:
        self.name = name
        self._scope = scope
        self._entries = [entry for entry in entries if entry.rows_in(scope.buckets)]
        self._added: list[RunEntry] = []
        self._dropped: list[tuple[str, frozenset[int]]] = []

    def changes(self) -> Changes:
        """The changes for the next manifest."""
        return Changes(tuple(self._added), tuple(self._dropped)) if self._scope.writes else Changes()

    def _drop(self, entry: RunEntry, buckets: frozenset[int] | None = None) -> None:
        """Drop the slice's rows of a run, or only those of some buckets."""
        mine = self._scope.buckets if buckets is None else buckets
        rest = entry.without(mine)
        if in_manifest := entry not in self._added:
            self._dropped.append((entry.name, mine & entry.sections.keys()))
        else:  # written in this epoch: no manifest names it
            at = self._added.index(entry)
            self._added[at : at + 1] = [] if rest is None else [rest]
        at = self._entries.index(entry)
        left = rest if rest is not None and rest.rows_in(self._scope.buckets) else None
        self._entries[at : at + 1] = [] if left is None else [left]
        if rest is None and not in_manifest:
            self._scope.store.discard(entry.name)
        elif left is None:
            self._scope.store.release(entry.name)

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
        self,
        merge: MergeRows,
        time: str | None,
        start: int = 0,
        floor: int | None = None,
        at_once: bool = False,
    ) -> None:
        """Merge some of the runs from `start` on where that pays: whole, or of large runs a few buckets an epoch. Rows
        due before `floor` are left out."""
        if not self._scope.writes:
            return
        buckets = self._scope.buckets
        sizes = [RunSize(e.through, e.epoch, e.bucket_rows(buckets)) for e in self._entries[start:]]
        for plan in plan_merges(sizes, self._scope.epoch, at_once=at_once):
            self._merge(plan, merge, time, floor)

    def _merge(self, plan: Merge, merge: MergeRows, time: str | None, floor: int | None) -> None:
        """Merge the rows that runs have of some buckets into a new run."""
        mine = [
            (entry, here)
            for entry in self._entries
            if entry.through <= plan.through and (here := plan.buckets & entry.sections.keys())
        ]
        taken = [(entry, here) for entry, here in mine if entry.through >= plan.since]
        runs = [self._scope.store.read_once(entry, buckets) for entry, buckets in taken]
        if time is not None and floor is not None:  # before anything is sorted
            runs = [run.filter(pl.col(time) >= floor) for run in runs]
        # part after part, so that the memory this takes does not grow with the state
        merged_parts = [merge(part, len(taken) == len(mine)) for part in split_runs(runs)]
        rows = pl.concat([part for part in merged_parts if part.height] or merged_parts[:1], rechunk=True)
        merged = self._write(rows, plan.through, time)
        for entry, buckets in taken:
            self._drop(entry, buckets)
        if merged is not None:
            self._entries.append(merged)
            self._entries.sort(key=lambda entry: entry.through)
