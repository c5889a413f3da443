"""Write and read the file of a run: compressed, checksummed, readable whole or by rows.

The file has ``PSRUN2\\n``, a 4-byte header length, a JSON header, an Arrow IPC file (lz4) in batches of some ten
thousand rows whose sizes are in the header, the CRC-32 of each 256 KB so far, the CRC-32 of these, and their number
(4 bytes each). So a reader of some rows reads and checks only the blocks that they are in. A file that starts with
``PSRUN1\\n`` has one CRC-32 of everything before it at its end, and is read whole.

Guarantees: a file becomes visible under its name only whole; all that is read of it is as it was written.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import ExternalError, InternalError, is_transient
from penstock.state.durable import write_filled
from penstock.state.generation import state_gone_error
from penstock.state.ipc import from_batches, from_file, write_compressed

_MAGIC, _WHOLE_ONLY = b"PSRUN2\n", b"PSRUN1\n"
#: rows that are compressed together
BATCH_ROWS = 32_768
#: bytes that share a checksum
BLOCK = 1 << 18
#: (first row, how many), ascending and apart from each other
Ranges = tuple[tuple[int, int], ...]


def write_run(
    path: Path,
    table: pa.Table,
    header: Mapping[str, object],
    *,
    synced: bool = True,
    within: Path | None = None,
) -> int:
    """Write a run file; returns its size. If not `synced`, the caller syncs it. The directory `within` must exist."""
    if within is not None and not within.is_dir():
        raise state_gone_error(within)
    sizes = [batch.num_rows for batch in table.to_batches(max_chunksize=BATCH_ROWS)]
    text = json.dumps({**header, "format": 2, "batches": sizes}).encode()
    size = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal size
        out = _Checked(file)
        out.write(b"".join((_MAGIC, struct.pack(">I", len(text)), text)))
        write_compressed(table, out, BATCH_ROWS)
        sums = out.sums()
        size = out.written + file.write(sums + struct.pack(">II", zlib.crc32(sums), len(sums) // 4))

    try:
        write_filled(path, fill, synced=synced)
    except OSError as failure:
        raise unwritable_error(path, failure) from failure
    return size


class _Checked:
    """A file that counts what is written to it and has the CRC-32 of its blocks: the target of an Arrow writer."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.written = 0
        self._blocks: list[int] = []
        self._block = 0

    def write(self, data: bytes) -> int:
        view, at = memoryview(data).cast("B"), 0
        while at < len(view):
            piece = view[at : at + BLOCK - self.written % BLOCK]
            self._block = zlib.crc32(piece, self._block)
            self.written += len(piece)
            at += len(piece)
            if not self.written % BLOCK:
                self._blocks.append(self._block)
                self._block = 0
        return self._file.write(data)

    def sums(self) -> bytes:
        """The CRC-32 of every block so far, the last of which may be short."""
        blocks = [*self._blocks, self._block] if self.written % BLOCK else self._blocks
        return struct.pack(f">{len(blocks)}I", *blocks)

    def flush(self) -> None:
        """Does nothing: the opener of the file flushes it."""


def read_run(path: Path) -> pl.DataFrame:
    """Read and verify a run file."""
    return check_run(path)[1]


