"""Room on a disk that is kept for when there is none left.

Receives a path and a size; hands the room for the length of a block, and takes it back afterwards if it can.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Spare:
    """A file that takes up room."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._take()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """The room is free meanwhile."""
        self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)
