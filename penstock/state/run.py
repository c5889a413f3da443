"""Runs: immutable, compressed, checksummed Arrow files of state changes.

Receives frames from the collections of a slice; hands them back, whole or by bucket.

The file: ``PSRUN1\\n``, a 4-byte header length, a JSON header, an Arrow IPC file (lz4), a 4-byte CRC-32 of
everything before it. Rows are sorted by `_hash`, so a bucket is a row range, listed in the manifest.

Guarantees: a run is never changed; it becomes visible under its name only whole; a damaged one is detected.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.state.buckets import HASH, buckets_of
from penstock.state.cache import HostCache
from penstock.state.durable import write_filled
from penstock.state.ipc import dense_table, from_file, write_compressed
from penstock.words.errors import ExternalError, InternalError

_MAGIC = b"PSRUN1\n"


@dataclass(frozen=True)
class RunEntry:
    """What a manifest says of a run: its name, its order, and the row range of every bucket still used.

    `upto` is the newest epoch whose changes it holds: entries of a collection are ordered by it.
    `low` and `high` bound the rows' times (or panes), where the collection has them.
    """

    name: str
    upto: int
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
        return RunEntry(self.name, self.upto, self.rows, self.bytes, rest, self.low, self.high)

    def rows_in(self, buckets: frozenset[int]) -> int:
        return sum(count for bucket, (_, count) in self.sections.items() if bucket in buckets)

    def to_json(self) -> list[object]:
        flat = [
            number
            for bucket, (start, count) in sorted(self.sections.items())
            for number in (bucket, start, count)
        ]
        return [self.name, self.upto, self.rows, self.bytes, flat, self.low, self.high]

    @staticmethod
    def from_json(data: list[object]) -> RunEntry:
        name, upto, rows, size, flat, low, high = data
        assert isinstance(flat, list)
        sections = {flat[at]: (flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)}
        return RunEntry(name, upto, rows, size, sections, low, high)  # type: ignore[arg-type]


class RunStore:
    """Reads and writes the runs of one state directory, through a host-local cache and a small memory of open runs."""

    def __init__(
        self, directory: Path, cache: HostCache | None, *, remembered_bytes: int = 256 << 20
    ) -> None:
        self.directory = directory
        self._cache = cache
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._remembered_bytes = remembered_bytes
        self._held_bytes = 0

    def write(
        self, frame: pl.DataFrame, *, collection: str, epoch: int, upto: int, buckets: int, time: str | None
    ) -> RunEntry:
        """Write a frame sorted by `_hash` as a new run."""
        name = f"{collection}/{epoch:012d}-{uuid.uuid4().hex[:12]}.run"
        header = json.dumps(
            {"format": 1, "collection": collection, "epoch": epoch, "rows": frame.height}
        ).encode()
        table, size = dense_table(frame), 0

        def fill(file: IO[bytes]) -> None:
            nonlocal size
            out = _Checked(file)
            out.write(b"".join((_MAGIC, struct.pack(">I", len(header)), header)))
            write_compressed(table, out)
            out.write(struct.pack(">I", out.checksum))
            size = out.written

        try:
            write_filled(self.directory / name, fill)
        except OSError as failure:
            raise unwritable(self.directory / name, failure) from failure
        if self._cache is not None:
            self._cache.put(name, table)  # the next to read it maps it
        else:
            self._remember(name, frame)
        low = high = None
        if time is not None and frame.height:
            low, high = frame[time].min(), frame[time].max()
        sections = sections_of(frame[HASH].to_numpy(), buckets)
        return RunEntry(name, upto, frame.height, size, sections, low, high)  # type: ignore[arg-type]

    def read(self, name: str) -> pl.DataFrame:
        """The whole run, from memory, the host's cache or the directory, in this order."""
        if (held := self._open.get(name)) is not None:
            self._open.move_to_end(name)
            return held
        frame = self._cache.get(name) if self._cache is not None else None
        if frame is None:
            frame = read_run(self.directory / name)
            if self._cache is not None:
                self._cache.put(name, frame)
        self._remember(name, frame)
        return frame

    def warm(self, name: str) -> int:
        """Have a run in the host's cache; the bytes read for that, 0 if it was there."""
        if self._cache is None or self._cache.has(name):
            return 0
        self._cache.put(name, read_run(self.directory / name))
        return (self.directory / name).stat().st_size

    def forget(self, name: str) -> None:
        """Hold a run no longer, here and in the host's cache: no manifest to come names it."""
        self.let_go(name)
        if self._cache is not None:
            self._cache.forget(name)

    def let_go(self, name: str) -> None:
        """Hold a run no longer in this process's memory: its rows are in another run now, or gone."""
        if (held := self._open.pop(name, None)) is not None:
            self._held_bytes -= int(held.estimated_size())

    def section(self, entry: RunEntry, buckets: frozenset[int]) -> pl.DataFrame:
        """The rows of these buckets, in the order of the run."""
        ranges = [entry.sections[bucket] for bucket in sorted(entry.sections) if bucket in buckets]
        whole = self.read(entry.name)
        if sum(count for _, count in ranges) == whole.height:
            return whole
        return (
            pl.concat([whole.slice(start, count) for start, count in _joined(ranges)])
            if ranges
            else whole.clear()
        )

    def _remember(self, name: str, frame: pl.DataFrame) -> None:
        self._open[name] = frame
        self._held_bytes += int(frame.estimated_size())
        while self._held_bytes > self._remembered_bytes and len(self._open) > 1:
            self._held_bytes -= int(self._open.popitem(last=False)[1].estimated_size())


