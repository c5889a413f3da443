"""Makes the state of every n-th epoch durable; the state of the epochs in between is in memory.

New runs are written to a directory in the host's memory. What is merged or dropped before the n-th epoch ends never
reaches the disk. After a loss the engine goes back to the last durable manifest and repeats the epochs after it from
their records, which are always durable.

Guarantees: a durable manifest names only runs of the state directory, all of them synced before it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from penstock.epoch.report import EpochReport
from penstock.state.directory import StateDirectory
from penstock.state.durable import copy_whole
from penstock.state.generation import state_gone_error
from penstock.state.manifest import Manifest
from penstock.state.run_file import damaged_run_error, unwritable_error

#: durable manifests that `CheckpointGrowth` looks at: large merges are rare, and part of the mean
_MEASURED = 64


class Checkpoints:
    """The manifests of one engine. `every` may change at any time; without `memory` every epoch is durable."""

    def __init__(self, state: StateDirectory, memory: str | None, every: int = 1) -> None:
        self._state = state
        self._memory = None if memory is None else Path(memory)
        self.every = every
        #: the state after the last epoch, durable or not
        self.manifest = state.manifests.latest()
        self._durable = self.manifest
        #: CPU seconds of the last durable manifest, and the bytes of runs that were copied to disk for it
        self.cpu_seconds = 0.0
        self.copied_bytes = 0

    @property
    def can_defer(self) -> bool:
        """Whether epochs may end without a durable manifest."""
        return self._memory is not None

    @property
    def durable_epoch(self) -> int:
        """The epoch of the last durable manifest."""
        return self._durable.epoch

    def commit(self, manifest: Manifest) -> tuple[str, ...]:
        """Commit the state after an epoch; returns the runs that no later epoch reads."""
        unused = tuple(self.manifest.runs() - manifest.runs())
        if self._memory is None or manifest.epoch - self._durable.epoch >= self.every:
            self._write(manifest)
        self.manifest = manifest
        if self._memory is not None:
            for run in unused:
                (self._memory / run).unlink(missing_ok=True)
        return unused

    def checkpoint(self) -> None:
        """Make the state after the last epoch durable, whatever the interval."""
        if self.manifest.epoch > self._durable.epoch:
            self._write(self.manifest)

    def _write(self, manifest: Manifest) -> None:
        started = time.process_time()
        in_memory: list[Path] = []
        if self._memory is not None:
            if not self._state.path.is_dir():
                raise state_gone_error(self._state.path)
            new = sorted(manifest.runs() - self._durable.runs())
            copied = [run for run in new if (self._memory / run).exists()]
            for run in set(new).difference(copied):
                if not (self._state.runs / run).exists():  # the others were written there, and synced
                    raise damaged_run_error(self._memory / run, "it is gone from the memory of this host")
            in_memory = [self._memory / run for run in copied]
            try:
                pairs = zip(in_memory, (self._state.runs / run for run in copied), strict=True)
                self.copied_bytes = copy_whole(pairs)
            except OSError as failure:
                raise unwritable_error(self._state.runs, failure) from failure
        self._state.manifests.commit(manifest)
        self._durable = manifest
        for path in in_memory:
            path.unlink(missing_ok=True)
        self.cpu_seconds = time.process_time() - started


class CheckpointGrowth:
    """Measures how the bytes of a durable manifest grow with the epochs since the one before: as their power.

    With 1 a manifest of n epochs writes n times the bytes of one; with less, it saves what was merged or dropped in
    between. It is 1 until durable manifests are several epochs apart.
    """

    def __init__(self) -> None:
        #: bytes of the runs of each epoch since the last durable manifest
        self._run_bytes: list[int] = []
        #: of durable manifests: their epochs, the bytes of all their runs, the bytes copied to disk
        self._measured: deque[tuple[int, int, int]] = deque(maxlen=_MEASURED)

    def add(self, report: EpochReport) -> None:
        """Add an epoch."""
        self._run_bytes.append(report.run_bytes)
        if report.durable_epoch == report.epoch:
            if len(self._run_bytes) > 1:
                self._measured.append((len(self._run_bytes), sum(self._run_bytes), report.checkpoint_bytes))
            self._run_bytes = []

    @property
    def power(self) -> float:
        """The power, from 0 to 1."""
        return estimate_power(self._measured)


def estimate_power(measured: Sequence[tuple[int, int, int]]) -> float:
    """The power by the sums over durable manifests, from 0 to 1."""
    epochs, written, durable = (
        (sum(column) for column in zip(*measured, strict=True)) if measured else (0, 0, 0)
    )
    if not written or not durable:
        return 1.0
    interval, bytes_per_epoch = epochs / len(measured), written / epochs
    power = math.log(durable / len(measured) / bytes_per_epoch) / math.log(interval)
    return min(max(power, 0.0), 1.0)
