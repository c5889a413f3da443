"""How fast a leader may record epochs while another engine repeats them. Receives how far those are; hands seconds.

A follower takes as long as the leader for an epoch, and on the same machine longer. A leader that records small epochs
one upon the other leaves it further and further behind, and what it is behind is what a failure of the leader takes
longer. So the leader waits a little between epochs: these grow larger instead, which costs neither of them anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.ha.unit import Member, Unit, UnitRecord
from penstock.state.directory import StateDirectory

#: epochs that a follower may lack without anybody waiting: the one under way
_USUAL_EPOCHS = 1
#: how long the leader waits for each further one, and at most, in seconds
_EACH_SECONDS = 0.4
MOST_SECONDS = 1.0


def pace_seconds(admitted: int, followers: Iterable[int]) -> float:
    """The least time from one epoch to the next, by the last epoch of the leader and of those that follow it."""
    lacking = max((admitted - reached for reached in followers), default=0)
    return min(max(lacking - _USUAL_EPOCHS, 0) * _EACH_SECONDS, MOST_SECONDS)


def followers(unit: Unit, record: UnitRecord) -> list[int]:
    """How far the engines have come that repeat the leader's epochs now."""
    others = [member for name, member in unit.members().items() if name != record.leader]
    return [reached(one) for one in others if one.phase == "following" and not one.paused and one.seems_up]


def reached(member: Member) -> int:
    """The last epoch that a follower has done: as it says, or as can be seen in its directory."""
    done = StateDirectory(Path(member.directory)).epochs() if member.directory else []
    return max(member.epoch, done[-1] if done else -1)
