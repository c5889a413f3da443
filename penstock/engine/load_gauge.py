"""What a leading engine did of late, as the controller of its unit wants it; and figures it measures on the way.

Receives the report of every epoch; hands loads and now and then figures for the unit's record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from penstock.epoch.checkpoint import CheckpointGrowth
from penstock.epoch.runner import EpochReport
from penstock.ha.history import ReportedLoad

#: loads are asked for this far apart, in seconds
_LOAD_SECONDS = 1.0
#: figures are written down this far apart, in seconds
_FIGURES_SECONDS = 10.0
#: reading less input says more about opening files than about reading, in bytes
_WORTH_MEASURING = 1 << 16


class LoadGauge:
    """Adds epochs up between two questions. Used by the thread of the epochs and by the one that asks."""

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
        """Count an epoch."""
        with self._lock:
            self._reports.append(report)
            self._growth.add(report)
            if report.durable_epoch == report.epoch:
                self._figures["manifest"] = report.manifest_cpu_seconds
            scanning = report.stage_seconds.get("scan", 0.0)
            if report.bytes >= _WORTH_MEASURING and scanning > 0:
                self._figures["fetch"] = report.bytes / scanning

    @property
    def due(self) -> bool:
        """Whether it is time to ask for the load again."""
        return self._clock() >= self._since + _LOAD_SECONDS

    def load(self) -> ReportedLoad | None:
        """What was done since the last question; nothing before the first epoch."""
        with self._lock:
            reports, self._reports = self._reports, []
        now = self._clock()
        passed, self._since = max(now - self._since, 1e-6), now
        last = self._last
        if not reports:
            return None if last is None else _idle(last, now)
        working = max(sum(report.seconds for report in reports), 1e-6)
        events = sum(report.events for report in reports)
        told = sum(frame.estimated_size() for report in reports for frame in report.rows.values())
        known = 1.0 if last is None else last.most_events_per_second
        self._last = ReportedLoad(
            at=now,
            events_per_second=events / passed,
            most_events_per_second=events / working if events else known,
            input_bytes_per_second=sum(report.bytes for report in reports) / passed,
            output_bytes_per_second=told / passed,
            state_bytes=float(reports[-1].state_bytes),
            run_bytes=sum(report.run_bytes for report in reports) / len(reports),
            epoch_seconds=max(working, passed) / len(reports),
            work_seconds=working / len(reports),
            run_growth=self._growth.power,
        )
        return self._last

    def figures(self) -> dict[str, float]:
        """What was measured and is not written down yet; often nothing."""
        if self._clock() - self._figures_at < _FIGURES_SECONDS:
            return {}
        with self._lock:
            found, self._figures = self._figures, {}
        if found:
            self._figures_at = self._clock()
        return found


def _idle(last: ReportedLoad, now: float) -> ReportedLoad:
    """The load of a period without an epoch."""
    return replace(
        last, at=now, events_per_second=0.0, input_bytes_per_second=0.0, output_bytes_per_second=0.0
    )
