"""The command log: what was accepted, in order, under the state directory. What was said in one go is one entry.

Receives commands; hands them a number and, after a restart, all of them again.

Guarantees: what has a number is on disk, whole; numbers have no gaps. Written by one engine at a time, the one that
holds the state directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.jobs.catalogue import Command
from penstock.state.durable import write_once
from penstock.state.run_file import unwritable
from penstock.words.errors import InternalError


class CommandLog:
    """The commands of one state directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "commands"
        self._last = 0

    def entries(self) -> Iterator[list[Command]]:
        """All entries so far."""
        names = sorted(os.listdir(self._folder)) if self._folder.exists() else []
        for number, name in enumerate((n for n in names if n.endswith(".json") and n[0] != "."), start=1):
            path = self._folder / name
            try:
                commands: list[Command] = json.loads(path.read_bytes())
                if int(path.stem) != number:
                    raise ValueError(f"command {number} is missing")
            except (OSError, ValueError) as failure:
                raise InternalError(
                    "STATE_DAMAGED",
                    f"the command {name} cannot be read",
                    detail=f"{failure} ({path})",
                    hint="The jobs cannot be made again without it; bring it back from a copy of the state.",
                ) from failure
            self._last = number
            yield commands

    def append(self, commands: Sequence[Command]) -> int:
        """Keep what was said in one go; returns its number."""
        path = self._folder / f"{self._last + 1:09d}.json"
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
