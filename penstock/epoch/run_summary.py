"""What a run of an engine did, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.epoch.report import EpochReport


@dataclass
class Run:
    """What a run of the engine did."""

    epochs: int = 0
    events: int = 0
    late: int = 0
    leaped: int = 0
    bad: int = 0
    seconds: float = 0.0
    first_epoch: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    def add(self, report: EpochReport) -> None:
        """Count an epoch in."""
        self.epochs += 1
        self.events += report.events
        self.late += report.late
        self.leaped += report.leaped
        self.bad += report.bad
        self.first_epoch = report.epoch if self.first_epoch is None else self.first_epoch
