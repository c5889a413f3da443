"""Registers an engine in its unit and reports its state there. The registration ends with the engine's session.

An engine that does not lead registers again after its session has ended. It held no lease, so nothing that it did
meanwhile has to be refused: a stall of the whole machine costs the leader its lease, but does not cost the unit its
follower. After an outage of the coordination store every engine registers again, the former leader too, which has
stopped leading before.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import replace
from typing import Any

from penstock.coordination.contract import Session
from penstock.errors import ExternalError
from penstock.ha.unit import Kind, Unit, UnitEngine

#: the least time between two reports of fields that change with every epoch, in seconds
_REPORT_SECONDS = 0.2
_CHANGE_WITH_EPOCHS = frozenset({"epoch", "held", "behind", "repeats"})
_POLL_SECONDS = 0.1
#: how long the former session may keep the name, in timeouts of a session
_PATIENCE = 2.0


class Registration:
    """The registration of one engine. From any thread."""

    def __init__(self, unit: Unit, session: Session, name: str, kind: Kind) -> None:
        self._unit, self._name = unit, name
        self.session = session
        self.entry = UnitEngine(os.getpid(), socket.gethostname(), kind, session.id, since=time.time())
        #: whether something has changed that is not reported yet
        self.has_unreported = False
        self._lock = threading.Lock()
        self._reported_at = 0.0

    def report(self, **fields: Any) -> None:
        """Change fields of the entry. Those that change with every epoch may be reported with a later call."""
        with self._lock:
            self.entry = replace(self.entry, **fields)
            now = time.monotonic()
            self.has_unreported = (
                fields.keys() <= _CHANGE_WITH_EPOCHS and now - self._reported_at < _REPORT_SECONDS
            )
            if self.has_unreported:
                return
            self._reported_at = now
            with contextlib.suppress(ExternalError):
                self._unit.join(self.session, self._name, self.entry)

    def reset(self, **fields: Any) -> None:
        """Change fields of the entry, which are reported when the engine joins again."""
        with self._lock:
            self.entry = replace(self.entry, **fields)

    def rejoin(self) -> None:
        """Join in a new session, under the same name, after the former session has ended.

        On failure: `ExternalError` STORE_UNAVAILABLE if the store does not answer, so that this has to be repeated;
        LEASE_LOST if another engine was started instead.
        """
        self.session.close()
        seconds = self._unit.launch.lease_seconds
        if self._is_replaced():
            raise self._lost("Another engine was started in its place.")
        session = self._unit.store.start_session(seconds)
        deadline = time.monotonic() + _PATIENCE * seconds
        while not self._join_in(session):
            if time.monotonic() >= deadline or not session.is_held():
                session.close()
                raise self._lost("Its name in the unit is taken.")
            time.sleep(_POLL_SECONDS)

    def _join_in(self, session: Session) -> bool:
        """Join in another session, if the name is free there."""
        with self._lock:
            engine = replace(self.entry, session=session.id)
            try:
                if not self._unit.join(session, self._name, engine):
                    return False
            except ExternalError:
                session.close()
                raise
            self.session, self.entry = session, engine
            return True

    def _is_replaced(self) -> bool:
        """Whether another engine of this kind is up or was requested. Nobody has replaced the leader of the record."""
        record, kind = self._unit.record(), self.entry.kind
        if record.leader == self._name:
            return False
        kinds = {other: engine.kind for other, engine in self._unit.engines().items() if engine.seems_up}
        kinds |= {
            other: "active" if one == "active" else "passive" for other, (one, _) in record.pending.items()
        }
        return any(kinds[other] == kind for other in kinds.keys() - {self._name, record.leader})

    def _lost(self, detail: str) -> ExternalError:
        return ExternalError(
            "LEASE_LOST",
            f"the session of engine {self._name} has ended",
            detail=f"It was paused, or the store did not answer. {detail}",
            hint="The coordinator starts another engine where the scheme asks for one.",
        )
