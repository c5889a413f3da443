"""Reserves space on a disk for when there is none left.

Receives a path and a size; frees the space for the length of a block, and reserves it again afterwards if it can.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Spare:
    """A file that reserves space."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._occupy()

    @contextlib.contextmanager
    def free_temporarily(self) -> Iterator[None]:
        """Free the space for the length of the block."""
        self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._occupy()

    def _occupy(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)
