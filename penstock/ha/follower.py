"""Following without running: the newest state in this host's cache, and the newest input read once.

Receives the state directory in force and its manifests as they come; hands a cache that holds the runs the next epoch
would read.

A cold standby has the runs. A hot one also has what came after the last manifest at hand: it reads the log from there
to its end, so that the host's page cache has it when the epochs are to be repeated. Nothing is decoded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import PenstockError
from penstock.logs.contract import Log, Span
from penstock.state.cache import HostCache
from penstock.state.directory import StateDirectory
from penstock.state.run_file import read_run

#: the most input that is read ahead in one go, in bytes
_AHEAD_BYTES = 64 << 20
#: reading less says more about opening files than about reading, in bytes
_WORTH_MEASURING = 1 << 20


class RunFollower:
    """Keeps a cache up to date with a state directory."""

    def __init__(self, cache: HostCache | None) -> None:
        self._cache = cache
        self._held: dict[str, int] = {}
        self._directory: Path | None = None
        self._read_end: dict[tuple[str, str], int] = {}
        self.epoch = -1
        #: bytes of runs that are held, and how fast the last ones were read (bytes a second; 0: they were few)
        self.cached_bytes = 0
        self.read_rate = 0.0
        if cache is not None:
            cache.clear()
            cache.claim()

    def follow(self, directory: Path) -> bool:
        """Bring in what is new; whether there was something."""
        if directory != self._directory:
            self._directory, self.epoch = directory, -1
        state = StateDirectory(directory)
        epochs = state.epochs()
        if not epochs or epochs[-1] == self.epoch:
            return False
        # what is damaged or gone by now the engine says, if it comes to that
        with contextlib.suppress(PenstockError, OSError):
            needed = {
                entry.name: entry.bytes
                for group in state.manifest(epochs[-1]).collections.values()
                for entries in group.values()
                for entry in entries
            }
            for gone in self._held.keys() - needed.keys():
                if self._cache is not None:
                    self._cache.forget(gone)
                del self._held[gone]
            began, taken, self.read_rate = time.perf_counter(), 0, 0.0
            for run in needed.keys() - self._held.keys():
                frame = read_run(state.runs / run)
                if self._cache is not None:
                    self._cache.put(run, frame)
                self._held[run] = needed[run]
                taken += needed[run]
            if taken >= _WORTH_MEASURING:
                self.read_rate = taken / max(time.perf_counter() - began, 1e-6)
            self.cached_bytes = sum(self._held.values())
            self.epoch = epochs[-1]
        return True

    def read_ahead(self, directory: Path, logs: Mapping[str, Log]) -> int:
        """Read what the logs hold beyond the newest record, once; how many units that was."""
        state, taken = StateDirectory(directory), 0
        with contextlib.suppress(PenstockError, OSError, KeyError):
            reached = state.last_offsets()
            facts = state.facts() or {"logs": {}}
            for name, log in logs.items():
                log.resumed(facts["logs"].get(name, {}))
                at = reached.get(name, {})
                for partition in log.partitions(at):
                    begin = max(
                        at.get(partition.id, partition.earliest), self._read_end.get((name, partition.id), 0)
                    )
                    end = min(partition.latest, begin + _AHEAD_BYTES // log.unit_bytes)
                    if end <= begin:
                        continue
                    end = log.cut(partition.id, begin, end - begin)
                    for _ in log.read(Span(partition.id, begin, end)):
                        pass
                    self._read_end[name, partition.id] = end
                    taken += log.units(partition.id, begin, end)
        return taken
