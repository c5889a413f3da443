"""The commands that are known, and the catalogue after any number of them.

Receives the entries of the command log, oldest first; hands what was said between two of them, and the catalogue as it
was after so many. Of the first `folded` entries only what they came to is known.

Does not guarantee: anything to two threads at once; who has it holds a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Command
from penstock.catalogue.command_log import CommandLog
from penstock.errors import ExternalError

#: how many catalogues are kept at hand
_AT_HAND = 8


class Known:
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
        return self.folded + len(self.entries)

    @property
    def latest(self) -> Catalogue:
        return self.after(self.count)

    def load(self, *, ours: bool) -> None:
        """Know all that is on disk, and nothing else."""
        loaded = self.log.loaded(ours=ours)
        self.folded, self.entries = loaded.folded, loaded.entries
        self._catalogues = {loaded.folded: loaded.catalogue.on(self._base)}

    def add(self, entries: Sequence[Sequence[Command]], after: Catalogue | None = None) -> None:
        """Know entries that are in the log now; `after`: what they come to, where that is known already."""
        self.entries += map(list, entries)
        if after is not None:
            self._catalogues[self.count] = after

    def between(self, after: int, through: int) -> list[Command]:
        """What was said after so many entries, up to another number of them; raises where some are folded or not there
        yet."""
        if not self.folded <= after <= through <= self.count:
            raise ExternalError(
                "COMMANDS_GONE",
                f"the commands from {after + 1} to {through} are not there to be carried out one by one",
                detail=f"the log has {self.folded + 1} to {self.count}",
                hint="An engine that follows takes over the state of the one that leads.",
            )
        entries = self.entries[after - self.folded : through - self.folded]
        return [command for entry in entries for command in entry]

    def after(self, number: int) -> Catalogue:
        """The catalogue after so many entries; raises as `between` does."""
        known = max((known for known in self._catalogues if known <= number), default=number)
        said = self.between(known, number)
        found = self._catalogues[known]
        for command in said:
            found = found.after(command)
        self._catalogues[number] = found
        for old in sorted(self._catalogues)[1:-_AT_HAND]:
            del self._catalogues[old]
        return found

    def forget(self, number: int) -> None:
        """Know of the first so many entries only what they came to."""
        catalogue = self.after(number)
        later = {other: known for other, known in self._catalogues.items() if other > number}
        self._catalogues = {number: catalogue, **later}
        self.entries = self.entries[number - self.folded :]
        self.folded = number
