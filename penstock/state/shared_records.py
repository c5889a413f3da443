"""The book of an HA unit: what each epoch consists of, agreed once for all engines and all their state directories.

    PLACE/epochs/         one epoch record each, written by the leader before the epoch runs anywhere
    PLACE/code.json       the digests of the code that the leader runs, by names
    PLACE/generations/    of two engines that believe they lead, which one writes (see `generation`)

Receives the leader's records; hands them to every engine of the unit, which repeats them as they are.

Guarantees: an epoch has one record for good. Once a generation has taken the book, no lower one adds to it, and all
that lower ones added can be seen: who takes it first repeats what it finds, then decides further.
On failure: `ExternalError` FENCED when a higher generation has taken the book.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import InternalError
from penstock.state.epoch_record import EpochRecord
from penstock.state.format import FORMAT, KEY
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.run_file import unwritable_error

#: records kept below the oldest one the leader's own state needs: what a slow replica may still have before it
KEPT = 200


class SharedRecords:
    """The records of a unit's epochs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fenced_directory = FencedDirectory(path / "generations")

    @property
    def generation(self) -> int:
        """The generation this one writes as; 0 for who only reads."""
        return self.fenced_directory.generation

    @property
    def newest_generation(self) -> int:
        """The highest generation that took the book."""
        return self.fenced_directory.newest_generation()

    def take_over(self, generation: int) -> None:
        """Be the one that writes; those of lower generations are refused from now on."""
        try:
            self.fenced_directory.take_over(generation, reentrant=True)
        except OSError as failure:
            raise unwritable_error(self.path, failure) from failure

    def declare_code(self, code: Mapping[str, str]) -> None:
        """Write down what code the leader runs; replicas run the same."""
        said = {KEY: FORMAT, "generation": self.generation, "code": dict(code)}
        path = self.path / "code.json"
        try:
            self.fenced_directory.write_whole(path, json.dumps(said, separators=(",", ":")).encode())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure

    def code(self, generation: int | None = None) -> Mapping[str, str] | None:
        """What code the leader said it runs; None if it said nothing, or not as this generation."""
        try:
            said: dict[str, Any] = json.loads((self.path / "code.json").read_bytes())
            code: dict[str, str] = said["code"]
            return code if generation in (None, said["generation"]) else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                "what code the leader of the unit runs cannot be read",
                detail=f"{failure!r} ({self.path / 'code.json'})",
            ) from failure

    def record(self, epoch: int, record: EpochRecord) -> EpochRecord:
        """Write an epoch's record unless it has one; returns the one in force."""
        path = self._path(epoch)
        found = self.recorded(epoch)
        if found is None:
            if not self.generation:
                raise fenced_error(self.path, 0, self.newest_generation)
            try:
                self.fenced_directory.write_once(path, replace(record, generation=self.generation).to_bytes())
            except OSError as failure:
                raise unwritable_error(path, failure) from failure
            found = self.recorded(epoch)
            assert found is not None
        if self.generation and found.generation > self.generation:
            raise fenced_error(self.path, self.generation, found.generation)
        return found

    def recorded(self, epoch: int) -> EpochRecord | None:
        """An epoch's record; None when it has none."""
        path = self._path(epoch)
        try:
            return EpochRecord.from_bytes(path.read_bytes(), f"the agreed record of epoch {epoch}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the agreed record of epoch {epoch} is damaged",
                detail=f"{failure!r} ({path})",
            ) from failure

    def has(self, epoch: int) -> bool:
        """Whether an epoch has a record."""
        return os.path.exists(f"{self.path}/epochs/{epoch:012d}.json")  # asked often: no Path is made for it

    def epochs(self) -> list[int]:
        """The epochs that have a record, ascending."""
        return list_epochs(self.path / "epochs")

    def recycle(self, oldest: int) -> None:
        """Remove what no state from this epoch on needs, nor a replica that is not too slow."""
        for epoch in self.epochs():
            if epoch < oldest - KEPT:
                self._path(epoch).unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self.path / "epochs" / f"{epoch:012d}.json"


def list_epochs(folder: Path) -> list[int]:
    """The epochs that have a file in a directory, ascending."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(n[:-5]) for n in os.listdir(folder) if n.endswith(".json") and n[0] != ".")
    return []
