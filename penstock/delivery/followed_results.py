"""Read the results that an engine in another process keeps.

For each job it remembers the last epoch in which the job emitted rows, and reads those when they are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from penstock.delivery.result_log import JobResult, ResultLog

_CACHED_RESULTS = 256


class FollowedResults(ResultLog):
    """The results that an engine elsewhere keeps under a state directory."""

    def __init__(self, directory: Path, kept: int = 1_000) -> None:
        super().__init__(directory, kept)
        self._last: dict[str, int] = {}
        self._through = -1

    def load(self, jobs: Collection[str]) -> None:
        with self._lock:
            self._latest.clear()
            self._last.clear()
            self._list_epochs()
            self._through = self._epochs[-1] if self._epochs else -1
            missing = set(jobs)
            for epoch in reversed(self._epochs):
                if not missing:
                    break
                for name in self.outputs_in(epoch):
                    self._last.setdefault(name, epoch)
                    missing.discard(name)

    def follow(self, committed: int) -> Counter[str]:
        """Read what was put there up to a committed epoch; return how often each job has emitted rows since the last
        call."""
        counts: Counter[str] = Counter()
        with self._lock:
            self._list_epochs()
            if self._through > committed + 1:  # the state was rolled back
                self._last.clear()
                self._latest.clear()
                self._through = -1
            for epoch in self._epochs:
                if self._through < epoch <= committed:
                    names = self.outputs_in(epoch)
                    counts.update(names)
                    self._last |= dict.fromkeys(names, epoch)
                    self._through = epoch
        return counts

    def latest_epoch(self, job: str) -> JobResult | None:
        with self._lock:
            epoch, known = self._last.get(job), self._latest.get(job)
        if epoch is None or (known is not None and known.epoch == epoch):
            return known
        result = next((result for _, result in self._read(epoch, [job])), None)
        if result is None:
            return known  # it has emitted other rows since, and these are gone
        with self._lock:
            self._latest[job] = result
            for old in list(self._latest)[:-_CACHED_RESULTS]:
                del self._latest[old]
        return result

    def forget(self, job: str) -> None:
        with self._lock:
            self._last.pop(job, None)
            self._latest.pop(job, None)
