"""Delays the start of a partition that lacks its first records while a copy is unreachable that may have them.

Receives what the reachable copies list, and the time; returns the partitions not to start yet, and those that start
although they may lack their first records.

Invariants:
- A partition that starts after 0 in all reachable copies waits while another copy is unreachable, up to the patience.
  Then it starts, and that is reported: what lies before will never be read.
- While nothing of the log has been read, all of it waits together: else the others' event time would run ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.logs.contract import Partition


class LateStarts:
    """Which partitions wait for a copy that may have more of them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        #: the partitions that wait
        self.waiting: frozenset[str] = frozenset()
        #: those that start without what may lie before
        self.late: frozenset[str] = frozenset()

    def update(
        self,
        seen: Mapping[str, Mapping[int, Partition]],
        started: Collection[str],
        unreachable: Collection[int],
        now: float,
        patience_seconds: float,
    ) -> None:
        """Decide on the partitions of which nothing has been read."""
        new = seen.keys() - set(started)
        short = {name for name in new if unreachable and min(one.earliest for one in seen[name].values()) > 0}
        self._since = {name: self._since.get(name, now) for name in short}
        waiting = {name for name in short if now - self._since[name] < patience_seconds}
        if not started and waiting:
            over = now - min(self._since.values()) >= patience_seconds
            waiting = set() if over else set(new)
        self.waiting, self.late = frozenset(waiting), frozenset(short - waiting)
