"""Does what a leader does beside its epochs: agrees on copies, throttles, reports its load and its recovery."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.engine.engine import Engine
from penstock.engine.load_gauge import LoadGauge
from penstock.epoch.recovery import RecoveryOutcome
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError
from penstock.ha.unit import KEPT, Recovery, Unit, UnitRecord
from penstock.replica.copy_agreement import CopyReports
from penstock.replica.lag import LeaderThrottle
from penstock.replica.registration import Registration
from penstock.state.directory import StateDirectory

#: jobs of a recovery that the unit's record keeps: it is read and written as a whole
JOBS_KEPT = 50


@dataclass
class LeadershipStart:
    """The time from the lease to the first results of a leader: what it adds to the unit's record, and measures."""

    name: str
    generation: int
    directory: Path
    engine_started_at: float
    #: whether it was following: then its epochs continue without a start
    was_following: bool = False
    semantics: str = "precise"
    lease_at: float = field(default_factory=time.time)
    #: when it was ready for epochs
    ready_at: float | None = None
    _has_epoch: bool = False
    _has_result: bool = False

    def install(self, record: UnitRecord) -> UnitRecord:
        """The record with this engine as the leader and, after a failure, a recovery that starts."""
        after = replace(record, leader=self.name, generation=self.generation, directory=str(self.directory))
        if record.leader is None or record.leader == self.name:
            return after
        recovery = Recovery(
            lost=record.leader,
            leader=self.name,
            generation=self.generation,
            scheme=str(record.scheme),
            lease_at=self.lease_at,
            failed_at=record.lost.get(record.leader),
            last_result_at=last_commit_at(Path(record.directory)),
            semantics=self.semantics,
        )
        return replace(after, recoveries=(*record.recoveries[1 - KEPT :], recovery))

    def seconds_to_first_epoch(self, report: EpochReport) -> float | None:
        """Seconds from the lease to the start of the first epoch, if this is it; waits for events do not count."""
        if self._has_epoch:
            return None
        self._has_epoch = True
        if self.was_following:
            return None
        started_at = report.committed_at - report.seconds
        if self.ready_at is not None:
            started_at = min(started_at, self.ready_at + 1.0)
        return max(started_at - self.lease_at, 0.0)

    def is_first_result(self, report: EpochReport) -> bool:
        """Whether these are the first results that the sinks did not have."""
        is_first = not (self._has_result or report.delivery_skipped or report.redelivered)
        self._has_result |= is_first
        return is_first

    def add_first_result(
        self, record: UnitRecord, report: EpochReport, outcome: RecoveryOutcome
    ) -> tuple[UnitRecord, dict[str, float]]:
        """The record with the first results after the recovery, and what the recovery measured. Earlier errors of
        engines no longer count."""
        if record.phase == "running":
            record = replace(record, errors=())
        if not record.recoveries or record.recoveries[-1].generation != self.generation:
            return record, {}
        last = replace(
            record.recoveries[-1],
            first_result_at=report.committed_at,
            first_epoch=report.epoch,
            outcome=outcome.counts(),
            jobs={name: one.to_json() for name, one in outcome.by_job(JOBS_KEPT).items()},
        )
        figures = {}
        # an engine that was started after the failure could not detect it
        if (
            last.detected_after is not None
            and last.failed_at is not None
            and self.engine_started_at < last.failed_at
        ):
            figures["detect"] = last.detected_after
        return replace(record, recoveries=(*record.recoveries[:-1], last)), figures


def last_commit_at(directory: Path) -> float | None:
    """When the newest manifest of a directory was written."""
    epochs = StateDirectory(directory).manifests.epochs()
    with contextlib.suppress(OSError):
        if epochs:
            return (directory / "manifests" / f"{epochs[-1]:012d}.json").stat().st_mtime
    return None


class Leader:
    """The leader of a unit. `on_first_epoch` is called with the time at which the first epoch started, if that ends a
    start that is measured."""

    def __init__(
        self,
        unit: Unit,
        registration: Registration,
        engine: Engine,
        start: LeadershipStart,
        gauge: LoadGauge,
        print_line: Callable[[str], None],
        on_first_epoch: Callable[[float], None] | None = None,
    ) -> None:
        self._unit, self._registration, self._engine = unit, registration, engine
        self.start, self._gauge, self._on_first_epoch = start, gauge, on_first_epoch
        self._throttle = LeaderThrottle()
        self._copies = CopyReports(
            engine.program,
            unit,
            start.name,
            engine.settings.straggler_seconds,
            registration.report,
            print_line,
        )
        self._copies.collect()  # before the first epoch is decided
        unit.change(start.install)
        registration.report(phase="primary", directory=str(start.directory), reach={})
        print_line(f"leads, generation {start.generation}, on {start.directory}")

    def on_epoch(self, report: EpochReport) -> None:
        """Measure an epoch, and record the first one and the first results."""
        self._gauge.add(report)
        seconds, is_first = self.start.seconds_to_first_epoch(report), self.start.is_first_result(report)
        if seconds is not None and self._on_first_epoch is not None:
            self._on_first_epoch(self.start.lease_at + seconds)
            self._on_first_epoch, seconds = None, None
        if seconds is None and not is_first:
            return

        def add_results(record: UnitRecord) -> UnitRecord:
            figures = {} if seconds is None else {"wire": seconds}
            if is_first:
                record, measured = self.start.add_first_result(record, report, self._engine.role.recovery)
                figures |= measured
            return record.add_measurements(**figures)

        with contextlib.suppress(ExternalError):  # an outage of the store stops no engine that has its lease
            self._unit.change(add_results)

    def look(self, record: UnitRecord) -> None:
        """Read the others' reports, set the throttle, and report the load when it is due."""
        self._copies.collect()
        admission = self._engine.admission
        if admission is not None:
            admission.throttle_seconds = self._throttle.least_interval(
                self._unit, record, admission.last_admitted, self._engine.program
            )
        if not self._gauge.is_due:
            return
        if load := self._gauge.load():
            self._registration.report(load=load)
        if figures := self._gauge.figures():
            self._unit.change(lambda now: now.add_measurements(**figures))
