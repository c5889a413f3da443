"""Keep the commands that this process has seen, and the catalogue after any number of them.

Of the first `folded` entries of the command log only the catalogue after them is known.

Does not guarantee: thread safety. The caller holds a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.catalogue.catalogue import Catalogue, code_digests
from penstock.catalogue.command import Command
from penstock.catalogue.command_log import CommandLog
from penstock.errors import ExternalError

_CACHED_CATALOGUES = 8


class CommandHistory:
    """The commands of one state directory, as far as this process has seen them. `base`: the catalogue before them."""

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
