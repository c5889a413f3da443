"""Lets an engine of an HA unit survive an outage of the coordination store: it waits, and joins the unit again.

An engine that led has lost its lease by then, and has stopped. It takes part again as if it was started, with new
objects for all that it writes, another lease and a higher generation; so what is left of its former life is refused as
that of any other engine. A write to a sink that still hangs could use what the two have in common: then the process
ends instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.coordination.contract import Session
from penstock.engine.engine import Engine
from penstock.errors import ExternalError, PenstockError
from penstock.ha.unit import Kind, Unit, kind_of
from penstock.replica.registration import Registration

#: how often it looks whether the store is back, in seconds
_LOOK_SECONDS = 0.1
#: what an engine reports that takes part again
_NOTHING_YET: Mapping[str, Any] = {
    "phase": "starting",
    "directory": "",
    "epoch": -1,
    "held": 0,
    "cached_bytes": 0,
    "paused": False,
    "load": None,
}


def is_outage(error: PenstockError, session: Session) -> bool:
    """Whether an engine with this session stopped because the coordination store was away, and may continue when it is
    back. Another engine may have the lease by then."""
    lost_lease = error.condition in ("LEASE_LOST", "FENCED")
    return error.condition == "STORE_UNAVAILABLE" or (
        lost_lease and session.is_store_away and not session.is_held()
    )


def has_stopped(engine: Engine | None, watcher: threading.Thread | None, seconds: float) -> bool:
    """Wait until nothing is left of an engine that has ended, nor of the thread that looked at the unit meanwhile; at
    most so long for each. Returns whether nothing is."""
    if watcher is not None:
        watcher.join(seconds)
        if watcher.is_alive():
            return False
    return engine is None or engine.program.deliveries.wait_until_ended(seconds)


def rejoin_after_outage(unit: Unit, registration: Registration) -> Kind:
    """Wait until the store is back, and join the unit again; returns as which kind of engine: what the scheme asks for.

    On failure: `UserError` NO_UNIT if the unit is gone; LEASE_LOST if another engine was started instead.
    """
    unit.renew_shared_records()
    while True:
        unit.require_launch()
        try:
            kind = kind_of(unit.record().scheme) or "passive"
            registration.reset(kind=kind, **_NOTHING_YET)
            registration.rejoin()
        except ExternalError as error:
            if error.condition != "STORE_UNAVAILABLE":
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return kind


def is_in_force(unit: Unit, name: str, own: Path) -> bool:
    """Whether the unit's state is still in an engine's own directory: it led before an outage. Raises if another engine
    leads on it."""
    if Path(unit.record().directory) != own:
        return False
    if unit.primary(name) is not None:
        raise ExternalError(
            "LEASE_LOST",
            f"another engine leads on the directory of engine {name}",
            hint="The coordinator starts another engine where the scheme asks for one.",
        )
    return True
