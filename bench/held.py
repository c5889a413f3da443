"""The memory that a process holds: now, at most, and at rest.

Folders whose files are memory too (a cache in shared memory) count; results are bytes beyond those at the start.

Counted are the pages that are the process's own (`RssAnon`), and those folders' files, mapped or not, once each; files
that are gone but still mapped as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
import pyarrow as pa

from bench.processes import memory_bytes

_OFTEN_SECONDS = 0.02
#: the allocators of the engine's workers give back what they have not used for ten seconds
REST_SECONDS = 12.0


class Held:
    """Samples the memory of this process while the context is open."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._stop = threading.Event()
        self._first = self._most = 0
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._first = memory_bytes(what="RssAnon")
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._watching.join()

    def now(self) -> int:
        """Bytes held beyond those at the start."""
        files = sum(file_bytes(folder) + unlinked_bytes(folder) for folder in self._folders)
        held_bytes = max(0, memory_bytes(what="RssAnon") - self._first) + files
        self._most = max(self._most, held_bytes)
        return held_bytes

    def at_rest(self, seconds: float = REST_SECONDS) -> int:
        """Bytes held once the allocators have given back what is free."""
        gc.collect()
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        time.sleep(seconds)
        pl.DataFrame({"n": range(1_000)}).sort("n")  # Polars' allocator releases pages when it allocates
        return self.now()

    @property
    def most(self) -> int:
        """The most that any sample saw."""
        return self._most

    def _watch(self) -> None:
        while not self._stop.wait(_OFTEN_SECONDS):
            self.now()


def file_bytes(folder: Path | str) -> int:
    """The size of all files below a folder; those that go away meanwhile have none."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                total += file_bytes(one.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    total += one.stat(follow_symlinks=False).st_size
    return total


def unlinked_bytes(folder: Path) -> int:
    """The size of files that were in a folder and are there no more, but are mapped into this process."""
    total, name = 0, os.fsencode(folder)
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        if name in line and line.endswith(b"(deleted)"):
            low, high = line.split(maxsplit=1)[0].split(b"-")
            total += int(high, 16) - int(low, 16)
    return total
