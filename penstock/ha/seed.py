"""Seeding: the state of an engine that is to follow, from the newest manifest of the one that leads.

Receives the leader's state directory; hands a state directory that goes on after that manifest.

Runs never change, so they are linked, not copied, where both lie on one file system. The leader goes on meanwhile: what
it recycles before it is linked makes the seeding begin again, from a newer manifest.
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
from penstock.state.durable import sync_directory, write_whole
from penstock.state.run_file import read_run, unwritable_error

_ATTEMPTS = 50


def seed_state(target: Path, leader: StateDirectory) -> int:
    """Make `target` the state after the leader's newest manifest; returns its epoch, -1 before the first."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        try:
            return _copy(target, leader)
        except FileNotFoundError:
            time.sleep(0.05)  # recycled under our hands: there is a newer one
        except OSError as failure:
            raise unwritable_error(target, failure) from failure
    raise ExternalError(
        "NOTHING_TO_FOLLOW",
        f"the state in {leader.path} could not be copied",
        detail="What its newest manifest names was gone, again and again.",
        hint="See `penstock state verify DIR`.",
    )


def measured(target: Path, leader: StateDirectory) -> tuple[int, dict[str, float]]:
    """As `seeded`, and what that has measured."""
    began = time.perf_counter()
    epoch = seed_state(target, leader)
    return epoch, compute_rates(StateDirectory(target), time.perf_counter() - began)


def compute_rates(seed: StateDirectory, seconds: float) -> dict[str, float]:
    """What a seeding that took so long has measured, in bytes a second; nothing where there was little to seed."""
    size = seed.latest().state_bytes()
    if size <= 1 << 20:
        return {}
    read = measure_read_rate(seed)
    return {"sync": size / max(seconds, 1e-6)} | ({} if read is None else {"load": read})


def measure_read_rate(state: StateDirectory, most_bytes: int = 16 << 20) -> float | None:
    """How fast runs of the newest manifest are read, in bytes a second; None where there are too few to tell."""
    began, read = time.perf_counter(), 0
    for run in sorted(state.latest().runs()):
        if read >= most_bytes:
            break
        with contextlib.suppress(PenstockError, OSError):
            read_run(state.runs / run)
            read += (state.runs / run).stat().st_size
    return read / max(time.perf_counter() - began, 1e-6) if read >= 1 << 20 else None


def _copy(target: Path, leader: StateDirectory) -> int:
    facts = leader.existing()
    epochs = leader.epochs()
    if epochs:
        manifest, record = leader.manifest(epochs[-1]), leader.recorded(epochs[-1])
        for run in manifest.runs():
            place = target / "runs" / run
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(leader.runs / run, place)
        for folder in (target / "runs").glob("*"):
            sync_directory(folder)
        theirs = replace(manifest, generation=0)  # the leader's generations do not count in this directory
        if record is not None:
            write_whole(target / "epochs" / f"{manifest.epoch:012d}.json", record.to_bytes())
        write_whole(target / "manifests" / f"{manifest.epoch:012d}.json", theirs.to_bytes())
    write_whole(target / "penstock.json", json.dumps(facts, indent=1).encode())
    return epochs[-1] if epochs else -1


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
