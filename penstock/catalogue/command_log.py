"""Keep accepted commands in order, under the state directory. The commands of one request are one entry.

The first entries are replaced by a snapshot of the catalogue after them, once nobody needs the catalogue before them.

    DIR/commands/NUMBER.json       one entry
    DIR/commands/NUMBER.snapshot   the catalogue after the entries up to this number, with a checksum

Guarantees: an entry that has a number is on disk completely; numbers have no gaps. A snapshot is written before its
entries are removed, so a kill in between leaves some of them, which the next start removes. Any number of processes may
append: `link` gives a number to one of them; for the others `append` returns None, because they have not seen all
entries. Only the engine that owns the state directory folds. Before it removes entries, it removes all staged files: a
writer that looked before then, and was paused, finds its file gone instead of a number free that once was taken.

Does not guarantee: thread safety. The caller holds a lock.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.catalogue.catalogue import Catalogue, code_digests
from penstock.catalogue.command import Command, command_from_json
from penstock.catalogue.snapshot import decode_catalogue, encode_catalogue
from penstock.errors import ExternalError, InternalError
from penstock.state.durable import make_private, open_private, sync_directory, write_whole
from penstock.state.generation import FencedDirectory
from penstock.state.run_file import unwritable_error

_CACHED_CATALOGUES = 8


@dataclass(frozen=True)
class Loaded:
    """What is on disk: the catalogue after `folded` entries, and the entries after those."""

    folded: int
    catalogue: Catalogue
    entries: list[list[Command]]


class CommandLog:
    """The commands of one state directory, on disk."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "commands"
        self._folded = self._last = 0

    def load(self, *, owned: bool = True) -> Loaded:
        """Read the whole log. `owned`: the state directory is this process's; leftovers of a fold are removed."""
        while True:
            self._folded = self._last = max(self._numbers(".snapshot"), default=0)
            try:
                catalogue = Catalogue()
                if self._folded:
                    catalogue = self._snapshot(self._path(self._folded, ".snapshot"))
                if owned:
                    self._clear()
                return Loaded(self._folded, catalogue, self._entries())
            except InternalError:
                if max(self._numbers(".snapshot"), default=0) == self._folded:
                    raise  # nobody has folded meanwhile

    def news(self) -> list[list[Command]] | None:
        """The entries that others have appended since; None if some were folded unseen: load all again."""
        if not self._has(self._last + 1):
            # entries go in order: while the last one seen is there, none after it has gone
            return [] if self._has(self._last) or self._all_seen() else None
        try:
            return self._entries()
        except InternalError:
            if max(self._numbers(".snapshot"), default=0) <= self._last:
                raise
            return None

    def append(
        self, commands: Sequence[Command], fenced_directory: FencedDirectory | None = None
    ) -> int | None:
        """Append the commands of one request; return its number, or None if another process was first: look for news.
        What an engine decides because it leads is written in its `fenced_directory`: FENCED if another leads by now."""
        path = self._path(self._last + 1, ".json")
        staging = None if fenced_directory is None else fenced_directory.staging
        staged = (staging or path.parent) / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            make_private(path.parent)
            with open(staged, "xb", opener=open_private) as file:
                file.write(json.dumps([one.to_json() for one in commands], separators=(",", ":")).encode())
                file.flush()
                os.fsync(file.fileno())
            if not self._all_seen():  # first stage the file, then look: see the head of this file
                return None
            os.link(staged, path)
            sync_directory(path.parent)
        except (FileExistsError, FileNotFoundError):  # the number is taken, or was and is folded
            if fenced_directory is not None:
                fenced_directory.check()
            return None
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        finally:
            staged.unlink(missing_ok=True)
        self._last += 1
        return self._last

    def at(self, number: int) -> float | None:
        """When an entry was written, in seconds since 1970; None once it is folded."""
        try:
            return self._path(number, ".json").stat().st_mtime
        except OSError:
            return None

    def fold(self, number: int, catalogue: Catalogue) -> None:
        """Replace the first so many entries by the catalogue after them."""
        path = self._path(number, ".snapshot")
        try:
            write_whole(path, encode_catalogue(catalogue))
            self._folded = number
            self._clear()
        except OSError as failure:
            raise unwritable_error(path, failure) from failure

    def _clear(self) -> None:
        """Remove what the newest snapshot contains, the first entries first."""
        for name in os.listdir(self._folder) if self._folded else ():
            if name[0] == "." and ".json." in name:
                (self._folder / name).unlink(missing_ok=True)
        for number in self._numbers(".json"):
            if number <= self._folded:
                self._path(number, ".json").unlink(missing_ok=True)
        for number in self._numbers(".snapshot"):
            if number < self._folded:
                self._path(number, ".snapshot").unlink(missing_ok=True)

    def _all_seen(self) -> bool:
        """Whether the log continues after the last entry seen: that is there, or was the last to be folded."""
        folded = max(self._numbers(".snapshot"), default=0)
        return folded == self._last or (folded < self._last and self._has(self._last))

    def _has(self, number: int) -> bool:
        return os.path.exists(f"{self._folder}/{number:09d}.json")  # called often: no Path is made for it

    def _entries(self) -> list[list[Command]]:
        """The entries after the last one seen."""
        entries = []
        for number in self._numbers(".json"):
            if number > self._last:
                entries.append(self._entry(number))
                self._last = number
        return entries

    def _entry(self, number: int) -> list[Command]:
        path = self._path(number, ".json")
        try:
            if number != self._last + 1:
                raise ValueError(f"command {self._last + 1} is missing")
            return [command_from_json(body) for body in json.loads(path.read_bytes())]
        except (OSError, ValueError, TypeError) as failure:
            raise _damaged(path, failure) from failure

    def _snapshot(self, path: Path) -> Catalogue:
        try:
            return decode_catalogue(path.read_bytes())
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
        hint="The jobs cannot be rebuilt without it; restore it from a copy of the state.",
    )


