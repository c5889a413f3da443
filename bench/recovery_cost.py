"""What epoch records, manifests and a lease cost: one engine with all of them, one that keeps them in memory only.

Both write runs, which are the state. The bare
engine could not continue after a crash, and is for comparison only.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from bench.recovery_load import Feeder, query
from bench.worker import run_module
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord
from penstock.state.epoch_store import ManifestStore, RecordStore
from penstock.state.manifest import Manifest

#: in memory only; on disk, synced, under a lease
KINDS = ("bare", "recorded")
_EPOCH_BYTES = 8_000_000


class _MemoryRecords(RecordStore):
    """Epoch records in memory."""

    def __init__(self, state: StateDirectory) -> None:
        super().__init__(state.path, state.fenced_directory, None)
        self._records: dict[int, EpochRecord] = {}

    def write(self, epoch: int, record: EpochRecord) -> EpochRecord:
        return self._records.setdefault(epoch, record)

    def read(self, epoch: int) -> EpochRecord | None:
        return self._records.get(epoch)


class _MemoryManifests(ManifestStore):
    """The newest manifest, in memory."""

    def __init__(self, state: StateDirectory) -> None:
        super().__init__(state.path, state.fenced_directory, tuple)
        self._directory = state
        self._newest = Manifest()

    def commit(self, manifest: Manifest) -> None:
        self._newest = replace(manifest, generation=self._directory.generation)

    def latest(self) -> Manifest:
        return self._newest

    def epochs(self) -> list[int]:
        return []


def write_files(folder: Path, events: int) -> Path:
    """Files of so many events."""
    Feeder(folder / "in", events, 0.0).close()
    return folder / "in"


def rate(kind: str, files: Path, master: str) -> float:
    """Events a second, from the first epoch to the last, in a process of its own."""
    folder = files.parent / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run_module("bench.recovery_cost", [kind, str(files), master, str(folder)], kind, folder)
    return float(json.loads((folder / "rate.json").read_text()))


def main(kind: str, files: Path, master: str, folder: Path) -> None:
    """In the process: read all, and write how fast that was."""
    settings = Settings(
        state=folder / "state",
        master=master,
        drain=True,
        first_epoch_units=_EPOCH_BYTES,
        most_epoch_units=_EPOCH_BYTES,
    )
    app = query(str(files), str(folder / "out"))
    epochs: list[tuple[int, float]] = []

    def watch(report: EpochReport) -> None:
        epochs.append((report.events, report.committed_at))

    if kind == "recorded":
        settings = replace(settings, coordination=str(folder / "coordination"))
    engine = Engine(app, settings)
    if kind == "bare":
        state = engine.state = engine.role.state = StateDirectory(settings.state)
        state.records, state.manifests = _MemoryRecords(state), _MemoryManifests(state)
    engine.run(watch)
    # the first epoch loads what later ones find loaded
    events = sum(count for count, _ in epochs[1:])
    (folder / "rate.json").write_text(json.dumps(events / (epochs[-1][1] - epochs[0][1])))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
