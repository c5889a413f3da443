"""Measures the recent load of a leader for the controller of its unit, and figures for the unit's record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from penstock.epoch.checkpoint import CheckpointGrowth
from penstock.epoch.runner import EpochReport
from penstock.ha.history import ReportedLoad

#: the time between two loads, in seconds
_LOAD_SECONDS = 1.0
#: the time between two writes of figures, in seconds
_FIGURES_SECONDS = 10.0
#: the least input to measure its speed, in bytes: with less, opening files takes most of the time
_WORTH_MEASURING = 1 << 16


class LoadGauge:
    """Sums epochs up between two requests. From any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: list[EpochReport] = []
        self._since = clock()
        self._figures_at = clock()
        self._last: ReportedLoad | None = None
        self._growth = CheckpointGrowth()
        self._figures: dict[str, float] = {}

    def add(self, report: EpochReport) -> None:
        """Add an epoch."""
        with self._lock:
            self._reports.append(report)
            self._growth.add(report)
            if report.durable_epoch == report.epoch:
                self._figures["manifest"] = report.manifest_cpu_seconds
            scanning = report.stage_seconds.get("scan", 0.0)
            if report.bytes >= _WORTH_MEASURING and scanning > 0:
                self._figures["fetch"] = report.bytes / scanning

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next load."""
        return self._clock() >= self._since + _LOAD_SECONDS

    def load(self) -> ReportedLoad | None:
        """The load since the last request; None before the first epoch."""
        with self._lock:
            reports, self._reports = self._reports, []
        now = self._clock()
        passed, self._since = max(now - self._since, 1e-6), now
        last = self._last
        if not reports:
            return None if last is None else _idle(last, now)
        working = max(sum(report.seconds for report in reports), 1e-6)
        events = sum(report.events for report in reports)
        output_bytes = sum(frame.estimated_size() for report in reports for frame in report.rows.values())
        known = 1.0 if last is None else last.most_events_per_second
        self._last = ReportedLoad(
            at=now,
            events_per_second=events / passed,
            most_events_per_second=events / working if events else known,
            input_bytes_per_second=sum(report.bytes for report in reports) / passed,
            output_bytes_per_second=output_bytes / passed,
            state_bytes=float(reports[-1].state_bytes),
            run_bytes=sum(report.run_bytes for report in reports) / len(reports),
            epoch_seconds=max(working, passed) / len(reports),
            work_seconds=working / len(reports),
            run_growth=self._growth.power,
        )
        return self._last

    def figures(self) -> dict[str, float]:
        """Figures that were measured and not returned yet; often none."""
        if self._clock() - self._figures_at < _FIGURES_SECONDS:
            return {}
        with self._lock:
            figures, self._figures = self._figures, {}
        if figures:
            self._figures_at = self._clock()
        return figures


def _idle(last: ReportedLoad, now: float) -> ReportedLoad:
    """The load of a period without an epoch."""
    return replace(
        last, at=now, events_per_second=0.0, input_bytes_per_second=0.0, output_bytes_per_second=0.0
    )
