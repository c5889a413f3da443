"""What a unit lacks and what it has too much of: which engines to start and which to let go. Pure.

Receives the scheme, who leads, and the engines there are; hands the kinds to start and the names to let go.

Invariants:
- Nobody is let go while nobody leads: whoever is up may have to take over.
- A secondary of the wrong kind stays until one of the right kind is ready.
- Secondaries that are lost again and again are replaced ever later: what they fail of may be the load of their starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Member, UnitRecord, kind_of

_READY = ("ready", "following")
#: how long at most a new secondary waits until the new primary has results: starting one takes what both need
TAKE_OVER_SECONDS = 10.0
#: how long the state of a secondary that is out of sight is kept: where its process is, may not be seen from here
_ELSEWHERE_SECONDS = 300.0
#: so many secondaries lost within so many seconds are replaced at once; the next ones wait, each twice as long
_AT_ONCE = 2
_WITHIN_SECONDS = 180.0
_FIRST_WAIT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Needs:
    """What is to be done."""

    start: tuple[Kind, ...] = ()
    leave: tuple[str, ...] = ()


def is_taking_over(record: UnitRecord, members: Mapping[str, Member], now: float) -> bool:
    """Whether the leader is there, has just come to lead and is still on the way to its first results."""
    last = record.recoveries[-1] if record.recoveries else None
    return (
        record.leader in members
        and last is not None
        and last.generation == record.generation
        and last.first_result_at is None
        and 0.0 <= now - last.lease_at < TAKE_OVER_SECONDS
    )


def find_returning(
    record: UnitRecord,
    known: Mapping[str, Member],
    members: Mapping[str, Member],
    now: float,
    within_seconds: float | None = None,
) -> set[str]:
    """The secondaries whose sessions have ended and whose processes are there, as far as is known: they may have been
    paused and join again. `within_seconds`: only when no engine is there, and those gone no longer ago than that."""
    if within_seconds is not None and members:
        return set()
    return {
        name
        for name, member in known.items()
        if name not in members
        and name != record.leader
        and member.seems_up
        and now - record.lost.get(name, now) < (within_seconds or _ELSEWHERE_SECONDS)
    }


def next_secondary_time(losses: Sequence[float], now: float) -> float:
    """When the next secondary may be started, after those of a primary that is up were lost at these times."""
    recent = [at for at in losses if now - at < _WITHIN_SECONDS]
    waits = len(recent) - _AT_ONCE
    if waits <= 0:
        return now
    return recent[-1] + min(_FIRST_WAIT_SECONDS * 2.0 ** (waits - 1), _LONGEST_WAIT_SECONDS)


def find_needs(
    scheme: Scheme,
    leader: str | None,
    members: Mapping[str, Member],
    leaving: tuple[str, ...],
    pending: Mapping[str, Kind],
) -> Needs:
    """What the unit needs; `pending` engines are started and have not joined yet."""
    here = {name: member for name, member in members.items() if name not in leaving}
    on_the_way = {name: kind for name, kind in pending.items() if name not in members}
    wanted = kind_of(scheme)
    if leader not in here or here[leader].phase != "primary":
        # for a unit to begin or begin again there must be one that needs nobody to follow
        return Needs() if here or on_the_way else Needs(start=("passive",))
    others = {name: member for name, member in here.items() if name != leader}
    if wanted is None:
        return Needs(leave=tuple(sorted(others)))
    suiting = sorted(
        (name for name in others if others[name].kind == wanted),
        key=lambda name: (others[name].phase not in _READY, others[name].since, name),
    )
    start: tuple[Kind, ...] = () if suiting or wanted in on_the_way.values() else (wanted,)
    wrong = [name for name in sorted(others) if others[name].kind != wanted]
    ready = any(others[name].phase in _READY for name in suiting)
    return Needs(start, (*suiting[1:], *(wrong if ready else ())))
