"""Knows which producers are connected, and lets a producer connect whose name is its own.

Receives claims (`bindings`); returns sessions, and keeps the one connection that each producer may have.

Invariant: claims of one name are decided one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from penstock.errors import ExternalError, PenstockError
from penstock.ingest.bindings import FORGOTTEN_AFTER_SECONDS, Bindings, Claim, check_claim

#: stream and producer
Key = tuple[str, str]


class ProducerConnection(Protocol):
    """A connection of a producer."""

    def refuse(self, error: PenstockError) -> None:
        """Send the error and close the connection."""


class Producers:
    """The producers of a gateway. Used in its event loop."""

    def __init__(
        self, directory: Path, takeover_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bindings = Bindings(directory)
        self._takeover_seconds, self._clock = takeover_seconds, clock
        self._connections: dict[Key, ProducerConnection] = {}
        #: when the connections of the last moments ended
        self._ended_at: dict[Key, float] = {}
        self._started_at = clock()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def offer_session(self, stream: str, claim: Claim) -> tuple[str, str]:
        """Check a claim; return the session that it is offered, and the one before it."""
        former = await asyncio.to_thread(self._bindings.load, stream, claim.producer)
        binding = check_claim(
            former, claim, self._silent_seconds((stream, claim.producer)), self._takeover_seconds
        )
        return binding.session if binding else "", former.session if former else ""

    async def bind(self, stream: str, claim: Claim, session: str = "") -> None:
        """Bind a name to who claims it, with the session that was offered."""
        key = (stream, claim.producer)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            silent_seconds = self._silent_seconds(key)
            try:
                await asyncio.to_thread(self._bind, stream, claim, session, silent_seconds)
            except OSError as error:
                raise ExternalError(
                    "LOG_UNWRITABLE",
                    f"the binding of {claim.producer} cannot be written: {error.strerror or error}",
                    hint="Free space or fix the disk.",
                ) from error

    def _bind(self, stream: str, claim: Claim, session: str, silent_seconds: float) -> None:
        former = self._bindings.load(stream, claim.producer)
        binding = check_claim(former, claim, silent_seconds, self._takeover_seconds, session)
        if binding is None or binding == former:
            self._bindings.touch(stream, claim.producer)
        else:
            self._bindings.save(stream, binding)

    def connect(self, key: Key, connection: ProducerConnection) -> None:
        """Make a connection the one of its producer; close an older one."""
        before = self._connections.get(key)
        self._connections[key] = connection
        if before is not None and before is not connection:
            before.refuse(ExternalError("TAKEN_OVER", "the producer has connected again"))

    def disconnect(self, key: Key, connection: ProducerConnection) -> None:
        """Forget a closed connection."""
        if self._connections.get(key) is connection:
            del self._connections[key]
            self._ended_at[key] = self._clock()

    async def forget(self) -> None:
        """Forget what is too old to count."""
        now = self._clock()
        self._ended_at = {key: at for key, at in self._ended_at.items() if now - at < self._takeover_seconds}
        before = time.time() - FORGOTTEN_AFTER_SECONDS
        await asyncio.to_thread(self._bindings.forget, before, set(self._connections))

    def _silent_seconds(self, key: Key) -> float:
        """How long a producer has not been connected; counted from the start of the gateway if it never was."""
        if key in self._connections:
            return 0.0
        return self._clock() - self._ended_at.get(key, self._started_at)
