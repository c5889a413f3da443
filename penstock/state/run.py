"""Run entries: what a manifest records of a run, and which rows of a run belong to which bucket.

A run is an immutable file of state changes, sorted by `_hash` (see `run_file`). A bucket is a range of hashes, so its
rows are a row range, which the entry has.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.state.buckets import buckets_of
from penstock.state.cache import PART
from penstock.state.run_file import Ranges

#: where a slice needs more than this share of a run, it reads the whole run
LARGEST_PART = 0.75


@dataclass(frozen=True)
class RunEntry:
    """A run in a manifest: its name, its order, and the row range of each bucket that is still used.

    `through` is the newest epoch whose changes it has: entries of a collection are ordered by it.
    `low` and `high` bound the times (or panes) of its rows, where the collection has them.
    """

    name: str
    through: int
    rows: int
    bytes: int
    sections: dict[int, tuple[int, int]] = field(default_factory=dict)
    low: int | None = None
    high: int | None = None

    def without(self, buckets: frozenset[int]) -> RunEntry | None:
        """The entry without these buckets; None when nothing is left."""
        rest = {bucket: rows for bucket, rows in self.sections.items() if bucket not in buckets}
        if not rest:
            return None
        return RunEntry(self.name, self.through, self.rows, self.bytes, rest, self.low, self.high)

    @property
    def epoch(self) -> int:
        """The epoch that wrote it: later than `through` where a merge took several epochs."""
        return epoch_of(self.name)

    def may_have_due(self, floor: int, below: int) -> bool:
        """Whether it may have rows due from `floor` to before `below`."""
        return self.low is not None and self.high is not None and self.low < below and self.high >= floor

    def bucket_rows(self, buckets: frozenset[int]) -> dict[int, int]:
        """The number of rows of each of these buckets."""
        return {bucket: count for bucket, (_, count) in self.sections.items() if bucket in buckets}

    def rows_in(self, buckets: frozenset[int]) -> int:
        return sum(count for bucket, (_, count) in self.sections.items() if bucket in buckets)

    def to_json(self) -> list[object]:
        flat = [
            number
            for bucket, (start, count) in sorted(self.sections.items())
            for number in (bucket, start, count)
        ]
        return [self.name, self.through, self.rows, self.bytes, flat, self.low, self.high]

    @staticmethod
    def from_json(data: list[object]) -> RunEntry:
        name, through, rows, size, flat, low, high = data
        assert isinstance(flat, list)
        sections = {flat[at]: (flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)}
        return RunEntry(name, through, rows, size, sections, low, high)  # type: ignore[arg-type]


@dataclass(frozen=True, order=True)
class Piece:
    """The part of a run that a slice reads: some rows, or all (`ranges` is None)."""

    name: str
    ranges: Ranges | None = None

    @property
    def key(self) -> str:
        """Its name in a cache."""
        if self.ranges is None:
            return self.name
        return (
            f"{self.name}{PART}{zlib.crc32(repr(self.ranges).encode()):08x}-{sum(n for _, n in self.ranges)}"
        )


def piece_of(entry: RunEntry, buckets: frozenset[int]) -> Piece:
    """The part of a run to read from disk for these buckets: their rows or, if they are most of the run, all rows."""
    ranges = ranges_of(entry, buckets)
    some = 0 < sum(count for _, count in ranges) <= LARGEST_PART * entry.rows
    return Piece(entry.name, tuple(ranges) if some else None)


def epoch_of(run: str) -> int:
    """The epoch that wrote a run, by its name."""
    return int(run.rpartition("/")[2].partition("-")[0])


def sections_of(hashes: npt.NDArray[np.uint64], buckets: int) -> dict[int, tuple[int, int]]:
    """The row range (start, count) of each bucket that occurs among sorted hashes."""
    present, starts, counts = np.unique(buckets_of(hashes, buckets), return_index=True, return_counts=True)
    return {int(b): (int(s), int(c)) for b, s, c in zip(present, starts, counts, strict=True)}


def ranges_of(entry: RunEntry, buckets: frozenset[int]) -> list[tuple[int, int]]:
    """The row ranges of some buckets of a run; adjacent ones are joined."""
    joined: list[tuple[int, int]] = []
    for start, count in (entry.sections[bucket] for bucket in sorted(entry.sections) if bucket in buckets):
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((start, count))
    return joined
