"""A simulated unit: a real record in a real store, a real controller, and engines without processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.ha.decision import Decision
from penstock.ha.history import ReportedLoad
from penstock.ha.launch import Launch
from penstock.ha.process_usage import ProcessUsage
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord
from penstock.ha.unit_controller import UnitController

LOAD = {
    "events_per_second": 20_000.0,
    "most_events_per_second": 100_000.0,
    "input_bytes_per_second": 2e6,
    "output_bytes_per_second": 1e5,
    "state_bytes": 50e6,
    "run_bytes": 2e6,
    "epoch_seconds": 1.0,
}


class World:
    """A unit with simulated engines and a manual clock."""

    def __init__(
        self,
        folder: Path,
        recovery: dict[str, Any],
        record: dict[str, Any] | None = None,
        now: float = 1_000.0,
    ) -> None:
        launch = Launch("paper", str(folder / "store"), "app.py", str(folder), recovery=recovery)
        self.unit = Unit.create(folder / "state", launch)
        controlled = "threshold_seconds" in recovery
        first = UnitRecord(
            Scheme.active_replication, str(folder), controlled=controlled, leader="e1", generation=1
        )
        self.unit.create_record(replace(first, **(record or {})))
        self.now = now
        self.load = dict(LOAD)
        #: seconds by which the leader's clock is ahead of the coordinator's
        self.ahead = 0.0
        self.reports: list[str] = []
        self.follower = UnitEngine(2, "h", "active", phase="following", epoch=99)
        #: whether some output requires that epochs are repeated
        self.repeats = False
        self.controller = self.new_controller()

    def new_controller(self) -> UnitController:
        """The controller of the next coordinator."""
        return UnitController(self.unit, self.reports.append, clock=lambda: self.now, used=self._used)

    def _used(self, pid: int) -> ProcessUsage:
        return ProcessUsage(
            cpu_seconds=self.now * (1.0 if pid == 1 else 0.05), memory_bytes=2e9 if pid == 1 else 1e9
        )

    def turn(self, seconds: float = 2.5) -> Decision:
        self.now += seconds
        load = ReportedLoad(at=self.now + self.ahead, **self.load)
        leader = UnitEngine(1, "h", "passive", phase="primary", epoch=100, repeats=self.repeats, load=load)
        decision = self.controller.look(self.unit.record(), {"e1": leader, "e2": self.follower})
        assert decision is not None
        return decision

    def turns(self, count: int = 30) -> Decision:
        for _ in range(count):
            decision = self.turn()
        return decision

    def add_measurements(self, **figures: float) -> None:
        self.unit.change(lambda now: now.add_measurements(**figures))

    @property
    def record(self) -> UnitRecord:
        return self.unit.record()
