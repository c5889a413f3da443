"""The latest epochs of an engine in figures, for a service in another process that follows it.

Receives the report of every epoch; returns the figures from an epoch on as JSON takes them, without rows.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from penstock.epoch.report import EpochReport

#: epochs that are kept: a service asks twice a second
KEPT_EPOCHS = 100
#: outputs of which it is kept how many rows they emitted in an epoch
MOST_OUTPUTS = 1_000


class Recent:
    """The latest epochs. From any thread."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_EPOCHS)
        self._lock = threading.Lock()

    def add(self, report: EpochReport) -> None:
        """Take in an epoch."""
        figures = report.metrics.to_plain()
        figures |= {name: dict(list(figures[name].items())[:MOST_OUTPUTS]) for name in ("rows", "until")}
        with self._lock:
            self._kept.append(figures)

    def since(self, epoch: int) -> list[dict[str, Any]]:
        """The epochs from one on, as far as they are kept."""
        with self._lock:
            return [figures for figures in self._kept if figures["epoch"] >= epoch]