class _Checked:
    """A file that knows how much was written to it, and the CRC-32 of that. An Arrow writer takes it for its sink."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.written = 0
        self.checksum = 0

    def write(self, data: bytes) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        self.written += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Whoever opened the file flushes it."""


def sections_of(hashes: npt.NDArray[np.uint64], buckets: int) -> dict[int, tuple[int, int]]:
    """The row range (start, count) of every bucket that occurs among sorted hashes."""
    present, starts, counts = np.unique(buckets_of(hashes, buckets), return_index=True, return_counts=True)
    return {int(b): (int(s), int(c)) for b, s, c in zip(present, starts, counts, strict=True)}


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, count in ranges:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((start, count))
    return joined


def read_run(path: Path) -> pl.DataFrame:
    """Read and verify a run file."""
    return check_run(path)[1]


def check_run(path: Path) -> tuple[dict[str, object], pl.DataFrame]:
    """The header and the rows of a run file; raises if one byte of it is not as it was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise damaged(path, "the file is missing") from None
    except OSError as failure:
        raise ExternalError(
            "STATE_UNREADABLE", f"the run {path.name} cannot be read", detail=str(failure)
        ) from failure
    if len(content) < len(_MAGIC) + 8 or not content.startswith(_MAGIC):
        raise damaged(path, "it is not a run or was cut short")
    if zlib.crc32(memoryview(content)[:-4]) != struct.unpack(">I", content[-4:])[0]:
        raise damaged(path, "its checksum does not match")
    (length,) = struct.unpack_from(">I", content, len(_MAGIC))
    at = len(_MAGIC) + 4
    header: dict[str, object] = json.loads(content[at : at + length])
    frame = from_file(pa.py_buffer(memoryview(content)[at + length : -4]))
    return header, frame


def damaged(path: Path, why: str) -> InternalError:
    return InternalError(
        "STATE_DAMAGED",
        f"the run {path.parent.name}/{path.name} of the state is damaged",
        detail=f"{why} ({path})",
        hint="Run `penstock state verify DIR` to see which epochs are whole, then "
        "`penstock state rollback DIR` to go back to the last good one; the log is read again from there.",
    )


def unwritable(path: Path, failure: OSError) -> ExternalError:
    """The error of a state write that failed; the epoch is not committed and runs again after a restart."""
    full = failure.errno in (28, 122)
    return ExternalError(
        "STATE_DISK_FULL" if full else "STATE_UNWRITABLE",
        "the state directory has no room left" if full else "the state directory cannot be written",
        detail=f"{os.strerror(failure.errno or 0)}: {path}",
        hint="Nothing is lost: make room or mend the permissions and start again; the epoch is repeated.",
    )
