"""Runs: immutable, compressed, checksummed Arrow files of state changes.

Receives frames from the collections of a slice; hands them back, whole or by bucket.

Rows are sorted by `_hash`, so a bucket is a row range, listed in the manifest. Who needs only some buckets of a run
that is not at hand reads these and no more (`state/run_file.py`).

Guarantees: a run is never changed; it becomes visible under its name only whole; a damaged one is detected.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.errors import ExternalError
from penstock.state.buckets import HASH, buckets_of
from penstock.state.cache import PART, HostCache
from penstock.state.durable import sync_files
from penstock.state.ipc import dense_table
from penstock.state.run_file import Ranges, places_in, read_rows, read_run, unwritable_error, write_run
from penstock.state.searched import Framed, Mapped, Searched

#: a run of which more than this share is needed is read whole
MOST_OF_A_PART = 0.75
#: of how many runs it is remembered how many rows are due when
MOST_COUNTED = 10_000
#: a run of so many bytes on disk is searched where it is mapped, instead of as a frame
LARGE = 1 << 20


@dataclass(frozen=True)
class RunEntry:
    """What a manifest says of a run: its name, its order, and the row range of every bucket still used.

    `through` is the newest epoch whose changes it holds: entries of a collection are ordered by it.
    `low` and `high` bound the rows' times (or panes), where the collection has them.
    """

    name: str
    through: int
    rows: int
    bytes: int
    sections: dict[int, tuple[int, int]] = field(default_factory=dict)
    low: int | None = None
    high: int | None = None

    def without(self, buckets: frozenset[int]) -> RunEntry | None:
        """The entry with these buckets dropped; None when nothing is left."""
        rest = {bucket: rows for bucket, rows in self.sections.items() if bucket not in buckets}
        if not rest:
            return None
        return RunEntry(self.name, self.through, self.rows, self.bytes, rest, self.low, self.high)

    @property
    def epoch(self) -> int:
        """The epoch that wrote it: later than `through` where old changes were merged in turns."""
        return epoch_of(self.name)

    def due(self, floor: int, below: int) -> bool:
        """Whether it may have rows due from `floor` to before `below`."""
        return self.low is not None and self.high is not None and self.low < below and self.high >= floor

    def bucket_rows(self, buckets: frozenset[int]) -> dict[int, int]:
        """The rows of every one of these buckets that it holds."""
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
    """What a slice reads of a run: some rows, or all (`ranges` is None)."""

    name: str
    ranges: Ranges | None = None

    @property
    def key(self) -> str:
        """What a cache keeps it under."""
        if self.ranges is None:
            return self.name
        return (
            f"{self.name}{PART}{zlib.crc32(repr(self.ranges).encode()):08x}-{sum(n for _, n in self.ranges)}"
        )


def piece_of(entry: RunEntry, buckets: frozenset[int]) -> Piece:
    """What is read of a run for these buckets, where it is not at hand: their rows or, if they are most of it, all."""
    ranges = ranges_of(entry, buckets)
    some = 0 < sum(count for _, count in ranges) <= MOST_OF_A_PART * entry.rows
    return Piece(entry.name, tuple(ranges) if some else None)


class RunStore:
    """Reads and writes the runs of one state directory, through a host-local cache and a small memory of open runs.

    With a `memory`, a directory of the host's memory, new runs are written there while it has room; the driver brings
    them into the state directory when it makes a manifest durable.
    """

    def __init__(
        self,
        directory: Path,
        cache: HostCache | None,
        *,
        remembered_bytes: int = 256 << 20,
        memory: Path | None = None,
    ) -> None:
        self.directory = directory
        self._memory = memory
        self._cache = cache
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()
        #: the parts of each run that were read, by their keys: they are open, in the host's cache, or gone again
        self._parts: dict[str, dict[str, Ranges]] = {}
        #: large runs, and large parts, in the host's cache: that they are mapped takes no memory
        self._mapped: dict[str, Mapped] = {}
        self._remembered_bytes = remembered_bytes
        self._held_bytes = 0
        #: runs that are yet to be brought to disk, where that is done for several at a time
        self._unsynced: list[Path] | None = None
        #: how many rows of what was read of a run are due when
        self._times: OrderedDict[str, dict[int, int]] = OrderedDict()

    @contextlib.contextmanager
    def synced_together(self) -> Iterator[None]:
        """Have the runs that are written meanwhile on disk when it ends: to wait for one after another takes longer."""
        paths: list[Path] = []
        self._unsynced = paths
        try:
            yield
        finally:
            self._unsynced = None
        try:
            sync_files(paths)
        except OSError as failure:
            raise unwritable_error(self.directory, failure) from failure

    def write(
        self,
        frame: pl.DataFrame,
        *,
        collection: str,
        epoch: int,
        through: int,
        buckets: int,
        time: str | None,
    ) -> RunEntry:
        """Write a frame sorted by `_hash` as a new run."""
        name = f"{collection}/{epoch:012d}-{uuid.uuid4().hex[:12]}.run"
        table = dense_table(frame.rechunk())
        header = {"collection": collection, "epoch": epoch, "rows": frame.height}
        size = self._written(name, table, header)
        if self._cache is not None:
            self._cache.put(name, table)  # the next to read it maps it
        else:
            self._remember(name, frame)
        low = high = None
        if time is not None and frame.height:
            low, high = frame[time].min(), frame[time].max()
        sections = sections_of(frame[HASH].to_numpy(), buckets)
        return RunEntry(name, through, frame.height, size, sections, low, high)  # type: ignore[arg-type]

    def read(self, name: str) -> pl.DataFrame:
        """The whole run, from memory, the host's cache or the directory, in this order."""
        if (held := self._open.get(name)) is not None:
            self._open.move_to_end(name)
            return held
        frame = self._cache.get(name) if self._cache is not None else None
        if frame is None:
            frame = read_run(self._path(name))
            if self._cache is not None:
                self._cache.put(name, frame)
        self._remember(name, frame)
        return frame

    def _written(self, name: str, table: pa.Table, header: Mapping[str, object]) -> int:
        if self._memory is not None:
            with contextlib.suppress(ExternalError):  # no room: then on disk at once
                return write_run(self._memory / name, table, header)
        path, later = self.directory / name, self._unsynced
        size = write_run(path, table, header, synced=later is None, within=self.directory.parent)
        if later is not None:
            later.append(path)
        return size

    def _path(self, name: str) -> Path:
        """Where a run lies."""
        if self._memory is not None and (path := self._memory / name).exists():
            return path
        return self.directory / name

    def warm(self, piece: Piece) -> int:
        """Have a piece of a run in the host's cache; the bytes read for that, 0 if it was there."""
        if self._cache is None:
            return 0
        self._note(piece)
        if self._cache.has(piece.name) or self._cache.has(piece.key):
            return 0
        if piece.ranges is not None:
            return self._read_part(piece)[1]
        path = self._path(piece.name)
        self._cache.put(piece.name, read_run(path))
        return path.stat().st_size

    def forget(self, names: Collection[str]) -> None:
        """Hold runs no longer, here and in the host's cache: no manifest to come names them."""
        for name in names:
            self.let_go(name)
        if self._cache is not None:
            self._cache.forget(*names)

    def discard(self, name: str) -> None:
        """Have a run no longer that no manifest names nor will: one that was merged in the epoch that made it."""
        self.forget((name,))
        with contextlib.suppress(OSError):  # what is left is found by the next recycling
            self._path(name).unlink()

    def let_go(self, name: str) -> None:
        """Hold a run no longer in this process's memory: its rows are in another run now, or gone."""
        for key in (name, *self._parts.pop(name, ())):
            self._mapped.pop(key, None)
            if (held := self._open.pop(key, None)) is not None:
                self._held_bytes -= int(held.estimated_size())

    def section(self, entry: RunEntry, buckets: frozenset[int]) -> pl.DataFrame:
        """The rows of these buckets, in the order of the run."""
        piece = piece_of(entry, buckets)
        if piece.ranges is not None and not self._at_hand(entry.name):
            return self._part(piece)
        ranges = ranges_of(entry, buckets)
        whole = self.read(entry.name)
        if sum(count for _, count in ranges) == whole.height:
            return whole
        return pl.concat([whole.slice(*rows) for rows in ranges]) if ranges else whole.clear()

    def times(self, entry: RunEntry, buckets: frozenset[int], column: str) -> dict[int, int]:
        """How many rows of these buckets have which time; counted once, since runs never change."""
        key = Piece(entry.name, tuple(ranges_of(entry, buckets))).key
        if (known := self._times.get(key)) is None:
            counts = self.passing(entry, buckets)[column].value_counts()
            known = self._times[key] = dict(counts.iter_rows())
            if len(self._times) > MOST_COUNTED:
                self._times.popitem(last=False)
        self._times.move_to_end(key)
        return known

    def passing(self, entry: RunEntry, buckets: frozenset[int]) -> pl.DataFrame:
        """As `section`, for who will not ask for these rows again: of a large run they are not remembered."""
        if (large := self._large(entry, buckets)) is None:
            return self.section(entry, buckets)
        mapped, places = large
        return mapped.rows(places)

    def searched(self, entry: RunEntry, buckets: frozenset[int]) -> Searched:
        """The rows of these buckets to be searched; there may be those of others among them."""
        large = self._large(entry, buckets)
        return Framed(self.section(entry, buckets)) if large is None else large[0]

    def _large(self, entry: RunEntry, buckets: frozenset[int]) -> tuple[Mapped, Ranges] | None:
        """A large run, or a part of one, and where in it the rows of these buckets lie; None where there is a frame of
        it, or no room in the host's cache."""
        ranges = tuple(ranges_of(entry, buckets))
        if self._cache is None or entry.bytes < LARGE or entry.name in self._open or not ranges:
            return None
        found = self._places(entry.name, ranges)
        if found is None and self._brought(piece_of(entry, buckets)):
            found = self._places(entry.name, ranges)
        return found

    def _places(self, name: str, ranges: Ranges) -> tuple[Mapped, Ranges] | None:
        if (whole := self._map(name)) is not None:
            return whole, ranges
        for key, wider in self._parts.get(name, {}).items():
            places = None if key in self._open else places_in(wider, ranges)
            if places is not None and (part := self._map(key)) is not None:
                return part, places
        return None

    def _brought(self, piece: Piece) -> bool:
        """Whether a piece that was not at hand is in the host's cache now: where that has no room, it is remembered
        here, not to be read once more."""
        assert self._cache is not None
        if self._cache.has(piece.name) or self._cache.has(piece.key):
            return False
        if piece.ranges is None:
            frame = read_run(self._path(piece.name))
            self._cache.put(piece.name, frame)
        else:
            parts = self._parts.get(piece.name, {})
            if any(key in self._open and places_in(parts[key], piece.ranges) for key in parts):
                return False
            frame, _ = self._read_part(piece)
            self._note(piece)
        if self._cache.has(piece.key):
            return True
        self._remember(piece.key, frame)
        return False

    def _map(self, key: str) -> Mapped | None:
        assert self._cache is not None
        if (held := self._mapped.get(key)) is not None:
            return held
        table = self._cache.table(key)
        if table is None or any(column.num_chunks != 1 for column in table.itercolumns()):
            return None
        # one that the cache has no more must not stay in memory because it was searched here once
        self._mapped = {name: mapped for name, mapped in self._mapped.items() if self._cache.has(name)}
        self._mapped[key] = Mapped(table)
        return self._mapped[key]

    def _at_hand(self, name: str) -> bool:
        return name in self._open or (self._cache is not None and self._cache.has(name))

    def _part(self, piece: Piece) -> pl.DataFrame:
        if (held := self._open.get(piece.key)) is not None:
            self._open.move_to_end(piece.key)
            return held
        frame = self._cache.get(piece.key) if self._cache is not None else None
        if frame is None:
            frame = self._narrowed(piece)
        if frame is None:
            frame = self._read_part(piece)[0]
        self._note(piece)
        self._remember(piece.key, frame)
        return frame

    def _note(self, piece: Piece) -> None:
        if piece.ranges is not None:
            self._parts.setdefault(piece.name, {})[piece.key] = piece.ranges

    def _narrowed(self, piece: Piece) -> pl.DataFrame | None:
        """The rows out of a larger part of the run that is at hand: buckets whose rows are in another run by now leave
        less and less of it."""
        assert piece.ranges is not None
        for key, wider in self._parts.get(piece.name, {}).items():
            if (places := places_in(wider, piece.ranges)) is None:
                continue
            frame = self._open.get(key)
            if frame is None and self._cache is not None:
                frame = self._cache.get(key)
            if frame is not None:
                return pl.concat([frame.slice(*rows) for rows in places])
        return None

    def _read_part(self, piece: Piece) -> tuple[pl.DataFrame, int]:
        assert piece.ranges is not None
        frame, size = read_rows(self._path(piece.name), piece.ranges)
        if self._cache is not None:
            self._cache.put(piece.key, frame)
        return frame, size

    def _remember(self, name: str, frame: pl.DataFrame) -> None:
        self._open[name] = frame
        self._held_bytes += int(frame.estimated_size())
        while self._held_bytes > self._remembered_bytes and len(self._open) > 1:
            self._held_bytes -= int(self._open.popitem(last=False)[1].estimated_size())


def epoch_of(run: str) -> int:
    """The epoch that wrote a run, by its name."""
    return int(run.rpartition("/")[2].partition("-")[0])


def sections_of(hashes: npt.NDArray[np.uint64], buckets: int) -> dict[int, tuple[int, int]]:
    """The row range (start, count) of every bucket that occurs among sorted hashes."""
    present, starts, counts = np.unique(buckets_of(hashes, buckets), return_index=True, return_counts=True)
    return {int(b): (int(s), int(c)) for b, s, c in zip(present, starts, counts, strict=True)}


def ranges_of(entry: RunEntry, buckets: frozenset[int]) -> list[tuple[int, int]]:
    """The row ranges of some buckets of a run, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for start, count in (entry.sections[bucket] for bucket in sorted(entry.sections) if bucket in buckets):
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((start, count))
    return joined
