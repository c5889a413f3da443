"""Read and write the epoch records that all engines of an HA unit share.

    PLACE/epochs/         one epoch record each, written by the leader before the epoch executes anywhere
    PLACE/code.json       the digests of the code that the leader runs, by name
    PLACE/generations/    of two engines that believe they lead, which one writes (see `generation`)

Every engine of the unit executes an epoch as its shared record says.

Guarantees: an epoch has one record for good. Once a generation has taken over, no lower one adds a record, and all
that lower ones added can be seen: a new leader first repeats the recorded epochs, then decides on new ones.
On failure: `ExternalError` FENCED when a higher generation has taken over.
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
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.run_file import unwritable_error
from penstock.state.skipped_spans import skips_path
from penstock.state.state_facts import FORMAT, KEY

#: records kept before the oldest one that the leader's own state needs: a slow follower may still need them
RECORDS_KEPT = 200


class SharedRecords:
    """The epoch records of a unit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fenced_directory = FencedDirectory(path / "generations")

    @property
    def folder(self) -> Path:
        """Where the records are."""
        return self.path / "epochs"

    @property
    def generation(self) -> int:
        """The generation this engine writes as; 0 if it only reads."""
        return self.fenced_directory.generation

    @property
    def newest_generation(self) -> int:
        """The highest generation that has taken over."""
        return self.fenced_directory.newest_generation()

    def take_over(self, generation: int) -> None:
        """Write as this generation from now on; lower ones are refused."""
        try:
            self.fenced_directory.take_over(generation, reentrant=True)
        except OSError as failure:
            raise unwritable_error(self.path, failure) from failure

    def write_code(self, code: Mapping[str, str]) -> None:
        """Write the digests of the code that the leader runs; replicas must run the same."""
        content = {KEY: FORMAT, "generation": self.generation, "code": dict(code)}
        path = self.path / "code.json"
        try:
            self.fenced_directory.write_whole(path, json.dumps(content, separators=(",", ":")).encode())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure

    def read_code(self, generation: int | None = None) -> Mapping[str, str] | None:
        """The digests that the leader has written; None if there are none, or none of this generation."""
        try:
            content: dict[str, Any] = json.loads((self.path / "code.json").read_bytes())
            code: dict[str, str] = content["code"]
            return code if generation in (None, content["generation"]) else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                "the digests of the code that the leader of the unit runs cannot be read",
                detail=f"{failure!r} ({self.path / 'code.json'})",
            ) from failure

    def write(self, epoch: int, record: EpochRecord) -> EpochRecord:
        """Write an epoch's record unless it has one; returns the one in force."""
        path = self._path(epoch)
        in_force = self.read(epoch)
        if in_force is None:
            if not self.generation:
                raise fenced_error(self.path, 0, self.newest_generation)
            try:
                self.fenced_directory.write_once(path, replace(record, generation=self.generation).to_bytes())
            except OSError as failure:
                raise unwritable_error(path, failure) from failure
            in_force = self.read(epoch)
            assert in_force is not None
        if self.generation and in_force.generation > self.generation:
            raise fenced_error(self.path, self.generation, in_force.generation)
        return in_force

    def read(self, epoch: int) -> EpochRecord | None:
        """An epoch's record; None when it has none."""
        path = self._path(epoch)
        try:
            return EpochRecord.from_bytes(path.read_bytes(), f"the shared record of epoch {epoch}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the shared record of epoch {epoch} is damaged",
                detail=f"{failure!r} ({path})",
            ) from failure

    def has(self, epoch: int) -> bool:
        """Whether an epoch has a record."""
        return os.path.exists(f"{self.path}/epochs/{epoch:012d}.json")  # called often: no Path is made for it

    def epochs(self) -> list[int]:
        """The epochs that have a record, ascending."""
        return list_epochs(self.path / "epochs")

    def remove_old(self, oldest: int) -> None:
        """Remove the records that neither state from this epoch on needs nor a follower that is not too slow."""
        for epoch in self.epochs():
            if epoch < oldest - RECORDS_KEPT:
                self._path(epoch).unlink(missing_ok=True)
                skips_path(self.folder, epoch).unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self.path / "epochs" / f"{epoch:012d}.json"


def list_epochs(folder: Path) -> list[int]:
    """The epochs that have a file in a directory, ascending."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(n[:-5]) for n in os.listdir(folder) if n.endswith(".json") and n[0] != ".")
    return []
