"""What is written down when an engine of a unit comes to lead, and when its first results are out.

Receives the unit's record, a lease and the reports of the first epochs; hands the record with the recovery, and what
the recovery measured.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.epoch.recovery import RecoveryOutcome
from penstock.epoch.runner import EpochReport
from penstock.ha.unit import KEPT, Recovery, UnitRecord
from penstock.state.directory import StateDirectory

#: jobs of a recovery that are kept in the unit's record: it is read and written whole
JOBS_KEPT = 50


@dataclass
class Lead:
    """The lead of one engine: since when, and what is still to be measured of it."""

    name: str
    generation: int
    directory: Path
    #: when the engine began its life
    since: float
    #: whether it had been following: then there is nothing to wire
    promoted: bool = False
    semantics: str = "precise"
    began: float = field(default_factory=time.time)
    #: when it was ready for epochs
    ready_at: float | None = None
    _wired: bool = False
    _told: bool = False

    def installed(self, record: UnitRecord) -> UnitRecord:
        """The record of a unit that this engine leads."""
        after = replace(record, leader=self.name, generation=self.generation, directory=str(self.directory))
        if record.leader is None or record.leader == self.name:
            return after
        recovery = Recovery(
            lost=record.leader,
            leader=self.name,
            generation=self.generation,
            scheme=str(record.scheme),
            lease_at=self.began,
            failed_at=record.lost.get(record.leader),
            last_result_at=last_commit(Path(record.directory)),
            semantics=self.semantics,
        )
        return replace(after, recoveries=(*record.recoveries[1 - KEPT :], recovery))

    def wire(self, report: EpochReport) -> float | None:
        """From the lease to the beginning of the first epoch, if this is it; waiting for events is not counted."""
        if self._wired:
            return None
        self._wired = True
        if self.promoted:
            return None
        until = report.committed_at - report.seconds
        if self.ready_at is not None:
            until = min(until, self.ready_at + 1.0)
        return max(until - self.began, 0.0)

    def is_first_result(self, report: EpochReport) -> bool:
        """Whether these are the first results that the sinks did not have."""
        had = report.delivery_skipped or report.redelivered
        first = not self._told and not had
        self._told |= first
        return first

    def resulted(
        self, record: UnitRecord, report: EpochReport, back: RecoveryOutcome
    ) -> tuple[UnitRecord, dict[str, float]]:
        """The record with the first results of the recovery, and what that measured. What engines ended with before
        is over: the unit has come on."""
        if record.phase == "running":
            record = replace(record, errors=())
        if not record.recoveries or record.recoveries[-1].generation != self.generation:
            return record, {}
        last = replace(
            record.recoveries[-1],
            first_result_at=report.committed_at,
            first_epoch=report.epoch,
            outcome=back.outcome(),
            jobs=back.by_job(JOBS_KEPT),
        )
        figures = {}
        # who was started after the failure was not there to detect it
        if last.detected_after is not None and last.failed_at is not None and self.since < last.failed_at:
            figures["detect"] = last.detected_after
        return replace(record, recoveries=(*record.recoveries[:-1], last)), figures


def last_commit(directory: Path) -> float | None:
    """When the newest manifest of a directory was written."""
    epochs = StateDirectory(directory).manifests.epochs()
    with contextlib.suppress(OSError):
        if epochs:
            return (directory / "manifests" / f"{epochs[-1]:012d}.json").stat().st_mtime
    return None
