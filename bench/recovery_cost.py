"""What epoch records, manifests and a lease cost: one engine with all of them, one that keeps them in memory only.

Receives files; hands events a second. Runs are written by both: they are the state, whoever records epochs. The bare
engine could not go on after a crash, and is for comparing only.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from bench.recovery_load import Feeder, query
from bench.worker import apart
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


def written(place: Path, events: int) -> Path:
    """Files of so many events."""
    Feeder(place / "in", events, 0.0).close()
    return place / "in"


def rate(kind: str, files: Path, master: str) -> float:
    """Events a second, from the first epoch to the last, in a process of its own."""
    place = files.parent / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    apart("bench.recovery_cost", [kind, str(files), master, str(place)], kind, place)
    return float(json.loads((place / "rate.json").read_text()))


def main(kind: str, files: Path, master: str, place: Path) -> None:
    """In the process: read all, and write how fast that was."""
    settings = Settings(
        state=place / "state",
        master=master,
        drain=True,
        first_epoch_units=_EPOCH_BYTES,
        most_epoch_units=_EPOCH_BYTES,
    )
    app = query(str(files), str(place / "out"))
    seen: list[tuple[int, float]] = []

    def watch(report: EpochReport) -> None:
        seen.append((report.events, report.committed_at))

    if kind == "recorded":
        settings = replace(settings, coordination=str(place / "coordination"))
    engine = Engine(app, settings)
    if kind == "bare":
        state = engine.state = engine.role.state = StateDirectory(settings.state)
        state.records, state.manifests = _MemoryRecords(state), _MemoryManifests(state)
    engine.run(watch)
    # the first epoch loads what later ones find loaded
    events = sum(count for count, _ in seen[1:])
    (place / "rate.json").write_text(json.dumps(events / (seen[-1][1] - seen[0][1])))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
