"""A power loss in one process: what is left of a directory of which only some names and contents were synced.

`watch` records each `fsync` of a file (its content) and of a directory (its names). An image is what a disk may have
afterwards: of each directory the names that were synced, those that are there, or those that are both, because a
removal may reach the disk at any time; a file that was not synced is empty.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

Names = Literal["synced", "present", "remaining"]
VARIANTS: tuple[tuple[Names, Names], ...] = tuple(
    itertools.product(("synced", "present", "remaining"), repeat=2)
)
#: a file through all of its names; a number is added to an inode when the file system uses it again
Key = tuple[int, int]


@dataclass
class Disk:
    """What of a directory has been synced."""

    root: Path
    #: called before each change of the directory and each sync
    look: Callable[[], object] = lambda: None
    syncs: int = 0
    _contents: dict[Key, bytes] = field(default_factory=dict)
    _names: dict[Path, dict[str, Key | None]] = field(default_factory=dict)
    _reused: Counter[int] = field(default_factory=Counter)
    #: threads sync and change one after the other, so that nobody looks in the middle
    lock: threading.RLock = field(default_factory=threading.RLock)

    def note_sync(self, handle: int) -> None:
        """Note what is synced."""
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if not path.is_relative_to(self.root):
            return
        self.syncs += 1
        if path.is_dir():
            self._names[path] = self._list(path)
        else:
            status = os.fstat(handle)
            self._contents[self._key(status)] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def note_removal(self, path: Path) -> None:
        """Note that a file loses a name, perhaps its last."""
        try:
            status = path.lstat()
        except OSError:
            return
        if status.st_nlink == 1 and path.is_relative_to(self.root):
            self._reused[status.st_ino] += 1

    def image(self, of_manifests: Names, of_others: Names) -> dict[Path, bytes]:
        """The files that are left, by their paths below the root."""
        found: dict[Path, bytes] = {}
        todo = [self.root]
        while todo:
            folder = todo.pop()
            for name, key in self._left(
                folder, of_manifests if folder.name == "manifests" else of_others
            ).items():
                if key is None:
                    todo.append(folder / name)
                else:
                    found[(folder / name).relative_to(self.root)] = self._contents.get(key, b"")
        return found

    def _left(self, folder: Path, names: Names) -> dict[str, Key | None]:
        synced, present = self._names.get(folder, {}), self._list(folder)
        if names == "present":
            return present
        return {name: key for name, key in synced.items() if names == "synced" or present.get(name, 0) == key}

    def _list(self, folder: Path) -> dict[str, Key | None]:
        try:
            return {
                entry.name: None if entry.is_dir() else self._key(entry.stat(follow_symlinks=False))
                for entry in os.scandir(folder)
            }
        except FileNotFoundError:
            return {}

    def _key(self, status: os.stat_result) -> Key:
        return status.st_ino, self._reused[status.st_ino]


@contextmanager
def watch(root: Path, look: Callable[[], object] = lambda: None) -> Iterator[Disk]:
    """Record what is synced below a directory, in this process."""
    disk = Disk(root, look)
    fsync, unlink = os.fsync, os.unlink

    def sync(handle: Any) -> None:
        with disk.lock:
            disk.look()
            fsync(handle)
            disk.note_sync(handle)

    def remove(path: Any, **where: Any) -> None:
        with disk.lock:
            disk.look()
            if not where:
                disk.note_removal(Path(path))
            unlink(path, **where)

    def looking(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(source: Any, target: Any, **where: Any) -> Any:
            with disk.lock:
                disk.look()
                if change is not link:
                    disk.note_removal(Path(target))
                return change(source, target, **where)

        return changed

    link = os.link
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        for name in ("unlink", "remove"):
            patch.setattr(os, name, remove)
        for name, change in (("replace", os.replace), ("rename", os.rename), ("link", link)):
            patch.setattr(os, name, looking(change))
        yield disk


def restore(image: dict[Path, bytes], target: Path) -> None:
    """Write an image to a directory."""
    for path, content in image.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)
