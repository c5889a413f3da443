"""Keeps the latest epochs as points for charts and rates, and sums up what an engine has done so far.

Bounded: it holds at most `MAX_EPOCHS` points and the figures of the last seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.engine.gauges import RECENT_SECONDS, Gauges
from penstock.metrics.epoch import EpochMetrics

#: five minutes of epochs of a second
MAX_EPOCHS = 300


class EpochHistory:
    """Not safe for two threads: the host holds a lock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._points: deque[dict[str, Any]] = deque(maxlen=MAX_EPOCHS)
        #: when, rows emitted by job and units read by stream, of the last seconds
        self._recent: deque[tuple[float, Mapping[str, int], Mapping[str, int]]] = deque()
        self._started_at = clock()

    def add(self, epoch: EpochMetrics, backlog: int) -> None:
        """Add an epoch."""
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
        self._drop_old()

    def points(self, limit: int) -> list[dict[str, Any]]:
        """The latest epochs, oldest first."""
        return list(self._points)[-limit:]

    def rows_per_second(self, job: str) -> float:
        """Rows that a job emitted a second, recently."""
        seconds = self._drop_old()
        return sum(rows.get(job, 0) for _, rows, _ in self._recent) / seconds

    def units_per_second(self) -> dict[str, float]:
        """Bytes or records read of each stream a second, recently."""
        seconds, rates = self._drop_old(), dict[str, float]()
        for _, _, units in self._recent:
            for stream, count in units.items():
                rates[stream] = rates.get(stream, 0.0) + count / seconds
        return rates

    def _drop_old(self) -> float:
        """Drop what is older than the last seconds; return how many seconds the rest covers."""
        now = self._clock()
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        return max(min(now - self._started_at, RECENT_SECONDS), 1e-3)


def status_values(gauges: Gauges) -> dict[str, Any]:
    """Epochs, events, latency and watermarks so far, as `/status` has them."""
    latency = gauges.latency(recent=True)
    return {
        "epochs": gauges.epochs,
        "events": gauges.events,
        "events_per_second": gauges.rate() if gauges.epochs else 0.0,
        "late": gauges.late,
        "leaped": gauges.skipped_partitions,
        "dead": gauges.dead_letters,
        "latency_seconds": None if latency is None else {"p50": latency.p50, "p99": latency.p99},
        "watermark": _instant(gauges.watermark),
        "watermarks": {name: _instant(mark) for name, mark in gauges.watermarks.items()},
        "state_bytes": gauges.state_bytes,
    }


def _instant(micros: int | None) -> str | None:
    """A watermark as ISO-8601; None before there is one, and once the stream has ended."""
    if micros is None or abs(micros) > 250_000_000_000_000_000:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