class CommandHistory:
    """The commands of one state directory, as far as this process has seen them, and the catalogue after any number of
    them. `base`: the catalogue before them. Of the first `folded` entries only the catalogue after them is known."""

    def __init__(self, state: Path, base: Catalogue) -> None:
        self.log = CommandLog(state)
        self._base = base
        self.folded = 0
        #: the commands since then
        self.entries: list[list[Command]] = []
        self._catalogues: dict[int, Catalogue] = {0: base}

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self.folded + len(self.entries)

    @property
    def latest(self) -> Catalogue:
        """The catalogue after all of them."""
        return self.after(self.count)

    def load(self, *, owned: bool) -> None:
        """Read the whole log. `owned`: the state directory is this process's, so leftovers of a fold are removed."""
        loaded = self.log.load(owned=owned)
        self.folded, self.entries = loaded.folded, loaded.entries
        self._catalogues = {loaded.folded: loaded.catalogue.on(self._base)}

    def add(self, entries: Sequence[Sequence[Command]], after: Catalogue | None = None) -> None:
        """Add entries that are in the log now; `after`: the catalogue after them, where it is known."""
        self.entries += map(list, entries)
        if after is not None:
            self._catalogues[self.count] = after

    def between(self, after: int, through: int) -> list[Command]:
        """The commands after one number, up to another; raises where some are folded or not there yet."""
        if not self.folded <= after <= through <= self.count:
            raise ExternalError(
                "COMMANDS_GONE",
                f"the commands from {after + 1} to {through} are not there to be executed one by one",
                detail=f"the log has {self.folded + 1} to {self.count}",
                hint="An engine that follows takes over the state of the one that leads.",
            )
        entries = self.entries[after - self.folded : through - self.folded]
        return [command for entry in entries for command in entry]

    def after(self, number: int) -> Catalogue:
        """The catalogue after so many entries; raises as `between` does."""
        nearest = max((cached for cached in self._catalogues if cached <= number), default=number)
        commands = self.between(nearest, number)
        catalogue = self._catalogues[nearest]
        for command in commands:
            catalogue = catalogue.after(command)
        self._catalogues[number] = catalogue
        for old in sorted(self._catalogues)[1:-_CACHED_CATALOGUES]:
            del self._catalogues[old]
        return catalogue

    def forget(self, number: int) -> None:
        """Keep only the catalogue after the first so many entries."""
        catalogue = self.after(number)
        later = {other: cached for other, cached in self._catalogues.items() if other > number}
        self._catalogues = {number: catalogue, **later}
        self.entries = self.entries[number - self.folded :]
        self.folded = number

    def needed_code(self) -> frozenset[str]:
        """The digests of the code that the folded catalogue or a command after it needs."""
        commands = [command for entry in self.entries for command in entry]
        return self.after(self.folded).code | code_digests(commands)