def check_run(path: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    """The header and the rows of a run file; raises if any byte has changed."""
    try:
        content = path.read_bytes()
    except OSError as failure:
        raise _unreadable(path, failure) from None
    if len(content) < len(_MAGIC) + 8 or not content.startswith((_MAGIC, _WHOLE_ONLY)):
        raise damaged_run_error(path, "it is not a run or was cut short")
    view = memoryview(content)
    if content.startswith(_MAGIC):
        end, sums = _sums(path, view[-8:], len(content), lambda size, at: view[at : at + size])
        for number, sum_ in enumerate(sums):
            _check(path, view[number * BLOCK : min(end, (number + 1) * BLOCK)], number, sum_)
    else:
        end = len(content) - 4
        if zlib.crc32(view[:end]) != struct.unpack(">I", view[end:])[0]:
            raise damaged_run_error(path, "its checksum does not match")
    (length,) = struct.unpack_from(">I", content, len(_MAGIC))
    at = len(_MAGIC) + 4
    header: dict[str, Any] = json.loads(content[at : at + length])
    return header, from_file(pa.py_buffer(view[at + length : end])).rechunk()


def _sums(
    path: Path, tail: bytes | memoryview, size: int, read: Callable[[int, int], bytes | memoryview]
) -> tuple[int, tuple[int, ...]]:
    """The end of the blocks of a file, and their checksums, which are checked themselves."""
    check, count = struct.unpack(">II", tail)
    end = size - 8 - 4 * count
    if end < len(_MAGIC) + 4 or count != -(-end // BLOCK):
        raise damaged_run_error(path, "its checksums do not fit its length")
    sums = read(4 * count, end)
    if zlib.crc32(sums) != check:
        raise damaged_run_error(path, "its checksums do not match their own checksum")
    return end, struct.unpack(f">{count}I", sums)


def _check(path: Path, block: bytes | memoryview, number: int, sum_: int) -> None:
    if zlib.crc32(block) != sum_:
        raise damaged_run_error(
            path, f"its checksum does not match: the bytes from {number * BLOCK} on have changed"
        )


def read_rows(path: Path, ranges: Ranges) -> tuple[pl.DataFrame, int]:
    """The rows of some ranges of a run file, in its order, and how many bytes were read for them."""
    try:
        with open(path, "rb", buffering=0) as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                blocks = _Blocks(path, file.fileno())
                return blocks.rows(ranges), blocks.read_bytes
    except OSError as failure:
        raise _unreadable(path, failure) from None
    whole = read_run(path)
    return pl.concat([whole.slice(*rows) for rows in ranges], rechunk=True), path.stat().st_size


class _Blocks:
    """A run file of which only the requested blocks are read and checked."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle
        size = os.fstat(handle).st_size
        if size < len(_MAGIC) + 8:
            raise damaged_run_error(path, "it was cut short")
        tail = os.pread(handle, 8, size - 8)
        self._end, self._sums = _sums(path, tail, size, lambda many, at: os.pread(handle, many, at))
        self._known: dict[int, bytes] = {}
        self.read_bytes = 0

    def rows(self, ranges: Ranges) -> pl.DataFrame:
        (length,) = struct.unpack(">I", self.between(len(_MAGIC), len(_MAGIC) + 4))
        at = len(_MAGIC) + 4
        header = json.loads(self.between(at, at + length))
        source = pa.PythonFile(_ArrowPart(self, at + length, self._end), "r")
        with pa.ipc.open_file(source) as reader:
            return from_batches(reader.schema, list(_cut(reader, header["batches"], ranges))).rechunk()

    def between(self, start: int, end: int) -> bytes:
        """Bytes of the file, from checked blocks."""
        first, last = start // BLOCK, max(start, end - 1) // BLOCK
        joined = b"".join(self._block(number) for number in range(first, last + 1))
        return joined[start - first * BLOCK : end - first * BLOCK]

    def _block(self, number: int) -> bytes:
        if number not in self._known:
            start = number * BLOCK
            data = os.pread(self._handle, min(BLOCK, self._end - start), start)
            _check(self._path, data, number, self._sums[number])
            self.read_bytes += len(data)
            if len(self._known) > 16:
                self._known.clear()
            self._known[number] = data
        return self._known[number]


def _cut(reader: Any, sizes: list[int], ranges: Ranges) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges, batch after batch; consecutive ranges decompress a batch once."""
    ends = np.cumsum(sizes)
    last: tuple[int, pa.RecordBatch] | None = None
    for start, count in ranges:
        number = int(np.searchsorted(ends, start, side="right"))
        while count > 0:
            if last is None or last[0] != number:
                last = number, reader.get_batch(number)
            offset = start - (int(ends[number]) - sizes[number])
            taken = min(count, sizes[number] - offset)
            yield last[1].slice(offset, taken)
            start, count, number = start + taken, count - taken, number + 1


class _ArrowPart:
    """The Arrow file inside a run file, as a file of its own."""

    closed = False

    def __init__(self, blocks: _Blocks, start: int, end: int) -> None:
        self._blocks, self._start, self._end, self._at = blocks, start, end, start

    def read(self, size: int = -1) -> bytes:
        until = self._end if size < 0 else min(self._end, self._at + size)
        data = self._blocks.between(self._at, until) if until > self._at else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (self._start, self._at, self._end)[whence] + offset
        return self.tell()

    def tell(self) -> int:
        return self._at - self._start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: the opener of the file closes it."""


def places_in(wider: Ranges, ranges: Ranges) -> Ranges | None:
    """The positions of the rows of some ranges among those of wider ranges; None if those lack some of them."""
    found, before = [], 0
    rest = list(ranges)
    for start, count in wider:
        while rest and start <= rest[0][0] and sum(rest[0]) <= start + count:
            first, many = rest.pop(0)
            found.append((before + first - start, many))
        before += count
    return None if rest else tuple(found)


def _unreadable(path: Path, failure: OSError) -> InternalError | ExternalError:
    if isinstance(failure, FileNotFoundError):
        return damaged_run_error(path, "the file is missing")
    return ExternalError(
        "STATE_UNREADABLE",
        f"the run {path.name} cannot be read",
        detail=str(failure),
        is_transient=is_transient(failure),
    )


def damaged_run_error(path: Path, why: str) -> InternalError:
    """The error for a run that has changed since it was written."""
    return InternalError(
        "STATE_DAMAGED",
        f"the run {path.parent.name}/{path.name} of the state is damaged",
        detail=f"{why} ({path})",
        hint="Run `penstock state verify DIR` to see which epochs are whole, then "
        "`penstock state rollback DIR` to go back to the last good one; the log is read again from there.",
    )


def unwritable_error(path: Path, failure: OSError) -> ExternalError:
    """The error for a failed write of state; the epoch is not committed and is repeated after a restart."""
    full = failure.errno in (28, 122)
    return ExternalError(
        "STATE_DISK_FULL" if full else "STATE_UNWRITABLE",
        "the state directory has no room left" if full else "the state directory cannot be written",
        detail=f"{os.strerror(failure.errno or 0)}: {path}",
        hint="Nothing is lost: make room or fix the permissions and start again; the epoch is repeated.",
        is_transient=is_transient(failure),
    )
