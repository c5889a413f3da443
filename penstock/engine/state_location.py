"""Where an engine's tasks find its state on this host: runs, cache, and the memory of runs that are not durable yet.

Receives an engine's seat and settings; hands a place that is made ready, and cleared at the end.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from penstock.engine.role import Seat
from penstock.epoch.task import StateLocation
from penstock.settings import Settings, in_memory, on_one_host
from penstock.state.cache import HostCache, default_cache_root
from penstock.state.directory import StateDirectory


def housed(seat: Seat, settings: Settings, master: str) -> StateLocation:
    """The place of an engine, with nothing in it but what it has filled the cache with before it leads."""
    place = state_place(
        seat.state,
        settings.cache_root,
        settings.cache_bytes,
        one_host=on_one_host(master),
        # executors may be on hosts of their own; where they share one, they come and go alone
        apart=not master.startswith("local"),
        owner=seat.owner,
        in_memory=in_memory(settings),
    )
    if place.memory is not None:
        shutil.rmtree(
            place.memory, ignore_errors=True
        )  # a loss is a loss, also where the host has outlived it
    for directory in _directories(place):
        cache = HostCache(directory, 0)
        if not seat.warm_cache:
            cache.clear()  # what an earlier life has left may be incomplete
        cache.claim()
    return place


def vacated(place: StateLocation) -> None:
    """Leave nothing behind."""
    for directory in _directories(place):
        HostCache(directory, 0).clear()


def _directories(place: StateLocation) -> set[Path]:
    found = set() if place.cache is None else {Path(place.cache)}
    return found if place.memory is None else {*found, Path(place.memory).parent}


def state_place(
    state: StateDirectory,
    cache_root: Path | None,
    cache_bytes: int,
    *,
    one_host: bool = False,
    apart: bool = False,
    owner: str = "",
    in_memory: bool = False,
) -> StateLocation:
    """Where tasks find the runs of a state directory and, on one host, the frames on their way.

    `apart`: every executor has a cache of its own. The host's part is this generation's own, or that of an engine
    (`owner`) which fills it before it leads: a paused engine that wakes would clear away what another works with.
    `in_memory`: new runs stay in the host's memory until a manifest is made durable.
    """
    place = hashlib.sha256(os.fsencode(state.path.resolve())).hexdigest()[:32]
    name = f"{place}-{owner or state.generation}"
    cache = None if cache_root is None else str(cache_root / name)
    shelf = f"{cache}/shelf" if cache is not None and one_host else None
    memory = str((cache_root or default_cache_root()) / name / "runs") if in_memory else None
    return StateLocation(str(state.runs.resolve()), cache, cache_bytes, shelf, apart, memory)
