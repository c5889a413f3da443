"""What an engine of a unit says of itself there.

Receives what has changed; hands the unit the engine's membership record, which ends with its session.
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
from penstock.ha.unit import Kind, Member, Unit

#: how often it says where it is, at most, in seconds
_SAY_SECONDS = 0.2
#: what can wait that long
_CAN_WAIT = frozenset({"epoch", "held", "behind", "repeats"})


class Voice:
    """One engine's. From any thread."""

    def __init__(self, unit: Unit, session: Session, name: str, kind: Kind) -> None:
        self._unit, self._session, self._name = unit, session, name
        self.me = Member(os.getpid(), socket.gethostname(), kind, session.id, since=time.time())
        #: whether something has changed that is not said yet
        self.unsaid = False
        self._saying = threading.Lock()
        self._said_at = 0.0

    def say(self, **said: Any) -> None:
        """Tell the unit how things stand, at most so often where it is only the epoch."""
        with self._saying:
            self.me = replace(self.me, **said)
            now = time.monotonic()
            self.unsaid = said.keys() <= _CAN_WAIT and now - self._said_at < _SAY_SECONDS
            if self.unsaid:
                return
            self._said_at = now
            with contextlib.suppress(ExternalError):
                self._unit.join(self._session, self._name, self.me)

    def move(self, session: Session) -> bool:
        """Speak in another session from now on, if the name is free there."""
        with self._saying:
            me = replace(self.me, session=session.id)
            try:
                if not self._unit.join(session, self._name, me):
                    return False
            except ExternalError:
                return False
            self._session, self.me = session, me
            return True
