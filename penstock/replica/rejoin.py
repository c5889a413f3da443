"""An engine of a unit that does not lead, and whose session has ended, stands in the unit again.

Receives the session that has ended; hands another one, under the same name, or the reason why there is none.

It held no lease, so nothing that it did meanwhile has to be refused: a stall of the whole machine costs the engine that
led, and not the one that is to take over from it.
On failure: `ExternalError` LEASE_LOST where another engine was started in its place, or the store is away.
"""

from __future__ import annotations

import time

from penstock.coordination.contract import Session
from penstock.errors import ExternalError
from penstock.ha.unit import Unit
from penstock.replica.membership import Voice

_LOOK_SECONDS = 0.1
#: how long the former session may keep its name, in timeouts of a session
_PATIENCE = 2.0


def rejoined(unit: Unit, former: Session, voice: Voice, name: str) -> Session:
    """A session in the place of one that has ended."""
    former.close()
    seconds = unit.launch.lease_seconds
    try:
        if _replaced(unit, voice, name):
            raise _lost(
                name, "It was paused, or the store did not answer, and another was started in its place."
            )
        session = unit.store.start_session(seconds)
    except ExternalError as away:
        if away.condition != "STORE_UNAVAILABLE":
            raise
        raise _lost(name, f"The coordination store {unit.store.describe()} does not answer.") from away
    deadline = time.monotonic() + _PATIENCE * seconds
    while not voice.move(session):
        if time.monotonic() >= deadline or not session.is_held():
            session.close()
            raise _lost(
                name, "It was paused, or the store did not answer, and its name in the unit is taken."
            )
        time.sleep(_LOOK_SECONDS)
    return session


def _replaced(unit: Unit, voice: Voice, name: str) -> bool:
    """Whether another engine does, or is on the way to do, what this one did."""
    record, kind = unit.record(), voice.me.kind
    kinds = {other: member.kind for other, member in unit.members().items() if member.seems_up}
    kinds |= {other: "active" if one == "active" else "passive" for other, (one, _) in record.pending.items()}
    return any(kinds[other] == kind for other in kinds.keys() - {name, record.leader})


def _lost(name: str, why: str) -> ExternalError:
    return ExternalError(
        "LEASE_LOST",
        f"the session of engine {name} has ended",
        detail=why,
        hint="The coordinator starts another engine where the scheme asks for one.",
    )
