"""Inspects a text file that grows: its identity, where its lines start and end, and its path after a rename.

Receives a path and what was known of the file; returns a `TextFile`, and reads only what is new in it.

Invariants:
- The label of a text file is its inode and the checksum of its first whole line. It is the id of its partition, unless
  another partition has that id: then a number is added (`file_partitions`).
- A file that no longer has the bytes seen before is another file, inspected from its start and without an id.
- A file that was created at another time is another file, although it has the inode and the bytes of a removed one.
- NUL bytes at the start are no line: a writer that continues at its offset after a truncation leaves a hole there. NUL
  bytes at the end may be space that lines will be written into.
- A boundary is the position after a newline. Reads go in windows, so a line of any length is found.
- Nothing here depends on a descriptor's own position.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ExternalError, is_transient
from penstock.logs.birth import birth_of, may_be_same

HEAD_BYTES = 4096
"""How much of a first line goes into a file's identity."""

PREFIX_BYTES = 64 << 10
"""How many of a file's first bytes distinguish two files with the same first line."""

STEPS = (256, 1024, 4096, 16384)
"""How many first bytes have a checksum of their own, so that a file with fewer than were read can be compared."""

EDGE_BYTES = 1024
"""How many of the last bytes that were read show that a file still has them."""

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


def edge_crc(fd: int, end: int) -> int:
    """The checksum of the last bytes before a position."""
    size = min(end, EDGE_BYTES)
    return zlib.crc32(pread(fd, size, end - size))


Inode = tuple[int, int]
"""Device and inode number."""


@dataclass(frozen=True)
class Prefix:
    """The checksums of the first bytes of a text: of all `length` of them, and of as many as each of `STEPS`."""

    length: int = 0
    crc: int = 0
    steps: tuple[int, ...] = ()

    def extend(self, data: bytes) -> Prefix:
        """That of a text that continues with these bytes; of more than `PREFIX_BYTES` the rest does not count."""
        data = data[: PREFIX_BYTES - self.length]
        length, crc, steps, at = self.length + len(data), self.crc, self.steps, 0
        for step in STEPS[len(steps) :]:
            if step > length:
                break
            crc = zlib.crc32(data[at : step - self.length], crc)
            at, steps = step - self.length, (*steps, crc)
        return Prefix(length, zlib.crc32(data[at:] if at else data, crc), steps)

    def extend_from(self, fd: int, length: int) -> Prefix:
        """That of the first `length` bytes of an open file, of which this is the beginning."""
        end = min(length, PREFIX_BYTES)
        return self if end <= self.length else self.extend(pread(fd, end - self.length, self.length))


@dataclass
class TextFile:
    """A text file as last seen: under a `name` that may be a link to `path`.

    `label` is None until its first line is whole; `id` until it is known which partition it is.
    """

    inode: Inode
    name: str
    path: str
    size: int
    mtime_ns: int
    head: bytes
    label: str | None
    id: str | None
    latest: int
    prefix: Prefix
    edge_crc: int
    #: when the file was created; 0 if nobody knows
    birth: int
    #: how many NUL bytes it starts with
    start: int
    #: the space up to here has no newline after `latest`, nor will it get one
    scanned: int


def inspect_file(path: str, known: TextFile | None, finished: bool) -> TextFile:
    """Inspect a file that is new or has changed; `finished` makes its last line whole as it stands."""
    fd = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        size, birth = status.st_size, birth_of(fd)
        start, head = read_head(fd)
        before = known if known is not None and _has_grown(fd, size, start, head, birth, known) else None
        latest = last_boundary(fd, before.scanned if before else 0, size)
        if latest == (before.scanned if before else 0):
            latest = before.latest if before else 0
        has_space = size > latest and pread(fd, 1, size - 1) == b"\0"
        if finished and not (has_space and _is_empty(fd, latest, size)):
            latest = size
        prefix = (before.prefix if before else Prefix()).extend_from(fd, latest)
        edge = before.edge_crc if before and before.latest == latest else edge_crc(fd, latest)
    finally:
        os.close(fd)
    return TextFile(
        inode=(status.st_dev, status.st_ino),
        name=path,
        path=os.path.realpath(path),
        size=size,
        mtime_ns=status.st_mtime_ns,
        head=head,
        label=text_id(status.st_ino, head) if latest else None,
        id=before.id if before else None,
        latest=latest,
        prefix=prefix,
        edge_crc=edge,
        birth=birth,
        start=start,
        scanned=latest if has_space else size,
    )


