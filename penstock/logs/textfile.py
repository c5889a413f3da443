"""Inspects a text file that grows: its identity, where its lines start and end, and its path after a rename.

Receives a path and what was known of the file; returns a `TextFile`, and reads only what is new in it.

Invariants:
- The id of a text file is its inode and the checksum of its first whole line, so a rename keeps it.
- A file whose first bytes have changed is inspected from its start; if its id is still the old one, it is `rewritten`.
- A boundary is the position after a newline. Reads go in windows, so a line of any length is found.
- Nothing here moves a descriptor's own position.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ExternalError, is_transient

HEAD_BYTES = 4096
"""How much of a first line goes into a file's identity."""

PREFIX_BYTES = 64 << 10
"""How many of a file's first bytes distinguish two files with the same first line."""

_WINDOW = 64 << 10
_WIDEST = 8 << 20


def line_crc(head: bytes) -> int:
    """The checksum of a first line, without its newline, of at most `HEAD_BYTES`."""
    newline = head.find(b"\n", 0, HEAD_BYTES)
    return zlib.crc32(head[: newline if newline >= 0 else HEAD_BYTES])


def pread(fd: int, size: int, at: int) -> bytes:
    """Read `size` bytes from position `at`; fewer only where the file ends."""
    data = os.pread(fd, size, at)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size and (data := os.pread(fd, size - got, at + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def last_boundary(fd: int, low: int, high: int) -> int:
    """The greatest boundary in (low, high]; `low` when there is none."""
    width = _WINDOW
    while high > low:
        at = max(low, high - width)
        newline = pread(fd, high - at, at).rfind(b"\n")
        if newline >= 0:
            return at + newline + 1
        high, width = at, min(width * 2, _WIDEST)
    return low


def next_boundary(fd: int, low: int, high: int) -> int:
    """The least boundary in (low, high]; `high` when there is none."""
    width = _WINDOW
    while low < high:
        newline = (data := pread(fd, min(width, high - low), low)).find(b"\n")
        if newline >= 0:
            return low + newline + 1
        if not data:
            break
        low, width = low + len(data), min(width * 2, _WIDEST)
    return high


def boundary_near(fd: int, start: int, size: int, end: int) -> int:
    """Where a piece of about `size` bytes from `start` ends: at most `size` unless one record is longer."""
    target = start + max(size, 1)
    if target >= end:
        return end
    found = last_boundary(fd, start, target)
    return found if found > start else next_boundary(fd, target, end)


Inode = tuple[int, int]
"""Device and inode number."""


@dataclass
class TextFile:
    """A text file as last seen: under a `name` that may be a link to `path`.

    `id` is None until its first line is whole.
    """

    inode: Inode
    name: str
    path: str
    size: int
    mtime_ns: int
    head: bytes
    id: str | None
    latest: int
    prefix_bytes: int
    prefix_crc: int
    rewritten: bool
    #: whether it was longer before
    shrunk: bool


def inspect_file(path: str, known: TextFile | None, finished: bool) -> TextFile:
    """Inspect a file that is new or has changed; `finished` makes its last line whole as it stands."""
    fd = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        size = status.st_size
        head = pread(fd, HEAD_BYTES, 0)
        starts_alike = known is not None and head.startswith(known.head)
        before = known if known is not None and starts_alike and size >= known.size else None
        scanned = before.size if before else 0
        latest = last_boundary(fd, scanned, size)
        if latest == scanned:
            latest = before.latest if before else 0
        if finished:
            latest = size
        prefix_bytes, prefix_crc = (before.prefix_bytes, before.prefix_crc) if before else (0, 0)
        if (end := min(latest, PREFIX_BYTES)) > prefix_bytes:
            prefix_crc = zlib.crc32(pread(fd, end - prefix_bytes, prefix_bytes), prefix_crc)
            prefix_bytes = end
    finally:
        os.close(fd)
    id = text_id(status.st_ino, head) if latest else None
    return TextFile(
        inode=(status.st_dev, status.st_ino),
        name=path,
        path=os.path.realpath(path),
        size=size,
        mtime_ns=status.st_mtime_ns,
        head=head,
        id=id,
        latest=latest,
        prefix_bytes=prefix_bytes,
        prefix_crc=prefix_crc,
        rewritten=known is not None and id == known.id and (known.rewritten or not starts_alike),
        shrunk=known is not None and id == known.id and (known.shrunk or size < known.size),
    )


def text_id(inode: int, head: bytes) -> str:
    """The partition id of a text file that starts like this."""
    return f"{inode:x}-{line_crc(head):08x}"


def parse_inode(id: str) -> int | None:
    """Parse the inode number in a text file's id; None if the id is not of that form."""
    try:
        return int(id.split("-")[0], 16)
    except ValueError:
        return None


def open_text(path: str, id: str) -> int | None:
    """Open the file at `path` if it is the one with this id."""
    try:
        if os.stat(path).st_ino != parse_inode(id):
            return None
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable_error(path, error) from error
    if text_id(os.fstat(fd).st_ino, pread(fd, HEAD_BYTES, 0)) == id:
        return fd
    os.close(fd)
    return None


def find_path(inode: int | None, directories: Iterable[str]) -> str | None:
    """Find the path of the text file with an inode number in these directories. An archive with that number is another
    file: its inode was used again."""
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.inode() == inode and not entry.is_symlink() and not entry.name.endswith(".gz"):
                        return entry.path
        except FileNotFoundError:
            continue
    return None


def stat_regular_file(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None if it is gone or something else."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable_error(path, error) from error
    return status if stat.S_ISREG(status.st_mode) else None


def unreadable_error(path: str, why: object) -> ExternalError:
    """The error for a path that matches but cannot be read."""
    reason = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
    return ExternalError(
        "LOG_UNREADABLE",
        f"{path} cannot be read as a log file",
        detail=f"{reason}.",
        hint="Give Penstock the right to read it, or write the glob so that it does not match.",
        is_transient=isinstance(why, OSError) and is_transient(why),
    )
