"""Generations: fencing tokens for files. Of two engines that both believe they may write, the file system lets one.

    PLACE/000000000007/    staging directory of generation 7: a file is written here, then moved to its final name

Whoever takes a place over makes the staging directory of its own generation, looks for a higher one, and removes those
of all lower ones. A file gets its final name by `link` or `rename` from a staging directory. The kernel refuses both
once the staged file is gone, and a file cannot be staged in a directory that is gone. So there is no moment between
check and write: an engine that was paused for an hour between any two instructions is refused at its next write.

Guarantees: when `take_over` returns, no lower generation puts a file in place any more, and what it did put there can
be seen. The staging directory of the highest generation is never removed, and no generation is used twice.
Does not guarantee anything about files that are written without a `FencedDirectory`.
On failure: `ExternalError` FENCED when a higher generation has taken over, STATE_GONE when the place is missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.errors import ExternalError
from penstock.state.durable import Buffer, make_private, sync_directory, write_once, write_whole

Result = TypeVar("Result")
#: prefix of a staging directory that is being removed
_REMOVED = ".gone-"


class Fence(Protocol):
    """The right to write that an engine holds: a lease, as the layers below know it."""

    @property
    def generation(self) -> int:
        """The fencing token; each new holder has a higher one."""

    def check(self) -> None:
        """Called before each write: raises when the right to write has, or may have, run out."""


class FencedDirectory:
    """A directory in which only the highest generation writes. Until one has taken it over, anybody may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0

    @property
    def staging(self) -> Path | None:
        """The staging directory of this generation; None before the directory is taken over."""
        return self.folder / f"{self.generation:012d}" if self.generation else None

    def newest_generation(self) -> int:
        """The highest generation that has taken over; 0 before the first."""
        return max(self._generations(), default=0)

    def take_over(self, generation: int | None = None, *, reentrant: bool = False) -> int:
        """Write as this generation from now on, or as the next; `reentrant`: this engine may do so already."""
        make_private(self.folder)
        while True:
            mine = self.newest_generation() + 1 if generation is None else generation
            try:
                (self.folder / f"{mine:012d}").mkdir(mode=0o700)
            except FileExistsError:
                if generation is None:
                    continue
                if not reentrant:
                    raise fenced_error(self.folder.parent, generation, self.newest_generation()) from None
            break
        newest = self.newest_generation()
        if newest > mine:
            with contextlib.suppress(OSError):
                (self.folder / f"{mine:012d}").rmdir()
            raise fenced_error(self.folder.parent, mine, newest)
        self._remove_lower(mine)
        sync_directory(self.folder)
        self.generation = mine
        return mine

    def write_once(self, path: Path, content: bytes) -> bool:
        """Put `content` at `path` only if nothing is there. False when something was."""
        return self.run_fenced(lambda: write_once(path, content, self.staging))

    def write_whole(self, path: Path, *content: Buffer) -> None:
        """Put `content` at `path` in one step, replacing what was there."""
        self.run_fenced(lambda: write_whole(path, *content, staging=self.staging))

    def check(self) -> None:
        """Raise FENCED if a higher generation has taken over. It may do so right afterwards, which writes notice."""
        if self.staging is not None and not self.staging.exists():
            newest = self.newest_generation()
            if newest < self.generation:  # the highest is never removed
                raise state_gone_error(self.folder.parent)
            raise fenced_error(self.folder.parent, self.generation, newest)

    def run_fenced(self, write: Callable[[], Result]) -> Result:
        """Call a function that writes through the staging directory; raise FENCED or STATE_GONE where that is gone."""
        try:
            return write()
        except FileNotFoundError:
            self.check()
            raise

    def _generations(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if name.isdigit()]
        except FileNotFoundError:
            return []

    def _remove_lower(self, mine: int) -> None:
        """Remove the staging directories of lower generations: first the name, in one step, then each file."""
        for lower in self._generations():
            if lower < mine:
                with contextlib.suppress(FileNotFoundError):  # another engine has removed it
                    removed = self.folder / f"{_REMOVED}{lower}-{uuid.uuid4().hex[:8]}"
                    os.rename(self.folder / f"{lower:012d}", removed)
        for name in os.listdir(self.folder):
            if name.startswith(_REMOVED):  # also those that an engine left when it was killed here
                _remove(self.folder / name)


def _remove(folder: Path) -> None:
    while True:
        try:
            for name in os.listdir(folder):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as failure:
            if failure.errno != errno.ENOTEMPTY:  # a file was staged just now
                raise
        else:
            return


def state_gone_error(place: Path) -> ExternalError:
    """The error of an engine whose directory was taken away."""
    return ExternalError(
        "STATE_GONE",
        f"{place} is no longer there, or not what this engine wrote",
        detail="It was moved or removed, or its file system is not mounted; nothing is written in its place.",
        hint="Restore it and start again: the engine continues after the last committed epoch in it.",
    )


def fenced_error(place: Path | str, mine: int, newest: int) -> ExternalError:
    """The error of an engine that another has replaced."""
    return ExternalError(
        "FENCED",
        f"another engine has taken over {place} (generation {newest}; this one is {mine})",
        detail="This engine can write nothing more, and what it had committed stays.",
        hint="There is nothing to fix: the other engine continues after the last committed epoch. Start this one "
        "again if it is to stand by.",
    )
