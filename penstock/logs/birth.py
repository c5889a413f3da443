"""Reads when a file was created: an inode that is used again for another file was created later.

Linux reports it by `statx` where the file system stores it (ext4, XFS, btrfs, tmpfs); 0 stands for a file system or
platform that does not.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
#: the size of `struct statx`, and where `stx_btime` is in it
_SIZE, _BIRTH_AT = 256, 0x50


def _find_statx() -> Callable[..., int] | None:
    """The function of the C library; None where there is none."""
    try:
        return ctypes.CDLL(None).statx
    except (AttributeError, OSError, TypeError):
        return None


_statx = _find_statx()


def birth_of(fd: int) -> int:
    """When an open file was created, in nanoseconds since 1970; 0 if nobody knows."""
    if _statx is None:
        return 0
    found = ctypes.create_string_buffer(_SIZE)
    if _statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return 0
    (known,) = struct.unpack_from("I", found, 0)
    seconds, nanoseconds = struct.unpack_from("qI", found, _BIRTH_AT)
    return int(seconds * 1_000_000_000 + nanoseconds) if known & _STATX_BTIME else 0


def may_be_same(one: int, other: int) -> bool:
    """Whether two times of birth can be those of one file."""
    return one == other or 0 in (one, other)
