"""The command log: what was accepted, in order, under the state directory. What was said in one go is one entry.

Receives commands; hands them a number and, after a restart, all of them again: the first ones, once nobody asks for the
catalogue before them, as a snapshot of what they came to.

    DIR/commands/NUMBER.json       one entry
    DIR/commands/NUMBER.snapshot   the catalogue after the entries up to this number, with a checksum

Guarantees: what has a number is on disk, whole; numbers have no gaps. A snapshot is there before the entries in it go,
so a kill in between leaves some of them, which the next start removes. Written by one engine at a time, the one that
holds the state directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.jobs.catalogue import Catalogue, Command
from penstock.jobs.snapshot import packed, unpacked
from penstock.state.durable import write_once, write_whole
from penstock.state.run_file import unwritable
from penstock.words.errors import InternalError


@dataclass(frozen=True)
class Loaded:
    """What is on disk: the catalogue after `folded` entries, and the entries after those."""

    folded: int
    catalogue: Catalogue
    entries: list[list[Command]]


class CommandLog:
    """The commands of one state directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "commands"
        self._folded = self._last = 0

    def loaded(self) -> Loaded:
        """All there is."""
        snapshots, catalogue = self._numbers(".snapshot"), Catalogue()
        if snapshots:
            self._folded = self._last = snapshots[-1]
            catalogue = self._snapshot(self._path(self._folded, ".snapshot"))
            self._clear()
        entries = []
        for number in self._numbers(".json"):
            entries.append(self._entry(number))
            self._last = number
        return Loaded(self._folded, catalogue, entries)

    def append(self, commands: Sequence[Command]) -> int:
        """Keep what was said in one go; returns its number."""
        path = self._path(self._last + 1, ".json")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = write_once(path, json.dumps(commands, separators=(",", ":")).encode())
        except OSError as failure:
            raise unwritable(path, failure) from failure
        if not fresh:
            raise InternalError(
                "COMMAND_TAKEN",
                f"command {self._last + 1} is there already",
                detail=str(path),
                hint="Another engine wrote to this state directory; stop both and start one of them again.",
            )
        self._last += 1
        return self._last

    def at(self, number: int) -> float | None:
        """When an entry was written, in seconds since 1970; None once it is folded."""
        try:
            return self._path(number, ".json").stat().st_mtime
        except OSError:
            return None

    def fold(self, number: int, catalogue: Catalogue) -> None:
        """Keep the catalogue after so many entries in their place."""
        path = self._path(number, ".snapshot")
        try:
            write_whole(path, packed(catalogue))
            self._folded = number
            self._clear()
        except OSError as failure:
            raise unwritable(path, failure) from failure

    def _clear(self) -> None:
        """Remove what the newest snapshot says."""
        for number in self._numbers(".json"):
            if number <= self._folded:
                self._path(number, ".json").unlink(missing_ok=True)
        for number in self._numbers(".snapshot"):
            if number < self._folded:
                self._path(number, ".snapshot").unlink(missing_ok=True)

    def _entry(self, number: int) -> list[Command]:
        path = self._path(number, ".json")
        try:
            if number != self._last + 1:
                raise ValueError(f"command {self._last + 1} is missing")
            commands: list[Command] = json.loads(path.read_bytes())
        except (OSError, ValueError) as failure:
            raise _damaged(path, failure) from failure
        return commands

    def _snapshot(self, path: Path) -> Catalogue:
        try:
            return unpacked(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise _damaged(path, failure) from failure

    def _numbers(self, ending: str) -> list[int]:
        names = os.listdir(self._folder) if self._folder.exists() else []
        return sorted(
            int(name.removesuffix(ending)) for name in names if name.endswith(ending) and name[0] != "."
        )

    def _path(self, number: int, ending: str) -> Path:
        return self._folder / f"{number:09d}{ending}"


def _damaged(path: Path, failure: Exception) -> InternalError:
    return InternalError(
        "STATE_DAMAGED",
        f"the command {path.name} cannot be read",
        detail=f"{failure} ({path})",
        hint="The jobs cannot be made again without it; bring it back from a copy of the state.",
    )
