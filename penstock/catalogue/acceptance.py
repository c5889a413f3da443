"""Collect the commands and replies that a request leads to, while it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import CodeReference, Command, Reply, StateOutcome


@dataclass
class Acceptance:
    """The commands of a request so far, their replies, and the catalogue after them."""

    catalogue: Catalogue
    commands: list[Command] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    #: the code of the functions that statements of its file call
    code: CodeReference | None = None

    def report(self, name: str, message: str) -> None:
        """Reply where nothing changes."""
        self.replies.append(Reply(message, name, question=True))

    def do(self, command: Command, message: str, state: StateOutcome | None = None) -> None:
        """Add a command and its reply."""
        self.note(command)
        self.replies.append(Reply(message, command.name, state))

    def note(self, command: Command) -> None:
        """Add a command that gets no reply."""
        self.commands.append(command)
        self.catalogue = self.catalogue.after(command)

    def note_all(self, commands: Sequence[Command]) -> Acceptance:
        """Add commands that get no reply; return itself."""
        for command in commands:
            self.note(command)
        return self
