"""How fast a leader may record epochs while another engine repeats them. Receives how far those are; hands seconds.

A follower takes as long as the leader for an epoch, and on the same machine longer. A leader that records small epochs
one upon the other leaves it further and further behind, and what it is behind is what a failure of the leader takes
longer. So the leader waits a little between epochs: these grow larger instead, which costs neither of them anything.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.ha.schemes import SCHEMES
from penstock.ha.unit import Member, Unit, UnitRecord
from penstock.state.directory import StateDirectory

#: epochs that a follower may lack without anybody waiting: the one under way
_USUAL_EPOCHS = 1
#: how long the leader waits for each further one, and at most, in seconds
_EACH_SECONDS = 0.4
MOST_SECONDS = 1.0
#: one that has not come further for so long is waited for no more, in seconds: it hangs, or takes over the state
PATIENCE_SECONDS = 5.0


class Pace:
    """How long a leader waits from one epoch to the next."""

    def __init__(self) -> None:
        #: how far each follower has come, and since when
        self._reached: dict[str, tuple[int, float]] = {}

    def wanted(self, unit: Unit, record: UnitRecord, admitted: int, program: Program) -> float:
        """The least time from one epoch to the next, by the last one of the leader of a unit and by its followers.
        Those of jobs that come and go begin an epoch when the leader has committed it (see `seat`)."""
        following = followers(unit, record) if SCHEMES[record.scheme].runs_epochs else {}
        expected = admitted - program.epochs.isolates_failures(program.commands)
        return self.seconds(expected, following, time.monotonic())

    def seconds(self, admitted: int, followers: Mapping[str, int], now: float) -> float:
        """The least time from one epoch to the next, by the last epoch of the leader and of those that follow it."""
        self._reached = {
            name: known if (known := self._reached.get(name)) and known[0] == epoch else (epoch, now)
            for name, epoch in followers.items()
        }
        waited_for = [epoch for epoch, since in self._reached.values() if now - since < PATIENCE_SECONDS]
        lacking = max((admitted - epoch for epoch in waited_for), default=0)
        return min(max(lacking - _USUAL_EPOCHS, 0) * _EACH_SECONDS, MOST_SECONDS)


def followers(unit: Unit, record: UnitRecord) -> dict[str, int]:
    """How far the engines have come that repeat the leader's epochs now."""
    others = {name: member for name, member in unit.members().items() if name != record.leader}
    return {
        name: reached(one)
        for name, one in others.items()
        if one.phase == "following" and not one.paused and one.seems_up
    }


def reached(member: Member) -> int:
    """The last epoch that a follower has done: as it says, or as can be seen in its directory."""
    done: list[int] = []
    with contextlib.suppress(OSError):  # it may just be making it anew
        done = StateDirectory(Path(member.directory)).manifests.epochs() if member.directory else []
    return max(member.epoch, done[-1] if done else -1)
