"""Read and write the epoch records of one state directory.

    DIR/epochs/000000000007.json    the record of epoch 7

An engine of an HA unit has its records from the unit's `SharedRecords`, and copies of them here.

Guarantees: a record is written once and never replaced.
On failure: `ExternalError` FENCED when another engine has taken over; STATE_DAMAGED when a file is no record.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.errors import InternalError
from penstock.state.epoch_record import EpochRecord, Offset, PerPartition
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.run_file import unwritable_error
from penstock.state.shared_records import SharedRecords, list_epochs


class RecordStore:
    """The epoch records of a state directory; of an HA unit also those that its engines share."""

    def __init__(self, path: Path, fenced_directory: FencedDirectory, shared: SharedRecords | None) -> None:
        self._state = path
        self._folder = path / "epochs"
        self._fenced_directory = fenced_directory
        self._shared = shared

    def write(self, epoch: int, record: EpochRecord) -> EpochRecord:
        """Write an epoch's record unless it has one; returns the one in force, if it is not a higher generation's."""
        path, generation = self._path(epoch), self._fenced_directory.generation
        if self._shared is not None:
            record = self._shared.write(epoch, self._read(path) if path.exists() else record)
        try:
            if not path.exists():
                if generation and self._shared is None:
                    record = replace(record, generation=generation)
                self._fenced_directory.write_once(path, record.to_bytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        in_force = self._read(path)
        if self._shared is None and in_force.generation > generation > 0:
            raise fenced_error(self._state, generation, in_force.generation)
        return in_force

    def read(self, epoch: int) -> EpochRecord | None:
        """An epoch's record, from here or from the unit; None when it has none."""
        path = self._path(epoch)
        if path.exists():
            return self._read(path)
        return None if self._shared is None else self._shared.read(epoch)

    def read_end(self, epoch: int) -> Offset | None:
        """The end offset of an epoch's record; None when it has none."""
        record = self.read(epoch)
        return None if record is None else record.end

    def newest_epoch(self) -> int:
        """The last epoch that has a record, here or in the unit; -1 before the first."""
        shared = [] if self._shared is None else self._shared.epochs()
        return max((*list_epochs(self._folder)[-1:], *shared[-1:]), default=-1)

    def last_commands(self) -> int:
        """The number of the newest command that any recorded epoch takes in; 0 if there is none."""
        newest = self.read(self.newest_epoch())
        return 0 if newest is None else newest.commands

    def last_offsets(self) -> PerPartition:
        """The offsets that the newest record reaches, by stream."""
        newest = self.read(self.newest_epoch())
        return {} if newest is None else newest.end.at

    def last_maps_version(self) -> int:
        """The version of the bucket maps that the newest record here names; -1 before the first."""
        epochs = list_epochs(self._folder)
        if not epochs:
            return -1
        newest = self._read(self._path(epochs[-1]))
        return 0 if newest.maps is None else newest.maps.version

    def remove_before(self, oldest: int) -> None:
        """Remove the records of earlier epochs; the leader's engine also removes those of the unit."""
        for epoch in list_epochs(self._folder):
            if epoch < oldest:
                self._path(epoch).unlink(missing_ok=True)
        if self._shared is not None and self._shared.generation:
            self._shared.recycle(oldest)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"

    def _read(self, path: Path) -> EpochRecord:
        try:
            return EpochRecord.from_bytes(path.read_bytes(), f"the epoch record {path.name}")
        except (OSError, ValueError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the epoch record {path.name} is damaged",
                detail=f"{failure!r} ({path})",
                hint="Run `penstock state rollback DIR` to go back to the last good epoch.",
            ) from failure
