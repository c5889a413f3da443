"""Agrees on the copies of replicated logs between the engines of a unit.

reporting   every engine that does not lead reports what it can read, by stream, partition and copy
decision    the leader admits of a partition only what all of them have of one copy, and the epoch record names it;
            one that lacks what the others have is waited for, then skipped (see `penstock.logs.stragglers`)
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from penstock.ha.unit import Unit
from penstock.logs.copy_choice import Extent
from penstock.logs.replicated import Reach, ReplicatedLog
from penstock.state.shared_records import SharedRecords

#: after how many seconds an unchanged report is repeated: the coordination store may have been unavailable
REPEAT_SECONDS = 1.0
#: partitions that a message names of those that an engine lacks; the others are counted
MOST_NAMED = 5
#: stream, partition, number of the copy: [earliest, latest]
Report = Mapping[str, Mapping[str, Mapping[str, list[int]]]]


def replicated_logs(program: Program) -> dict[str, ReplicatedLog]:
    """The replicated logs of a program's app, by stream; only the leader knows which streams other jobs read."""
    scans = {} if program.app_plan is None else program.app_plan.scans
    logs = {name: scan.stream.log for name, scan in scans.items()}
    return {name: log for name, log in logs.items() if isinstance(log, ReplicatedLog)}


class CopyReporter:
    """Reports what an engine that does not lead can read. It has logs of its own: the engine uses the plan's."""

    def __init__(self, program: Program, shared_records: SharedRecords, report: Callable[..., None]) -> None:
        self._logs = copy.deepcopy(replicated_logs(program))
        self._shared_records, self._report = shared_records, report
        self._last: dict[str, Any] | None = None
        self._reported_at = 0.0

    def look(self) -> None:
        """Report what can be read now, if that has changed or the last report is old: it may have been lost."""
        if not self._logs:
            return
        reach, now = self.reach(self._leader_offsets()), time.monotonic()
        if reach != self._last or now - self._reported_at > REPEAT_SECONDS:
            self._last, self._reported_at = reach, now
            self._report(reach=reach)

    def reach(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        """What can be read from these offsets on; nothing of a stream of which no copy can be reached."""
        reach: dict[str, Any] = {}
        for name, log in self._logs.items():
            try:
                partitions = log.reach(offsets.get(name, {}))
            except (PenstockError, OSError):  # the leader reports what the user has to fix
                partitions = {}
            reach[name] = {
                partition: {str(number): [one.earliest, one.latest] for number, one in extents.items()}
                for partition, extents in partitions.items()
            }
        return reach

    def _leader_offsets(self) -> Mapping[str, Mapping[str, int]]:
        """The leader's offsets, by the unit's epoch records."""
        epochs = self._shared_records.epochs()
        try:
            record = self._shared_records.read(epochs[-1]) if epochs else None
        except PenstockError:  # damaged: others report that
            record = None
        return {} if record is None else record.end.at


class CopyReports:
    """The other engines' reports, which a leader passes to its logs. It reports which engines are skipped."""

    def __init__(
        self,
        program: Program,
        unit: Unit,
        leader: str,
        patience_seconds: float,
        report: Callable[..., None],
        print_line: Callable[[str], None],
    ) -> None:
        self._logs = replicated_logs(program)
        self._unit, self._leader, self._patience = unit, leader, patience_seconds
        self._report, self._print = report, print_line
        self._skipped: dict[str, list[str]] = {}

    def collect(self) -> None:
        """Read the reports of the engines that are up and stay. An engine without a report is not waited for."""
        if not self._logs:
            return
        leaving = self._unit.record().leaving
        self.apply(
            {
                name: engine.reach
                for name, engine in self._unit.engines().items()
                if name != self._leader and name not in leaving and engine.seems_up
            }
        )

    def apply(self, reports: Mapping[str, Report]) -> None:
        """Pass reports, by engine, to the logs; and report the engines that are skipped now."""
        for name, log in self._logs.items():
            extents = {engine: _extents(one[name]) for engine, one in reports.items() if name in one}
            log.set_reports(extents, self._patience)
        lacking: dict[str, list[str]] = {}
        for name, log in self._logs.items():
            for engine, partitions in log.find_skipped().items():
                lacking.setdefault(engine, []).extend(f"{name}/{partition}" for partition in partitions)
        skipped = {engine: _shorten(partitions) for engine, partitions in lacking.items()}
        if skipped == self._skipped:
            return
        for engine in sorted(skipped.keys() - self._skipped.keys()):
            self._print(
                f"does not wait for {engine}, which has no copy of {', '.join(skipped[engine])} in time"
            )
        for engine in sorted(self._skipped.keys() - skipped.keys()):
            self._print(f"{engine} lacks nothing any more, or is gone")
        self._skipped = skipped
        self._report(passed_over=skipped)


def _shorten(partitions: list[str]) -> list[str]:
    more = len(partitions) - MOST_NAMED
    return partitions if more <= 0 else [*partitions[:MOST_NAMED], f"{more} more"]


def _extents(report: Mapping[str, Mapping[str, list[int]]]) -> Reach:
    return {
        partition: {int(number): Extent(*extent) for number, extent in extents.items()}
        for partition, extents in report.items()
    }
