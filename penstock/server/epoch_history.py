"""The last epochs in figures, for charts and rates. Bounded, and filled by the epochs themselves.

Receives the figures of every epoch; returns points, and what jobs emitted and streams brought a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.gauges import RECENT_SECONDS
from penstock.metrics.epoch import EpochMetrics

#: epochs that are remembered: five minutes of epochs of a second
KEPT_EPOCHS = 300


class Past:
    """Not safe for two threads: the host holds a lock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._points: deque[dict[str, Any]] = deque(maxlen=KEPT_EPOCHS)
        #: rows told by job and units read by stream, of the last seconds
        self._recent: deque[tuple[float, Mapping[str, int], Mapping[str, int]]] = deque()
        self._began = clock()

    def add(self, epoch: EpochMetrics, backlog: int) -> None:
        """Take in an epoch."""
        newest, oldest = epoch.ages
        self._points.append(
            {
                "epoch": epoch.epoch,
                "at": epoch.committed_at,
                "events": epoch.events,
                "seconds": epoch.seconds,
                "newest_age_seconds": newest,
                "oldest_age_seconds": oldest,
                "late": epoch.late,
                "dead": epoch.bad,
                "backlog": backlog,
                "state_bytes": epoch.state_bytes,
            }
        )
        self._recent.append((epoch.committed_at, epoch.rows, epoch.units))
        self._forget()

    def points(self, most: int) -> list[dict[str, Any]]:
        """The latest epochs, oldest first."""
        return list(self._points)[-most:]

    def told_per_second(self, job: str) -> float:
        """Rows a second a job told of late."""
        seconds = self._forget()
        return sum(told.get(job, 0) for _, told, _ in self._recent) / seconds

    def units_per_second(self) -> dict[str, float]:
        """Units a second read of each stream of late."""
        seconds, found = self._forget(), dict[str, float]()
        for _, _, units in self._recent:
            for stream, count in units.items():
                found[stream] = found.get(stream, 0.0) + count / seconds
        return found

    def _forget(self) -> float:
        """Let go of what is older than the last seconds; hands how many these are."""
        now = self._clock()
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        return max(min(now - self._began, RECENT_SECONDS), 1e-3)
