"""Agreement on the copies of replicated logs between the engines of a unit: reporting, and hearing what was reported.

Receives a plan and what the other engines say of themselves; hands what this engine reaches of every copy, as it goes
into its own record, and tells the logs of a leader, who decides (see `penstock.logs.copy_choice`).

    reporting   every engine that does not lead says, per stream, partition and copy, what it can read
    decision    the leader admits of a partition only what all of them have of one copy, and the epoch record names it;
                one that lacks what the others have is waited for, then passed over (see `penstock.logs.stragglers`)
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

#: after how many seconds what has not changed is said again: the coordination store may have been away
AGAIN_SECONDS = 1.0
#: of so many partitions it is said that an engine lacks them; of the others, how many they are
MOST_NAMED = 5
#: stream, partition, number of the copy: [earliest, latest]
Report = Mapping[str, Mapping[str, Mapping[str, list[int]]]]


def replicated_in(program: Program) -> dict[str, ReplicatedLog]:
    """The replicated logs of a program, by stream. Which streams jobs read that come and go, their leader knows."""
    scans = {} if program.app_plan is None else program.app_plan.scans
    logs = {name: scan.stream.log for name, scan in scans.items()}
    return {name: log for name, log in logs.items() if isinstance(log, ReplicatedLog)}


class Reporter:
    """What an engine that does not lead can reach. It looks for itself: others use the plan's logs meanwhile."""

    def __init__(self, program: Program, shared_records: SharedRecords, say: Callable[..., None]) -> None:
        self._logs = copy.deepcopy(replicated_in(program))
        self._shared_records, self._say = shared_records, say
        self._said: dict[str, Any] | None = None
        self._said_at = 0.0

    def look(self) -> None:
        """Say what can be read now, where that has changed, or a while ago: what was said may not have been heard."""
        if not self._logs:
            return
        told, now = self.report(self._reached()), time.monotonic()
        if told != self._said or now - self._said_at > AGAIN_SECONDS:
            self._said, self._said_at = told, now
            self._say(reach=told)

    def report(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        """What can be read now; `offsets`: how far each stream has been taken. Nothing of a stream of which no
        copy is reached."""
        told = {}
        for name, log in self._logs.items():
            try:
                reach = log.reach(offsets.get(name, {}))
            except (PenstockError, OSError):  # whoever leads tells of what is the user's to mend
                reach = {}
            told[name] = {
                partition: {str(number): [one.earliest, one.latest] for number, one in held.items()}
                for partition, held in reach.items()
            }
        return told

    def _reached(self) -> Mapping[str, Mapping[str, int]]:
        """How far the leader has come, as the unit's book says."""
        epochs = self._shared_records.epochs()
        try:
            record = self._shared_records.read(epochs[-1]) if epochs else None
        except PenstockError:  # damaged, which others tell of
            record = None
        return {} if record is None else record.end.at


class Hearing:
    """What a leader hears from the other engines of its unit, told to its logs. It says who is passed over."""

    def __init__(
        self,
        program: Program,
        unit: Unit,
        leader: str,
        patience_seconds: float,
        say: Callable[..., None],
        tell: Callable[[str], None],
    ) -> None:
        self._logs = replicated_in(program)
        self._unit, self._leader, self._patience = unit, leader, patience_seconds
        self._say, self._tell = say, tell
        self._passed: dict[str, list[str]] = {}

    def hear(self) -> None:
        """Tell the logs what the engines reach that are up and to stay; who has reported nothing yet is not waited
        for."""
        if not self._logs:
            return
        leaving = self._unit.record().leaving
        self.heard(
            {
                name: member.reach
                for name, member in self._unit.members().items()
                if name != self._leader and name not in leaving and member.seems_up
            }
        )

    def heard(self, reports: Mapping[str, Report]) -> None:
        """Tell the logs what others report, by their names; and the unit, who is passed over now."""
        for name, log in self._logs.items():
            told = {member: _reach(one[name]) for member, one in reports.items() if name in one}
            log.set_reports(told, self._patience)
        passed: dict[str, list[str]] = {}
        for name, log in self._logs.items():
            for member, partitions in log.find_skipped().items():
                passed.setdefault(member, []).extend(f"{name}/{partition}" for partition in partitions)
        passed = {member: _named(lacking) for member, lacking in passed.items()}
        if passed == self._passed:
            return
        for member in sorted(passed.keys() - self._passed.keys()):
            self._tell(
                f"does not wait for {member}, which has no copy of {', '.join(passed[member])} in time"
            )
        for member in sorted(self._passed.keys() - passed.keys()):
            self._tell(f"{member} lacks nothing any more, or is gone")
        self._passed = passed
        self._say(passed_over=passed)


def _named(lacking: list[str]) -> list[str]:
    more = len(lacking) - MOST_NAMED
    return lacking if more <= 0 else [*lacking[:MOST_NAMED], f"{more} more"]


def _reach(told: Mapping[str, Mapping[str, list[int]]]) -> Reach:
    return {
        partition: {int(number): Extent(*extent) for number, extent in held.items()}
        for partition, held in told.items()
    }
