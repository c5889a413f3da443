"""Seeds the state directory of a follower from the leader's newest manifest.

Runs are immutable, so they are linked, not copied, if both directories are on one file system. The leader keeps
running: if it removes a run before it is linked, seeding starts again from a newer manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from penstock.errors import ExternalError, PenstockError
from penstock.state.directory import StateDirectory
from penstock.state.durable import create_private, make_private, sync_files, write_whole
from penstock.state.run_file import read_run, unwritable_error

_ATTEMPTS = 50


def seed_state(target: Path, leader: StateDirectory) -> int:
    """Make `target` the state after the leader's newest manifest; returns its epoch, -1 before the first."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        try:
            return _copy(target, leader)
        except FileNotFoundError:
            time.sleep(0.05)  # removed meanwhile: there is a newer manifest
        except OSError as failure:
            raise unwritable_error(target, failure) from failure
    raise ExternalError(
        "NOTHING_TO_FOLLOW",
        f"the state in {leader.path} could not be copied",
        detail="The runs of its newest manifest disappeared repeatedly while they were copied.",
        hint="Check it with `penstock state verify DIR`.",
    )


def seed_and_measure(target: Path, leader: StateDirectory) -> tuple[int, dict[str, float]]:
    """As `seed_state`; also returns the measured rates."""
    started_at = time.perf_counter()
    epoch = seed_state(target, leader)
    return epoch, compute_rates(StateDirectory(target), time.perf_counter() - started_at)


def compute_rates(seed: StateDirectory, seconds: float) -> dict[str, float]:
    """The rates of a seeding that took so long, in bytes per second; empty if there was little to seed."""
    size = seed.manifests.latest().state_bytes()
    if size <= 1 << 20:
        return {}
    read = measure_read_rate(seed)
    return {"sync": size / max(seconds, 1e-6)} | ({} if read is None else {"load": read})


def measure_read_rate(state: StateDirectory, most_bytes: int = 16 << 20) -> float | None:
    """How fast runs of the newest manifest are read, in bytes per second; None if there are too few to measure."""
    started_at, read = time.perf_counter(), 0
    for run in sorted(state.manifests.latest().runs()):
        if read >= most_bytes:
            break
        with contextlib.suppress(PenstockError, OSError):
            read_run(state.runs / run)
            read += (state.runs / run).stat().st_size
    return read / max(time.perf_counter() - started_at, 1e-6) if read >= 1 << 20 else None


def _copy(target: Path, leader: StateDirectory) -> int:
    facts = leader.read_existing_facts()
    epochs = leader.manifests.epochs()
    if epochs:
        manifest, record = leader.manifests.read(epochs[-1]), leader.records.read(epochs[-1])
        places = [target / "runs" / run for run in sorted(manifest.runs())]
        for run, place in zip(sorted(manifest.runs()), places, strict=True):
            make_private(place.parent)
            _link(leader.runs / run, place)
        sync_files(places)  # a copy is not on disk yet, and a name never is
        copied = replace(manifest, generation=0)  # the leader's generations do not count in this directory
        if record is not None:
            write_whole(target / "epochs" / f"{manifest.epoch:012d}.json", record.to_bytes())
        write_whole(target / "manifests" / f"{manifest.epoch:012d}.json", copied.to_bytes())
    write_whole(target / "penstock.json", json.dumps(facts.to_json(), indent=1).encode())
    return epochs[-1] if epochs else -1


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        create_private(target)
        shutil.copyfile(source, target)
