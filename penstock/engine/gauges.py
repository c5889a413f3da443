"""Sums epoch reports up for the live view and the summary: rate, latency, epochs, totals, and the latest results.

*Latency* is end to end: from the time of an event to the commit of its epoch, when its results are in the sinks. An
epoch has an oldest and a newest event time; its events count as spread evenly between the two. Access logs have whole
seconds, so up to one second of the latency is rounding. Events older than an hour are a replay and have no latency.
The wait of a window for its end does not count.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.epoch.report import EpochReport
from penstock.metrics import Registry, fold_epoch
from penstock.metrics import declared as m
from penstock.metrics.epoch import REPLAY_SECONDS, EpochMetrics

#: rates and latencies of the live view look back this far, in seconds
RECENT_SECONDS = 10.0
#: epochs the sparklines show
SHOWN_EPOCHS = 60
#: epochs the summary's latency looks back
KEPT_EPOCHS = 5_000


@dataclass(frozen=True)
class Latency:
    """The latency of half and of 99 of 100 events, in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True)
class _Epoch:
    at: float
    events: int
    seconds: float
    newest_seconds: float | None
    oldest_seconds: float | None


@dataclass
class Gauges:
    """Sums reports up. Not safe for two threads: the view holds a lock."""

    clock: Callable[[], float] = time.time
    #: counts of everything, as they are exported
    registry: Registry = field(default_factory=Registry)
    last_epoch: int | None = None
    state_bytes: int = 0
    watermark: int | None = None
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    results: dict[str, pl.DataFrame] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    _epochs: deque[_Epoch] = field(default_factory=lambda: deque(maxlen=KEPT_EPOCHS))
    _recent: deque[_Epoch] = field(default_factory=lambda: deque(maxlen=SHOWN_EPOCHS))

    def start(self) -> None:
        """The engine is ready; epochs follow."""
        self.started_at = self.clock()

    @property
    def epochs(self) -> int:
        """Epochs so far."""
        return self.registry.count(m.EPOCHS)

    @property
    def events(self) -> int:
        """Events so far."""
        return self.registry.count(m.EVENTS)

    @property
    def late(self) -> int:
        """Late events so far."""
        return self.registry.count(m.LATE_EVENTS)

    @property
    def skipped_partitions(self) -> int:
        """Partitions skipped so far."""
        return self.registry.count(m.SKIPPED_PARTITIONS)

    @property
    def dead_letters(self) -> int:
        """Dead letters so far."""
        return self.registry.count(m.DEAD_LETTERS)

    def add(self, report: EpochReport) -> None:
        """Add an epoch and its rows."""
        self.count(report.metrics)
        for name, rows in report.rows.items():
            if rows.height:
                self.results[name] = latest_rows(rows)

    def count(self, epoch: EpochMetrics) -> None:
        """Add the figures of an epoch, without its rows."""
        fold_epoch(self.registry, epoch)
        self.last_epoch = epoch.epoch
        self.state_bytes = epoch.state_bytes
        self.watermark, self.watermarks = epoch.watermark, epoch.watermarks
        self.ended_at = epoch.committed_at
        summary = _Epoch(epoch.committed_at, epoch.events, epoch.seconds, *epoch.ages)
        self._epochs.append(summary)
        self._recent.append(summary)

    def rate(self) -> float:
        """Recent events per second."""
        now = self.clock()
        since = max(now - RECENT_SECONDS, self.started_at or now - RECENT_SECONDS)
        return sum(e.events for e in self._recent if e.at > since) / max(now - since, 1e-3)

    def mean_rate(self) -> float:
        """Events a second from the engine's readiness to the last commit."""
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return self.events / max(self.ended_at - self.started_at, 1e-3)

    def latency(self, *, recent: bool) -> Latency | None:
        """The recent latency, or that of the whole run (its last 5,000 epochs); None without live events."""
        if not recent:
            return latency_of(self._epochs)
        since = self.clock() - RECENT_SECONDS
        return latency_of(epoch for epoch in self._recent if epoch.at > since)

    def epoch_seconds(self) -> list[float]:
        """How long the last epochs took, oldest first."""
        return [epoch.seconds for epoch in self._recent]

    def epoch_events(self) -> list[float]:
        """How many events the last epochs had."""
        return [float(epoch.events) for epoch in self._recent]


def latency_of(epochs: Iterable[_Epoch], points: int = 101) -> Latency | None:
    """Quantiles over all events of these epochs, each epoch's spread evenly from its newest to its oldest."""
    ages, weights = [], []
    for epoch in epochs:
        if epoch.newest_seconds is None or epoch.oldest_seconds is None or not epoch.events:
            continue
        if epoch.newest_seconds > REPLAY_SECONDS:
            continue
        ages.append(np.linspace(epoch.newest_seconds, epoch.oldest_seconds, points))
        weights.append(np.full(points, epoch.events / points))
    if not ages:
        return None
    age, weight = np.concatenate(ages), np.concatenate(weights)
    order = np.argsort(age)
    share = np.cumsum(weight[order]) / weight.sum()
    places = np.minimum(np.searchsorted(share, (0.5, 0.99)), len(age) - 1)
    p50, p99 = np.maximum(age[order][places], 0.0)
    return Latency(float(p50), float(p99))


def latest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of an epoch at its last instant; all if rows have no instant."""
    for name in ("as_of", "window_end"):
        if name in rows.columns:
            return rows.filter(pl.col(name) == rows[name].max())
    return rows
