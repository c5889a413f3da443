"""Finds where records start and end in an open file, and the checksums by which a file is recognized.

Receives file descriptors; returns byte positions after newlines, and checksums of a file's first bytes.

Invariants:
- A boundary is the position after a newline. Reads go in windows, so a line of any length is found.
- Nothing here moves a descriptor's own position.
"""

from __future__ import annotations

import os
import zlib

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
