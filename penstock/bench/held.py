"""How much memory a process holds, now and at most.

Receives folders whose files are memory too (a cache in shared memory); hands bytes beyond what there was at first.
Counts the pages that are the process's own (`RssAnon`): files it maps are counted once, as the files they are.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_OFTEN_SECONDS = 0.02


class Held:
    """Watches the memory of this process from when it is entered on."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._over = threading.Event()
        self._most = 0
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._first = own_bytes()
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watching.join()

    def now(self) -> int:
        """Bytes held beyond those at the beginning."""
        held = max(0, own_bytes() - self._first) + sum(map(file_bytes, self._folders))
        self._most = max(self._most, held)
        return held

    @property
    def most(self) -> int:
        """The most that was held at any look."""
        return self._most

    def _watch(self) -> None:
        while not self._over.wait(_OFTEN_SECONDS):
            self.now()


def own_bytes() -> int:
    """The memory that is this process's own."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell a process's memory")


def file_bytes(folder: Path) -> int:
    """The size of all files below a folder; those that go away meanwhile have none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
