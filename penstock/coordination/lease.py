"""Leases: who leads, for how long at least, and the generation that everything it writes carries.

Receives a store, a session and the path of an office; hands a `Lease` to whoever has the office, one at a time.

The record at the path says the generation and the session that has it. It changes by compare-and-set, from a holder
whose session has ended (or who resigned) to the next, with a higher generation.

Guarantees: every generation of an office is given once, and each is higher than those before. A lease ends, by its
holder's own clock, before another can have the next; a holder that was paused finds that out when it looks (`held`,
`check`).
Does not guarantee: that a holder stops between looking and writing. Who must be certain writes through a
`Ground`, which refuses lower generations at the very write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordination.contract import Record, Session, Store, clock
from penstock.errors import ExternalError, InternalError
from penstock.state.generation import fenced

#: a waiter looks at the holder's session at least this often
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Reign:
    """What the record of an office says: the last generation given, and to which session (None: it resigned)."""

    generation: int = 0
    session: str | None = None

    def to_bytes(self) -> bytes:
        return json.dumps({"generation": self.generation, "session": self.session}).encode()

    @staticmethod
    def of(record: Record | None) -> Reign:
        if record is None:
            return Reign()
        try:
            said = json.loads(record.value)
            return Reign(int(said["generation"]), said["session"])
        except (ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "LEASE_DAMAGED",
                "the record of a lease cannot be read",
                detail=f"{failure!r}: {record.value[:100]!r}",
                hint="Remove that record from the coordination store while no engine runs.",
            ) from failure


class Lease:
    """An office held by this process, as long as its session lives. It is a `Fence` for what writes."""

    def __init__(self, store: Store, path: str, session: Session, generation: int) -> None:
        self._store, self._path, self._session = store, path, session
        self._generation = generation
        self._over = False
        session.after_each_beat(self._look)

    @property
    def generation(self) -> int:
        return self._generation

    def held(self) -> bool:
        """Whether nobody else can have the office yet, by this process's own clock."""
        return not self._over and self._session.held()

    def wait_lost(self, seconds: float) -> bool:
        """Wait until the session has ended, or for so long; whether the lease is lost."""
        self._session.ended.wait(seconds)
        return not self.held()

    def check(self) -> None:
        """Raise FENCED or LEASE_LOST unless the lease is held."""
        if self.held():
            return
        try:
            newest = leader(self._store, self._path).generation
        except ExternalError:
            newest = self._generation
        if newest > self._generation:
            raise fenced(f"{self._path} in {self._store.describe()}", self._generation, newest)
        raise ExternalError(
            "LEASE_LOST",
            f"the lease of generation {self._generation} has run out",
            detail=f"For {self._session.timeout_seconds:g} s this engine was paused, or the coordination store "
            f"{self._store.describe()} did not answer; another engine may take over at any moment.",
            hint="Start the engine again: it goes on from the last committed epoch as soon as it has a new lease.",
        )

    def resign(self) -> None:
        """Give the office up at once, so that nobody has to wait for the session to end."""
        self._over = True
        record = self._store.get(self._path)
        if record is not None and Reign.of(record) == Reign(self._generation, self._session.id):
            self._store.replace(self._path, Reign(self._generation).to_bytes(), record.version)

    def _look(self) -> None:
        """Notice that the office was given to another although our session lives (a person may do that)."""
        try:
            self._over = self._over or leader(self._store, self._path).generation != self._generation
        except ExternalError:
            return


def leader(store: Store, path: str) -> Reign:
    """Who has an office, or had it last."""
    return Reign.of(store.get(path))


def acquire(
    store: Store,
    path: str,
    session: Session,
    *,
    above: int | Callable[[], int] = 0,
    seconds: float = 0.0,
) -> Lease | None:
    """Wait for an office, for so long at most; None when another has it still, or our session has ended.

    The generation is above any the store has given and above `above`: what the place to be written has seen.
    """
    deadline = clock() + seconds
    while session.held():
        record = store.get(path)
        reign = Reign.of(record)
        if reign.session is None or reign.session == session.id or not store.alive(reign.session):
            least = above() if callable(above) else above
            mine = Reign(max(reign.generation, least) + 1, session.id)
            version = None if record is None else record.version
            if _put(store, path, mine, version):
                return Lease(store, path, session, mine.generation) if session.held() else None
            continue
        left = deadline - clock()
        if left <= 0:
            return None
        store.wait(path, None if record is None else record.version, min(left, _LOOK_SECONDS))
    return None


def _put(store: Store, path: str, reign: Reign, version: int | None) -> bool:
    if version is None:
        return store.create(path, reign.to_bytes()) is not None
    return store.replace(path, reign.to_bytes(), version) is not None