def _has_grown(fd: int, size: int, start: int, head: bytes, birth: int, known: TextFile) -> bool:
    """Whether a file still has all that was seen of it, as far as its start and the end of its last line show."""
    return (
        size >= known.size
        and may_be_same(birth, known.birth)
        and (start == known.start or not known.latest)
        and head.startswith(known.head)
        and edge_crc(fd, known.latest) == known.edge_crc
    )


def _is_empty(fd: int, low: int, high: int) -> bool:
    """Whether there are only NUL bytes in [low, high)."""
    return skip_nul(fd, low, high) == high


def skip_nul(fd: int, low: int, high: int) -> int:
    """The position of the first byte in [low, high) that is not NUL; `high` if there is none."""
    while low < high:
        try:
            low = max(low, os.lseek(fd, low, os.SEEK_DATA))
        except OSError as error:  # not every file system knows its holes
            if error.errno == errno.ENXIO:
                return high
        data = pread(fd, min(_WIDEST, high - low), low)
        rest = data.lstrip(b"\0")
        if rest or not data:
            return low + len(data) - len(rest) if rest else high
        low += len(data)
    return high


def read_head(fd: int) -> tuple[int, bytes]:
    """How many NUL bytes an open file starts with, and what follows them: at most `HEAD_BYTES`, less NUL bytes at the
    end, into which lines may still be written."""
    head, start = pread(fd, HEAD_BYTES, 0), 0
    if head[:1] == b"\0":
        start = skip_nul(fd, 0, os.fstat(fd).st_size)
        head = pread(fd, HEAD_BYTES, start)
    return start, head.rstrip(b"\0")


def text_id(inode: int, head: bytes) -> str:
    """The label of a text file that starts like this."""
    return f"{inode:x}-{line_crc(head):08x}"


def parse_inode(id: str) -> int | None:
    """Parse the inode number in a text file's id; None if the id is not of that form."""
    try:
        return int(id.split("-")[0], 16)
    except ValueError:
        return None


def label_of(id: str) -> str:
    """The label in an id, without the number that distinguishes partitions of one label."""
    return "-".join(id.split("-")[: 3 if id.startswith("gz-") else 2])


def line_of(id: str) -> str:
    """The checksum of the first line, as every id has it."""
    return [*id.split("-"), ""][1]


def open_file(path: str) -> int | None:
    """Open a file for reading; None if it is gone."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable_error(path, error) from error


def has_label(fd: int, id: str) -> bool:
    """Whether an open text file has the inode and the first line of an id."""
    return text_id(os.fstat(fd).st_ino, read_head(fd)[1]) == label_of(id)


def index_inodes(directories: Iterable[str]) -> dict[int, str]:
    """The paths of the text files in some directories by inode number. An archive with the number of a text file is
    another file: its inode was used again."""
    found: dict[int, str] = {}
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if not entry.is_symlink() and not entry.name.endswith(".gz"):
                        found.setdefault(entry.inode(), entry.path)
        except FileNotFoundError:
            continue
    return found


def find_path(inode: int | None, directories: Iterable[str]) -> str | None:
    """Find the path of the text file with an inode number in these directories."""
    return None if inode is None else index_inodes(directories).get(inode)


def stat_regular_file(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None if it is gone or something else."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable_error(path, error) from error
    return status if stat.S_ISREG(status.st_mode) else None


def stat_beside(path: str) -> os.stat_result | None:
    """The status of a file that is only beside the logs; None if it cannot be found out: it is not one of them."""
    try:
        return stat_regular_file(path)
    except ExternalError:
        return None


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
