"""Generations: of two engines that both believe they may write, the file system lets one.

    PLACE/000000000007/    drafts of generation 7: what it writes lies here before it is put in place

Receives the generation of a lease, or counts one on; hands the means to put files in place as that generation.

Whoever takes a place over makes the directory of its own generation, looks for a higher one, and removes those of
all lower ones. A file gets its name by `link` or `rename` from a draft, which the kernel refuses once the draft is
gone; and a draft cannot be made in a directory that is gone. So there is no moment between looking and writing: an
engine that was paused for an hour between any two instructions is refused at the next write.

Guarantees: when `take` returns, no lower generation puts a file in place any more, and what it did put there can be
seen. The directory of the highest generation is never removed, and no generation is taken twice.
Does not guarantee anything about files that are written without a `Ground`.
On failure: `ExternalError` FENCED when a higher generation has taken the place, STATE_GONE when it is not there.
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
from penstock.state.durable import Buffer, sync_directory, write_once, write_whole

Result = TypeVar("Result")
_GONE = ".gone-"


class Fence(Protocol):
    """What an engine holds while it is the one that writes: a lease, as the layers below know it."""

    @property
    def generation(self) -> int:
        """The number of its reign; a later one has a higher."""

    def check(self) -> None:
        """Called before each write: raises when the right to write has, or may have, run out."""


class Ground:
    """A place where the highest generation writes. Until one is taken, anybody may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0

    @property
    def drafts(self) -> Path | None:
        """Where what this generation writes lies before it is in place; None before one is taken."""
        return self.folder / f"{self.generation:012d}" if self.generation else None

    def newest(self) -> int:
        """The highest generation that has taken the place; 0 before the first."""
        return max(self._taken(), default=0)

    def take(self, generation: int | None = None, *, again: bool = False) -> int:
        """Take the place over as this generation, or as the next; `again`: it may have been by this engine."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            mine = self.newest() + 1 if generation is None else generation
            try:
                (self.folder / f"{mine:012d}").mkdir()
            except FileExistsError:
                if generation is None:
                    continue
                if not again:
                    raise fenced(self.folder.parent, generation, self.newest()) from None
            break
        newest = self.newest()
        if newest > mine:
            with contextlib.suppress(OSError):
                (self.folder / f"{mine:012d}").rmdir()
            raise fenced(self.folder.parent, mine, newest)
        self._shut_out(mine)
        sync_directory(self.folder)
        self.generation = mine
        return mine

    def write_once(self, path: Path, content: bytes) -> bool:
        """Put `content` at `path` only if nothing is there. False when something was."""
        return self.guarded(lambda: write_once(path, content, self.drafts))

    def write_whole(self, path: Path, *content: Buffer) -> None:
        """Put `content` at `path` in one step, replacing what was there."""
        self.guarded(lambda: write_whole(path, *content, drafts=self.drafts))

    def check(self) -> None:
        """Raise FENCED if a higher generation has taken the place; it may the moment after, which drafts notice."""
        if self.drafts is not None and not self.drafts.exists():
            newest = self.newest()
            if newest < self.generation:  # the highest is never removed
                raise gone(self.folder.parent)
            raise fenced(self.folder.parent, self.generation, newest)

    def guarded(self, write: Callable[[], Result]) -> Result:
        """Do something with drafts; says FENCED, or STATE_GONE, where they are gone."""
        try:
            return write()
        except FileNotFoundError:
            self.check()
            raise

    def _taken(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if name.isdigit()]
        except FileNotFoundError:
            return []

    def _shut_out(self, mine: int) -> None:
        """Remove the drafts of lower generations: first their place, in one step, then each of them."""
        for lower in self._taken():
            if lower < mine:
                with contextlib.suppress(FileNotFoundError):  # another has done it
                    gone = self.folder / f"{_GONE}{lower}-{uuid.uuid4().hex[:8]}"
                    os.rename(self.folder / f"{lower:012d}", gone)
        for name in os.listdir(self.folder):
            if name.startswith(_GONE):  # also those of one who was killed here
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
            if failure.errno != errno.ENOTEMPTY:  # a draft that was being made just now
                raise
        else:
            return


def gone(place: Path) -> ExternalError:
    """The error of an engine whose directory was taken away."""
    return ExternalError(
        "STATE_GONE",
        f"{place} is no longer there, or not what this engine wrote",
        detail="It was moved or removed, or its file system is not mounted; nothing is written in its place.",
        hint="Bring it back and start again: the engine goes on from the last committed epoch that is in it.",
    )


def fenced(place: Path | str, mine: int, newest: int) -> ExternalError:
    """The error of an engine that another has replaced."""
    return ExternalError(
        "FENCED",
        f"another engine has taken over {place} (generation {newest}; this one is {mine})",
        detail="Nothing that this engine would still write is let through, and what it had committed stays.",
        hint="There is nothing to mend: the other engine goes on from the last committed epoch. Start this one again "
        "if it is to stand by.",
    )
