"""Where a partition is begun to be read: not after its beginning while a copy is away that may have that.

Receives what the copies list that can be reached, and the time; hands the partitions not to begin with yet, and those
that are begun with though something may lie before.

Invariants:
- A partition that begins after 0 in all copies that can be reached is waited for while another is away, as long as the
  patience lasts. Then it is begun, and that is told: what lies before will never be read.
- While nothing of the log has been begun, all of it waits together: else the time of the others would run ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.logs.contract import Partition


class LateBeginnings:
    """Which partitions wait for a copy that may have more of them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        #: the partitions that wait
        self.waiting: frozenset[str] = frozenset()
        #: those that are begun without what may lie before
        self.late: frozenset[str] = frozenset()

    def look(
        self,
        seen: Mapping[str, Mapping[int, Partition]],
        begun: Collection[str],
        away: Collection[int],
        now: float,
        patience_seconds: float,
    ) -> None:
        """Decide on the partitions that have not been begun."""
        new = seen.keys() - set(begun)
        short = {name for name in new if away and min(one.earliest for one in seen[name].values()) > 0}
        self._since = {name: self._since.get(name, now) for name in short}
        waiting = {name for name in short if now - self._since[name] < patience_seconds}
        if not begun and waiting:
            over = now - min(self._since.values()) >= patience_seconds
            waiting = set() if over else set(new)
        self.waiting, self.late = frozenset(waiting), frozenset(short - waiting)
