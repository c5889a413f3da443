"""Read and write the runs of one state directory, through caches.

A read looks in this process's memory, then in the cache of the host, then on disk. A slice that needs some buckets of a
run that is in neither reads the rows of these buckets and no more.

Guarantees: a run never changes; it becomes visible under its name only whole; a damaged one is detected.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa

from penstock.errors import ExternalError
from penstock.state.buckets import HASH
from penstock.state.cache import HostCache
from penstock.state.durable import sync_files
from penstock.state.ipc import dense_table
from penstock.state.run import Piece, RunEntry, piece_of, ranges_of, sections_of
from penstock.state.run_file import Ranges, places_in, read_rows, read_run, unwritable_error, write_run
from penstock.state.run_rows import FrameRows, MappedRows, RunRows

#: the number of runs whose rows by time are remembered, if nobody releases them
MAX_TIME_COUNTS = 10_000
#: the number of runs of which it is remembered which parts were read
MAX_PARTED = 10_000
#: a run of at least this many bytes on disk is searched where it is mapped, instead of as a frame
LARGE = 1 << 20


class RunStore:
    """The runs of one state directory.

    With `memory`, a directory in the memory of the host, new runs are written there while it has room. The driver
    copies them to the state directory when it makes a manifest durable. Frames of up to `open_limit_bytes` stay open.
    """

    def __init__(
        self,
        directory: Path,
        cache: HostCache | None,
        *,
        open_limit_bytes: int = 256 << 20,
        memory: Path | None = None,
    ) -> None:
        self.directory = directory
        self._memory = memory
        self._cache = cache
        #: frames of runs and of parts, by name or key
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()
        #: by run, the parts that were read, by key: they are open, in the host's cache, or evicted
        self._parts: dict[str, dict[str, Ranges]] = {}
        #: large runs and parts in the host's cache; that they are mapped takes no memory
        self._mapped: dict[str, MappedRows] = {}
        self._open_limit_bytes = open_limit_bytes
        self._open_bytes = 0
        #: runs to be synced by `sync_together`; None outside of it
        self._unsynced: list[Path] | None = None
        #: by run and piece, the number of rows by time
        self._times: OrderedDict[str, dict[str, dict[int, int]]] = OrderedDict()

    @contextlib.contextmanager
    def sync_together(self) -> Iterator[None]:
        """Sync the runs that are written in the block when it ends, in parallel, instead of one after the other."""
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
        size = self._write_file(name, table, header)
        if self._cache is not None:
            self._cache.put(name, table)  # the next reader maps it
        else:
            self._keep_open(name, frame)
        low = high = None
        if time is not None and frame.height:
            low, high = frame[time].min(), frame[time].max()
        sections = sections_of(frame[HASH].to_numpy(), buckets)
        return RunEntry(name, through, frame.height, size, sections, low, high)  # type: ignore[arg-type]

    def read(self, name: str) -> pl.DataFrame:
        """The whole run, from memory, the host's cache or the directory, in this order."""
        frame = self._find_open(name)
        if frame is not None:
            return frame
        frame = self._cache.get(name) if self._cache is not None else None
        if frame is None:
            frame = read_run(self._path(name))
            if self._cache is not None:
                self._cache.put(name, frame)
        self._keep_open(name, frame)
        return frame

    def _write_file(self, name: str, table: pa.Table, header: Mapping[str, object]) -> int:
        if self._memory is not None:
            with contextlib.suppress(ExternalError):  # no room: write to disk right away
                return write_run(self._memory / name, table, header)
        path, later = self.directory / name, self._unsynced
        size = write_run(path, table, header, synced=later is None, within=self.directory.parent)
        if later is not None:
            later.append(path)
        return size

    def _path(self, name: str) -> Path:
        """The file of a run."""
        if self._memory is not None and (path := self._memory / name).exists():
            return path
        return self.directory / name

    def warm(self, piece: Piece) -> int:
        """Load a piece of a run into the host's cache; returns the bytes read for that, 0 if it was there."""
        if self._cache is None:
            return 0
        self._note_part(piece)
        if self._cache.has(piece.name) or self._cache.has(piece.key):
            return 0
        if piece.ranges is not None:
            return self._read_part(piece)[1]
        path = self._path(piece.name)
        self._cache.put(piece.name, read_run(path))
        return path.stat().st_size

    def forget(self, names: Collection[str]) -> None:
        """Remove runs from this process's memory and the host's cache: no later manifest names them."""
        for name in names:
            self.release(name)
        if self._cache is not None:
            self._cache.forget(*names)

    def discard(self, name: str) -> None:
        """Remove a run that no manifest will ever name: one that was merged in the epoch that wrote it."""
        self.forget((name,))
        with contextlib.suppress(OSError):  # the next removal of old state takes what is left
            self._path(name).unlink()

    def release(self, name: str) -> None:
        """Remove a run from this process's memory: its rows are in another run now, or dropped."""
        self._times.pop(name, None)
        for key in (name, *self._parts.pop(name, ())):
            self._mapped.pop(key, None)
            if (frame := self._open.pop(key, None)) is not None:
                self._open_bytes -= int(frame.estimated_size())

    def section(self, entry: RunEntry, buckets: frozenset[int]) -> pl.DataFrame:
        """The rows of these buckets, in the order of the run."""
        piece = piece_of(entry, buckets)
        if piece.ranges is not None and not self._is_cached(entry.name):
            return self._open_part(piece)
        ranges = ranges_of(entry, buckets)
        whole = self.read(entry.name)
        if sum(count for _, count in ranges) == whole.height:
            return whole
        return pl.concat([whole.slice(*rows) for rows in ranges]) if ranges else whole.clear()

    def count_times(self, entry: RunEntry, buckets: frozenset[int], column: str) -> dict[int, int]:
        """The number of rows of these buckets by time; counted once, since runs never change."""
        key = Piece(entry.name, tuple(ranges_of(entry, buckets))).key
        if (times := self._times.get(entry.name, {}).get(key)) is None:
            counts = self.read_once(entry, buckets)[column].value_counts()
            times = self._times.setdefault(entry.name, {})[key] = dict(counts.iter_rows())
            if len(self._times) > MAX_TIME_COUNTS:
                self._times.popitem(last=False)
        self._times.move_to_end(entry.name)
        return times

    def read_once(self, entry: RunEntry, buckets: frozenset[int]) -> pl.DataFrame:
        """As `section`, for rows that are not needed again: those of a large run are not kept in memory."""
        if (large := self._map_large(entry, buckets)) is None:
            return self.section(entry, buckets)
        mapped, places = large
        return mapped.rows(places)

    def open_rows(self, entry: RunEntry, buckets: frozenset[int]) -> RunRows:
        """The rows of these buckets, to be searched; rows of other buckets may be among them."""
        large = self._map_large(entry, buckets)
        return FrameRows(self.section(entry, buckets)) if large is None else large[0]

    def _map_large(self, entry: RunEntry, buckets: frozenset[int]) -> tuple[MappedRows, Ranges] | None:
        """Map a large run or a part of it; returns it and the positions of these buckets' rows in it. None if there is
        a frame of it, or no room in the host's cache."""
        ranges = tuple(ranges_of(entry, buckets))
        if self._cache is None or entry.bytes < LARGE or entry.name in self._open or not ranges:
            return None
        mapped = self._find_mapped(entry.name, ranges)
        if mapped is None and self._load_to_cache(piece_of(entry, buckets)):
            mapped = self._find_mapped(entry.name, ranges)
        return mapped

    def _find_mapped(self, name: str, ranges: Ranges) -> tuple[MappedRows, Ranges] | None:
        if (whole := self._map(name)) is not None:
            return whole, ranges
        for key, wider in self._parts.get(name, {}).items():
            places = None if key in self._open else places_in(wider, ranges)
            if places is not None and (part := self._map(key)) is not None:
                return part, places
        return None

    def _load_to_cache(self, piece: Piece) -> bool:
        """Read a piece that is cached nowhere into the host's cache; returns whether it is there now. If that has no
        room, its frame stays open here, so that it is not read again."""
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
            self._note_part(piece)
        if self._cache.has(piece.key):
            return True
        self._keep_open(piece.key, frame)
        return False

    def _map(self, key: str) -> MappedRows | None:
        assert self._cache is not None
        if (mapped := self._mapped.get(key)) is not None:
            self._cache.note_use(key)
            return mapped
        table = self._cache.table(key)
        if table is None or any(column.num_chunks != 1 for column in table.itercolumns()):
            return None
        # a run that the cache has removed must not stay in memory because it was searched here once
        self._mapped = {name: rows for name, rows in self._mapped.items() if self._cache.has(name)}
        self._mapped[key] = MappedRows(table)
        return self._mapped[key]

    def _is_cached(self, name: str) -> bool:
        return name in self._open or (self._cache is not None and self._cache.has(name))

    def _open_part(self, piece: Piece) -> pl.DataFrame:
        frame = self._find_open(piece.key)
        if frame is not None:
            return frame
        frame = self._cache.get(piece.key) if self._cache is not None else None
        if frame is None:
            frame = self._cut_from_wider_part(piece)
        if frame is None:
            frame = self._read_part(piece)[0]
        self._note_part(piece)
        self._keep_open(piece.key, frame)
        return frame

    def _note_part(self, piece: Piece) -> None:
        if piece.ranges is None:
            return
        if len(self._parts) >= MAX_PARTED and piece.name not in self._parts:
            # of buckets that have migrated nobody here learns that their runs were merged
            self._parts.pop(next(iter(self._parts)))
        self._parts.setdefault(piece.name, {})[piece.key] = piece.ranges

    def _cut_from_wider_part(self, piece: Piece) -> pl.DataFrame | None:
        """Take the rows from a wider part of the run that is open or cached. As buckets of a run are merged into
        others, slices need less and less of it."""
        assert piece.ranges is not None
        for key, wider in self._parts.get(piece.name, {}).items():
            if (places := places_in(wider, piece.ranges)) is None:
                continue
            frame = self._find_open(key)
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

    def _find_open(self, key: str) -> pl.DataFrame | None:
        """The frame of a run or a part that is open in this process."""
        frame = self._open.get(key)
        if frame is not None:
            self._open.move_to_end(key)
            if self._cache is not None:
                self._cache.note_use(key)
        return frame

    def _keep_open(self, name: str, frame: pl.DataFrame) -> None:
        self._open[name] = frame
        self._open_bytes += int(frame.estimated_size())
        while self._open_bytes > self._open_limit_bytes and len(self._open) > 1:
            self._open_bytes -= int(self._open.popitem(last=False)[1].estimated_size())
