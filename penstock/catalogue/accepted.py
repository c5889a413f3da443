"""What comes of statements and requests while they are accepted: commands, and an answer for each.

Receives one command or answer after the other; has the catalogue with all of them. Nothing is changed outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Answered, CodeReference, Command, StateFate


@dataclass
class Accepted:
    """What comes of some statements."""

    catalogue: Catalogue
    commands: list[Command] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    #: the code of the functions that statements of its file call
    code: CodeReference | None = None

    def report(self, name: str, says: str) -> None:
        """Answer what changes nothing."""
        self.answers.append(Answered(says, name, question=True))

    def do(self, command: Command, says: str, state: StateFate | None = None) -> None:
        self.commands.append(command)
        self.catalogue = self.catalogue.after(command)
        self.answers.append(Answered(says, command.name, state))

    def note(self, command: Command) -> None:
        """Carry out what nobody waits for an answer to."""
        self.commands.append(command)
        self.catalogue = self.catalogue.after(command)

    def noted(self, commands: Sequence[Command]) -> Accepted:
        """It, with all of these carried out."""
        for command in commands:
            self.note(command)
        return self
