"""Decides where an engine's tasks find its state on this host: runs, cache, spill directory, and runs in memory.

`prepare_state_location` empties the places before the first epoch, `clear_state_location` after the last.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from penstock.engine.role import EngineRole
from penstock.epoch.task import StateLocation
from penstock.settings import Settings, in_memory, on_one_host
from penstock.state.cache import HostCache, default_cache_root
from penstock.state.directory import StateDirectory
from penstock.state.durable import make_private
from penstock.state.private import check_private


def prepare_state_location(role: EngineRole, settings: Settings, master: str) -> StateLocation:
    """The location for an engine, empty but for the cache that the engine itself filled before it leads."""
    location = state_location(
        role.state,
        settings.cache_root,
        settings.cache_bytes,
        one_host=on_one_host(master),
        # executors may be on hosts of their own; where they share a host, they come and go one by one
        cache_per_executor=not master.startswith("local"),
        owner=role.cache_owner,
        in_memory=in_memory(settings),
    )
    for directory in _directories(location):
        make_private(directory, durable=False)
        check_private(directory)
    if location.memory is not None:
        # the same after every loss, whether the host survived it or not
        shutil.rmtree(location.memory, ignore_errors=True)
    for directory in _directories(location):
        cache = HostCache(directory, 0)
        if not role.has_warm_cache:
            cache.clear()  # what an earlier process left may be incomplete
        cache.claim()
    return location


def clear_state_location(location: StateLocation) -> None:
    """Remove everything that is not in the state directory."""
    for directory in _directories(location):
        HostCache(directory, 0).clear()
    if location.job_marks is not None:
        shutil.rmtree(location.job_marks, ignore_errors=True)


def _directories(location: StateLocation) -> set[Path]:
    directories = set() if location.cache is None else {Path(location.cache)}
    return directories if location.memory is None else {*directories, Path(location.memory).parent}


def state_location(
    state: StateDirectory,
    cache_root: Path | None,
    cache_bytes: int,
    *,
    one_host: bool = False,
    cache_per_executor: bool = False,
    owner: str = "",
    in_memory: bool = False,
) -> StateLocation:
    """Where tasks find the runs of a state directory and, if all run on one host, large frames on their way.

    The host's part has the name of this generation, or of the engine (`owner`) that fills it before it leads: a paused
    engine that wakes would otherwise clear what another uses.
    `in_memory`: new runs stay in the host's memory until a manifest is durable.
    """
    digest = hashlib.sha256(os.fsencode(state.path.resolve())).hexdigest()[:32]
    name = f"{digest}-{owner or state.generation}"
    cache = None if cache_root is None else str(cache_root / name)
    spill_directory = f"{cache}/spill" if cache is not None and one_host else None
    on_host = (cache_root or default_cache_root()) / name
    memory = str(on_host / "runs") if in_memory else None
    job_marks = str(on_host / "jobs" if one_host else state.path.resolve() / "running-jobs")
    return StateLocation(
        str(state.runs.resolve()), cache, cache_bytes, spill_directory, cache_per_executor, memory, job_marks
    )
