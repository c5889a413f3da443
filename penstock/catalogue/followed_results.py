"""The results of jobs as a process sees them that runs no epochs: it follows what the engine puts there.

Receives the files of a results folder as they come; hands what `Results` hands. It holds of each job in which epoch it
told last, and reads the rows when they are asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import polars as pl
import pyarrow as pa

from penstock.catalogue.results import JobResult, Results
from penstock.state.ipc import from_stream

#: answers that are kept at hand
_AT_HAND = 256


class FollowedResults(Results):
    """The results that an engine elsewhere keeps under a state directory."""

    def __init__(self, directory: Path, kept: int = 1_000) -> None:
        super().__init__(directory, kept)
        self._last: dict[str, int] = {}
        self._through = -1

    def load(self, jobs: Collection[str]) -> None:
        with self._lock:
            self._latest.clear()
            self._last.clear()
            self._list()
            self._through = self._epochs[-1] if self._epochs else -1
            missing = set(jobs)
            for epoch in reversed(self._epochs):
                if not missing:
                    break
                for name in self._told(epoch):
                    self._last.setdefault(name, epoch)
                    missing.discard(name)

    def follow(self, committed: int) -> Counter[str]:
        """Take in what was put there up to a committed epoch; hands how often each job has told something since."""
        told: Counter[str] = Counter()
        with self._lock:
            self._list()
            if self._through > committed + 1:  # the state was rolled back
                self._last.clear()
                self._latest.clear()
                self._through = -1
            for epoch in self._epochs:
                if self._through < epoch <= committed:
                    names = self._told(epoch)
                    told.update(names)
                    self._last |= dict.fromkeys(names, epoch)
                    self._through = epoch
        return told

    def latest_epoch(self, job: str) -> JobResult | None:
        with self._lock:
            epoch, known = self._last.get(job), self._latest.get(job)
        if epoch is None or (known is not None and known.epoch == epoch):
            return known
        answer = next((answer for _, answer in self._of(epoch, [job])), None)
        if answer is None:
            return known  # it has told something else since, and this is gone
        with self._lock:
            self._latest[job] = answer
            for old in list(self._latest)[:-_AT_HAND]:
                del self._latest[old]
        return answer

    def forget(self, job: str) -> None:
        with self._lock:
            self._last.pop(job, None)
            self._latest.pop(job, None)

    def _list(self) -> None:
        names = os.listdir(self._folder) if self._folder.exists() else []
        self._epochs = sorted(int(name[:-6]) for name in names if name.endswith(".arrow") and name[0] != ".")
        self.retained_from = self._epochs[-self._kept] if len(self._epochs) >= self._kept else 0

    def _told(self, epoch: int) -> set[str]:
        """The jobs that told something in an epoch."""
        try:
            with pa.memory_map(str(self._path(epoch))) as file:
                told: pl.Series = from_stream(file.read_buffer())["jobs"].explode()
        except FileNotFoundError:
            return set()
        return set(told.to_list())
