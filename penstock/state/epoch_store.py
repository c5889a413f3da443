"""Read and write the epoch records and the manifests of one state directory.

    DIR/epochs/000000000007.json       the record of epoch 7
    DIR/manifests/000000000007.json    the manifest of epoch 7
    DIR/epochs/000000000007.skipped    the spans that epoch 7 does without (see `skipped_spans`)

An engine of an HA unit has its records from the unit's `SharedRecords`, and copies of them here.

Manifests are read as the query sees them that runs on the directory. It may have dropped states of earlier manifests,
and ids of format 1 have other names today. Manifests on disk never change; both are applied when one is read.

Guarantees: a record or manifest is written once per epoch, in one atomic step, and never replaced.
On failure: `ExternalError` FENCED when another engine has taken over; STATE_DAMAGED when a file is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.errors import InternalError
from penstock.state.continuity import drop_states, rename_ids
from penstock.state.durable import sync_directory
from penstock.state.epoch_record import EpochRecord, Offset, PerPartition
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.manifest import Manifest
from penstock.state.run_file import unwritable_error
from penstock.state.shared_records import SharedRecords, list_epochs
from penstock.state.skipped_spans import add_skips, read_skips, skips_path
from penstock.state.state_facts import FORMAT, DroppedStates


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
            else:
                sync_directory(path.parent)  # the attempt that put it there may have failed just before this
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        in_force = self._add_skips(epoch, self._read(path))
        if self._shared is None and in_force.generation > generation > 0:
            raise fenced_error(self._state, generation, in_force.generation)
        return in_force

    def read(self, epoch: int) -> EpochRecord | None:
        """An epoch's record, from here or from the unit; None when it has none."""
        path = self._path(epoch)
        record = self._read(path) if path.exists() else None
        if record is None and self._shared is not None:
            record = self._shared.read(epoch)
        return None if record is None else self._add_skips(epoch, record)

    def skip_spans(self, epoch: int, skips: Collection[tuple[str, str]]) -> None:
        """Let an epoch that is recorded do without the spans of partitions (stream, partition), for good."""
        folder = self._folder if self._shared is None else self._shared.folder
        try:
            add_skips(folder, epoch, skips)
        except OSError as failure:
            raise unwritable_error(folder, failure) from failure

    def _add_skips(self, epoch: int, record: EpochRecord) -> EpochRecord:
        skips = read_skips(self._folder if self._shared is None else self._shared.folder, epoch)
        return replace(record, skips=skips) if skips else record

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

    def last_identities(self) -> Mapping[str, Mapping[str, str]]:
        """The identities of the newest record, by stream."""
        newest = self.read(self.newest_epoch())
        return {} if newest is None else newest.end.identities

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
                skips_path(self._folder, epoch).unlink(missing_ok=True)
        if self._shared is not None and self._shared.generation:
            self._shared.remove_old(oldest)

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


class ManifestStore:
    """The manifests of a state directory."""

    def __init__(
        self, path: Path, fenced_directory: FencedDirectory, read_dropped: Callable[[], DroppedStates]
    ) -> None:
        self._state = path
        self._folder = path / "manifests"
        self._fenced_directory = fenced_directory
        self._read_dropped = read_dropped
        #: the present ids of states, by their ids in manifests of format 1
        self.former_ids: Mapping[str, str] | None = None
        #: None until they are set or a manifest is read
        self.dropped: DroppedStates | None = None

    def epochs(self) -> list[int]:
        """The epochs that have a manifest, ascending."""
        return list_epochs(self._folder)

    def read(self, epoch: int) -> Manifest:
        """The state after an epoch; epoch -1 is the empty state."""
        if epoch < 0:
            return Manifest()
        path = self._path(epoch)
        try:
            return self._translate(Manifest.from_bytes(path.read_bytes()))
        except (OSError, ValueError, KeyError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the manifest of epoch {epoch} is damaged",
                detail=f"{failure} ({path})",
                hint="Run `penstock state verify DIR`, then `penstock state rollback DIR` to go back to the "
                "last good epoch.",
            ) from failure

    def latest(self) -> Manifest:
        """The newest manifest, or the empty state."""
        return self.read(max(self.epochs(), default=-1))

    def commit(self, manifest: Manifest) -> None:
        """Put the manifest of an epoch in place."""
        path, generation = self._path(manifest.epoch), self._fenced_directory.generation
        try:
            manifest = replace(manifest, generation=generation, format=FORMAT)
            content = manifest.to_bytes()
            is_mine = self._fenced_directory.write_once(path, content)
            if not is_mine and generation and path.read_bytes() == content:
                # an attempt of this engine put it there, and failed before the name was on disk
                self._fenced_directory.check()
                sync_directory(path.parent)
                is_mine = True
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        if is_mine:
            return
        if (newest := self._fenced_directory.newest_generation()) > generation > 0:
            raise fenced_error(self._state, generation, newest)
        raise InternalError(
            "EPOCH_COMMITTED_TWICE",
            f"epoch {manifest.epoch} already has a manifest",
            detail=str(path),
            hint="Another engine wrote to this state directory; stop both and start one of them again.",
        )

    def remove_after(self, epoch: int) -> None:
        """Remove the manifests of later epochs, the newest first, so that a crash leaves no gap."""
        for later in reversed(self.epochs()):
            if later > epoch:
                self._path(later).unlink()
        self.sync()

    def remove(self, epoch: int) -> None:
        """Remove the manifest of an epoch, if it is there. `sync` makes that durable."""
        self._path(epoch).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make durable which manifests there are."""
        sync_directory(self._folder)

    def _translate(self, manifest: Manifest) -> Manifest:
        if manifest.format == 1 and self.former_ids is not None:
            manifest = replace(rename_ids(manifest, self.former_ids), format=FORMAT)
        if self.dropped is None:  # the directory is not claimed, but inspected
            self.dropped = self._read_dropped()
        for through, ids in self.dropped:
            if manifest.epoch <= through:
                manifest = drop_states(manifest, ids)
        return manifest

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"
