"""The checkpoint interval: of every n-th epoch the state is made durable, of those in between it is in memory.

Receives the manifest of every epoch, in order; hands the state directory every n-th, with the runs that it names.

New runs are written into a directory of the host's memory. What has been merged or dropped before the n-th epoch ends
is never written to disk. After a loss the engine goes back to the last durable manifest and repeats the epochs after it
as they are recorded, which they are every time.

Invariant: a durable manifest names runs of the state directory only, all of them synced before it.
"""

from __future__ import annotations

import time
from pathlib import Path

from penstock.state.directory import StateDirectory
from penstock.state.durable import copy_whole
from penstock.state.generation import state_gone_error
from penstock.state.manifest import Manifest
from penstock.state.run_file import unwritable_error


class Interval:
    """The manifests of one engine. `every` may be changed at any time; without a `memory` every epoch is durable."""

    def __init__(self, state: StateDirectory, memory: str | None, every: int = 1) -> None:
        self._state = state
        self._memory = None if memory is None else Path(memory)
        self.every = every
        #: the state after the last epoch, durable or not
        self.manifest = state.manifests.latest()
        self._durable = self.manifest
        #: CPU seconds the last durable manifest took, and the bytes of runs that were copied for it
        self.cpu_seconds = 0.0
        self.copied_bytes = 0

    @property
    def in_memory(self) -> bool:
        """Whether epochs may end without a durable manifest."""
        return self._memory is not None

    @property
    def durable_epoch(self) -> int:
        """The epoch of the last durable manifest."""
        return self._durable.epoch

    def commit(self, manifest: Manifest) -> tuple[str, ...]:
        """Take the state after an epoch; the runs that no epoch to come reads."""
        gone = tuple(self.manifest.runs() - manifest.runs())
        if self._memory is None or manifest.epoch - self._durable.epoch >= self.every:
            self._make_durable(manifest)
        self.manifest = manifest
        if self._memory is not None:
            for run in gone:
                (self._memory / run).unlink(missing_ok=True)
        return gone

    def checkpoint(self) -> None:
        """Have the last epoch durable, whatever the interval."""
        if self.manifest.epoch > self._durable.epoch:
            self._make_durable(self.manifest)

    def _make_durable(self, manifest: Manifest) -> None:
        began = time.process_time()
        held: list[Path] = []
        if self._memory is not None:
            if not self._state.path.is_dir():
                raise state_gone_error(self._state.path)
            new = sorted(manifest.runs() - self._durable.runs())
            there = [run for run in new if (self._memory / run).exists()]
            held = [self._memory / run for run in there]
            try:
                pairs = zip(held, (self._state.runs / run for run in there), strict=True)
                self.copied_bytes = copy_whole(pairs)
            except OSError as failure:
                raise unwritable_error(self._state.runs, failure) from failure
        self._state.manifests.commit(manifest)
        self._durable = manifest
        for path in held:
            path.unlink(missing_ok=True)
        self.cpu_seconds = time.process_time() - began
