"""How long a member is waited for that does not have what the others have of a partition: the bound on reporting.

Receives what each member reaches of a partition, and the time; hands the reports that count for the decision (see
`choice`), and says who is passed over.

Invariants:
- What the leader reaches always counts.
- A member that has not come within `patience_seconds` to where the others were then is passed over: whether it stands
  still or trickles. It counts again once it has come in that time to where they were.
- Of members that have no copy in common, the first by name counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.logs.choice import Extent, Reached, common

#: how long a member is waited for, in seconds: as long as for one that follows and does not come further
PATIENCE_SECONDS = 5.0


@dataclass
class _Mark:
    """What the others had of a partition, and when; whether the member is passed over since an earlier mark."""

    upto: int
    since: float
    passed: bool = False


class Stragglers:
    """Who is waited for, by partition."""

    def __init__(self) -> None:
        #: how long a member is waited for; 0: not at all
        self.patience_seconds = PATIENCE_SECONDS
        self._marks: dict[tuple[str, str], _Mark] = {}

    def counted(
        self, partition: str, at: int, mine: Reached, others: Mapping[str, Reached], now: float
    ) -> list[Reached]:
        """The reports to decide by, the leader's own first; `at`: what comes next."""
        reports = [mine]
        for member in sorted(others):
            most = _furthest(at, common(reports))
            has = _furthest(at, common([*reports, others[member]]))
            if self._is_waited_for((member, partition), most, has, now):
                reports.append(others[member])
        return reports

    def passed_over(self) -> dict[str, list[str]]:
        """The members that are not waited for, and of which partitions."""
        found: dict[str, list[str]] = {}
        for (member, partition), mark in sorted(self._marks.items()):
            if mark.passed:
                found.setdefault(member, []).append(partition)
        return found

    def keep(self, members: Collection[str]) -> None:
        """Forget everybody else."""
        for known in [key for key in list(self._marks) if key[0] not in members]:
            self._marks.pop(known, None)

    def _is_waited_for(self, key: tuple[str, str], most: int, has: int, now: float) -> bool:
        mark = self._marks.setdefault(key, _Mark(most, now))
        if has >= min(mark.upto, most):
            self._marks[key] = _Mark(most, now)
            return True
        if now - mark.since >= self.patience_seconds:
            self._marks[key] = _Mark(most, now, passed=True)
            return False
        return not mark.passed


def _furthest(at: int, shared: Mapping[int, Extent]) -> int:
    """How far one can come that has not yet read beyond `at`."""
    return max((one.latest for one in shared.values() if one.earliest <= at), default=-1)
