"""The latest epochs of an engine in figures, for a service in another process that follows it.

Receives the report of every epoch; hands those from an epoch on as JSON takes them, and reports made of them again:
without rows, of which only the number is told.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from penstock.engine.report import EpochReport

#: epochs that are kept: a service asks twice a second
KEPT_EPOCHS = 100
#: outputs of which it is kept how many rows they told in an epoch
MOST_OUTPUTS = 1_000

_FIGURES = (
    "epoch",
    "events",
    "bytes",
    "late",
    "bad",
    "seconds",
    "units",
    "watermark",
    "watermarks",
    "state_bytes",
    "oldest",
    "newest",
    "committed_at",
    "leaped",
)


class Recent:
    """The latest epochs. From any thread."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_EPOCHS)
        self._lock = threading.Lock()

    def add(self, report: EpochReport) -> None:
        """Take in an epoch."""
        told = {name: rows.height for name, rows in report.rows.items() if rows.height}
        figures = {name: getattr(report, name) for name in _FIGURES}
        figures |= {"units": dict(report.units), "told": dict(list(told.items())[:MOST_OUTPUTS])}
        with self._lock:
            self._kept.append(figures)

    def since(self, epoch: int) -> list[dict[str, Any]]:
        """The epochs from one on, as far as they are kept."""
        with self._lock:
            return [figures for figures in self._kept if figures["epoch"] >= epoch]


def report_of(figures: Mapping[str, Any]) -> tuple[EpochReport, Mapping[str, int]]:
    """The report that figures were taken from, and how many rows each output told."""
    known = {name: figures[name] for name in _FIGURES}
    return EpochReport(**known, stage_seconds={}), figures["told"]
