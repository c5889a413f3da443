"""Decides which engines a unit has to start and which have to leave. Pure.

Invariants:
- No engine has to leave while there is no leader: any of them may have to take over.
- A second engine of the wrong kind stays until one of the right kind is ready.
- A second engine that is lost repeatedly is replaced after growing pauses: the load of starts may be the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, UnitEngine, UnitRecord, kind_of

_READY = ("ready", "following")
#: how long a new second engine waits at most for the first results of a new leader: its start takes CPU from it
TAKE_OVER_SECONDS = 10.0
#: how long the state of an engine without session is kept: its process may be on another host
_ELSEWHERE_SECONDS = 300.0
#: so many losses within so many seconds are replaced at once; each further one waits twice as long
_AT_ONCE = 2
_WITHIN_SECONDS = 180.0
_FIRST_WAIT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Needs:
    """Kinds of engines to start, and names of engines that have to leave."""

    start: tuple[Kind, ...] = ()
    leave: tuple[str, ...] = ()


def is_taking_over(record: UnitRecord, engines: Mapping[str, UnitEngine], now: float) -> bool:
    """Whether the leader is up, was promoted just now and has no results yet."""
    last = record.recoveries[-1] if record.recoveries else None
    return (
        record.leader in engines
        and last is not None
        and last.generation == record.generation
        and last.first_result_at is None
        and 0.0 <= now - last.lease_at < TAKE_OVER_SECONDS
    )


def find_returning(
    record: UnitRecord,
    known: Mapping[str, UnitEngine],
    engines: Mapping[str, UnitEngine],
    now: float,
    within_seconds: float | None = None,
    *,
    after_outage: bool = False,
) -> set[str]:
    """The followers whose sessions have ended and whose processes seem up: they may have been paused, and join again.
    `within_seconds`: only if no engine has joined, and only those lost at most that long ago. After an outage of the
    coordination store all engines join again, also the one that led."""
    if after_outage:
        return {name for name, engine in known.items() if name not in engines and engine.seems_up}
    if within_seconds is not None and engines:
        return set()
    return {
        name
        for name, engine in known.items()
        if name not in engines
        and name != record.leader
        and engine.seems_up
        and now - record.lost.get(name, now) < (within_seconds or _ELSEWHERE_SECONDS)
    }


def next_secondary_time(losses: Sequence[float], now: float) -> float:
    """When the next second engine may start, after losses at these times while the leader was up."""
    recent = [at for at in losses if now - at < _WITHIN_SECONDS]
    waits = len(recent) - _AT_ONCE
    if waits <= 0:
        return now
    return recent[-1] + min(_FIRST_WAIT_SECONDS * 2.0 ** (waits - 1), _LONGEST_WAIT_SECONDS)


def find_needs(
    scheme: Scheme,
    leader: str | None,
    engines: Mapping[str, UnitEngine],
    leaving: tuple[str, ...],
    pending: Mapping[str, Kind],
) -> Needs:
    """What the unit needs; `pending` engines have been started and have not joined yet."""
    staying = {name: engine for name, engine in engines.items() if name not in leaving}
    on_the_way = {name: kind for name, kind in pending.items() if name not in engines}
    wanted = kind_of(scheme)
    if leader not in staying or staying[leader].phase != "primary":
        # to start or restart, a unit needs an engine that does not follow another
        return Needs() if staying or on_the_way else Needs(start=("passive",))
    others = {name: engine for name, engine in staying.items() if name != leader}
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
