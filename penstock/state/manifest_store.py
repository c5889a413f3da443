"""Read and write the manifests of one state directory, as the query sees them that runs on it.

    DIR/manifests/000000000007.json    the manifest of epoch 7

A query may have dropped states of earlier manifests, and ids of format 1 have other names today. Manifests on disk
never change; both are applied when one is read.

Guarantees: a manifest is written once per epoch, in one atomic step, and never replaced.
On failure: `ExternalError` FENCED when another engine has taken over; STATE_DAMAGED when a file is no manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.errors import InternalError
from penstock.state.continuity import drop_states, rename_ids
from penstock.state.durable import sync_directory
from penstock.state.format import FORMAT
from penstock.state.generation import FencedDirectory, fenced_error
from penstock.state.manifest import Manifest
from penstock.state.run_file import unwritable_error
from penstock.state.shared_records import list_epochs
from penstock.state.state_facts import DroppedStates


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
            is_new = self._fenced_directory.write_once(path, manifest.to_bytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        if is_new:
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
        sync_directory(self._folder)

    def remove(self, epoch: int) -> None:
        """Remove the manifest of an epoch, if it is there."""
        self._path(epoch).unlink(missing_ok=True)

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
