"""Keeps the leader's newest state in the cache of a passive standby's host, and reads new input ahead.

A cold standby caches the runs. A hot one also reads the log from the last manifest to its end, so that the input is in
the host's page cache when epochs have to be repeated. Nothing is decoded.
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

#: the most input to read ahead at once, in bytes
_AHEAD_BYTES = 64 << 20
#: less than this measures the opening of files, not the reading, in bytes
_WORTH_MEASURING = 1 << 20


class StandbyCache:
    """Keeps a cache up to date with a state directory."""

    def __init__(self, cache: HostCache | None) -> None:
        self._cache = cache
        self._cached: dict[str, int] = {}
        self._directory: Path | None = None
        self._read_end: dict[tuple[str, str], int] = {}
        self.epoch = -1
        #: bytes of cached runs, and how fast the last ones were read (bytes per second; 0: they were few)
        self.cached_bytes = 0
        self.read_rate = 0.0
        if cache is not None:
            cache.clear()
            cache.claim()

    def follow(self, directory: Path) -> bool:
        """Cache the runs of the newest manifest; returns whether there was a new one."""
        if directory != self._directory:
            self._directory, self.epoch = directory, -1
        state = StateDirectory(directory)
        epochs = state.manifests.epochs()
        if not epochs or epochs[-1] == self.epoch:
            return False
        # the engine reports what is damaged or missing if it has to read it
        with contextlib.suppress(PenstockError, OSError):
            needed = {
                entry.name: entry.bytes
                for group in state.manifests.read(epochs[-1]).collections.values()
                for entries in group.values()
                for entry in entries
            }
            for gone in self._cached.keys() - needed.keys():
                if self._cache is not None:
                    self._cache.forget(gone)
                del self._cached[gone]
            started_at, read_bytes, self.read_rate = time.perf_counter(), 0, 0.0
            for run in needed.keys() - self._cached.keys():
                frame = read_run(state.runs / run)
                if self._cache is not None:
                    self._cache.put(run, frame)
                self._cached[run] = needed[run]
                read_bytes += needed[run]
            if read_bytes >= _WORTH_MEASURING:
                self.read_rate = read_bytes / max(time.perf_counter() - started_at, 1e-6)
            self.cached_bytes = sum(self._cached.values())
            self.epoch = epochs[-1]
        return True

    def read_ahead(self, directory: Path, logs: Mapping[str, Log]) -> int:
        """Read the logs beyond the newest epoch record, once; returns the number of records or bytes."""
        state, units = StateDirectory(directory), 0
        with contextlib.suppress(PenstockError, OSError, KeyError):
            reached = state.records.last_offsets()
            facts = state.read_facts()
            for name, log in logs.items():
                log.resumed({} if facts is None else facts.logs.get(name, {}))
                at = reached.get(name, {})
                for partition in log.partitions(at):
                    start = max(
                        at.get(partition.id, partition.earliest), self._read_end.get((name, partition.id), 0)
                    )
                    end = min(partition.latest, start + _AHEAD_BYTES // log.unit_bytes)
                    if end <= start:
                        continue
                    end = log.cut(partition.id, start, end - start)
                    for _ in log.read(Span(partition.id, start, end)):
                        pass
                    self._read_end[name, partition.id] = end
                    units += log.units(partition.id, start, end)
        return units
