"""Bounds how long the leader waits for a replica that lacks what the others have of a partition.

Receives what each replica reaches of a partition, and the time; returns the reports that count for the decision (see
`copy_choice`), and the skipped replicas.

Invariants:
- What the leader reaches always counts.
- A replica that has not come within `patience_seconds` to where the others were then is skipped, whether it stands
  still or trickles. It counts again once it has come in that time to where they were.
- Of replicas that have no copy in common, the first by name counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.logs.copy_choice import Extent, Reachable, intersect_extents

#: how long the leader waits for a replica, in seconds: as long as for a follower that makes no progress
PATIENCE_SECONDS = 5.0


@dataclass
class _Mark:
    """What the others had of a partition, and when; whether the replica is skipped since an earlier mark."""

    limit: int
    since: float
    skipped: bool = False


class Stragglers:
    """The replicas that the leader waits for, by partition."""

    def __init__(self) -> None:
        #: how long to wait for a replica; 0: not at all
        self.patience_seconds = PATIENCE_SECONDS
        self._marks: dict[tuple[str, str], _Mark] = {}

    def select_reports(
        self, partition: str, at: int, mine: Reachable, others: Mapping[str, Reachable], now: float
    ) -> list[Reachable]:
        """Select the reports to decide by, the leader's own first; `at`: what comes next."""
        reports = [mine]
        for replica in sorted(others):
            most = _find_furthest(at, intersect_extents(reports))
            has = _find_furthest(at, intersect_extents([*reports, others[replica]]))
            if self._is_waited_for((replica, partition), most, has, now):
                reports.append(others[replica])
        return reports

    def find_skipped(self) -> dict[str, list[str]]:
        """Find the replicas that the leader does not wait for, and their partitions."""
        found: dict[str, list[str]] = {}
        for (replica, partition), mark in sorted(self._marks.items()):
            if mark.skipped:
                found.setdefault(replica, []).append(partition)
        return found

    def retain_replicas(self, replicas: Collection[str]) -> None:
        """Forget all other replicas."""
        for known in [key for key in list(self._marks) if key[0] not in replicas]:
            self._marks.pop(known, None)

    def _is_waited_for(self, key: tuple[str, str], most: int, has: int, now: float) -> bool:
        mark = self._marks.setdefault(key, _Mark(most, now))
        if has >= min(mark.limit, most):
            self._marks[key] = _Mark(most, now)
            return True
        if now - mark.since >= self.patience_seconds:
            self._marks[key] = _Mark(most, now, skipped=True)
            return False
        return not mark.skipped


def _find_furthest(at: int, shared: Mapping[int, Extent]) -> int:
    """Find how far a reader at `at` can read."""
    return max((one.latest for one in shared.values() if one.earliest <= at), default=-1)
