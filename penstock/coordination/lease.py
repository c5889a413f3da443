"""Grants leases: one holder at a time, each with a generation that everything it writes carries.

Receives a store, a session and the path of the lease; returns a `Lease` to one holder at a time.

The record at the path has the generation and the holder's session. It changes by compare-and-set, from a holder
whose session has ended (or who resigned) to the next, with a higher generation.

Guarantees: every generation of a lease is granted once, and each is higher than those before. A lease ends, by its
holder's own clock, before another can acquire the next; a holder that was paused notices when it checks (`is_held`,
`check`).
Does not guarantee: that a holder stops between checking and writing. Where that matters, write through a
`FencedDirectory`, which refuses lower generations at the write itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordination.contract import Record, Session, Store, clock
from penstock.errors import ExternalError, InternalError
from penstock.moved import former_names
from penstock.state.generation import fenced_error

#: a waiter checks the holder's session at least this often
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class LeaseRecord:
    """The record of a lease: the last generation granted, and to which session (None: it resigned)."""

    generation: int = 0
    session: str | None = None

    def to_bytes(self) -> bytes:
        return json.dumps({"generation": self.generation, "session": self.session}).encode()

    @staticmethod
    def from_record(record: Record | None) -> LeaseRecord:
        if record is None:
            return LeaseRecord()
        try:
            fields = json.loads(record.value)
            return LeaseRecord(int(fields["generation"]), fields["session"])
        except (ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "LEASE_DAMAGED",
                "the record of a lease cannot be read",
                detail=f"{failure!r}: {record.value[:100]!r}",
                hint="Remove that record from the coordination store while no engine runs.",
            ) from failure


@former_names(held="is_held")
class Lease:
    """A lease held by this process, as long as its session lives. It is a `Fence` for what writes."""

    def __init__(self, store: Store, path: str, session: Session, generation: int) -> None:
        self._store, self._path, self._session = store, path, session
        self._generation = generation
        self._over = False
        session.add_heartbeat_listener(self._look)

    @property
    def generation(self) -> int:
        return self._generation

    def is_held(self) -> bool:
        """Whether no other process can hold the lease yet, by this process's own clock."""
        return not self._over and self._session.is_held()

    def check(self) -> None:
        """Raise FENCED or LEASE_LOST unless the lease is held."""
        if self.is_held():
            return
        try:
            newest = read_lease(self._store, self._path).generation
        except ExternalError:
            newest = self._generation
        if newest > self._generation:
            raise fenced_error(f"{self._path} in {self._store.describe()}", self._generation, newest)
        raise ExternalError(
            "LEASE_LOST",
            f"the lease of generation {self._generation} has expired",
            detail=f"For {self._session.timeout_seconds:g} s this engine was paused, or the coordination store "
            f"{self._store.describe()} did not answer; another engine may become leader at any moment.",
            hint="Restart the engine: it continues from the last committed epoch as soon as it has a new lease.",
        )

    def resign(self) -> None:
        """Release the lease at once, so that nobody waits for the session to end."""
        self._over = True
        record = self._store.get(self._path)
        if record is not None and LeaseRecord.from_record(record) == LeaseRecord(
            self._generation, self._session.id
        ):
            self._store.replace(self._path, LeaseRecord(self._generation).to_bytes(), record.version)

    def _look(self) -> None:
        """Notice that the lease was granted to another although our session lives (an operator may do that)."""
        try:
            self._over = self._over or read_lease(self._store, self._path).generation != self._generation
        except ExternalError:
            return


def read_lease(store: Store, path: str) -> LeaseRecord:
    """The record of a lease: who holds it, or held it last."""
    return LeaseRecord.from_record(store.get(path))


def acquire(
    store: Store,
    path: str,
    session: Session,
    *,
    above: int | Callable[[], int] = 0,
    seconds: float = 0.0,
    preempt: bool = False,
) -> Lease | None:
    """Acquire a lease, waiting at most so long; None when another still holds it, or our session has ended.

    With `preempt` it is taken from a living holder, who notices with its next heartbeat; what it writes until then must
    be refused by the generation. The generation is above any that the store has granted and above `above`: the newest
    in the directory to be written.
    """
    deadline = clock() + seconds
    while session.is_held():
        record = store.get(path)
        current = LeaseRecord.from_record(record)
        is_free = current.session is None or current.session == session.id
        if preempt or is_free or not store.is_alive(str(current.session)):
            least = above() if callable(above) else above
            mine = LeaseRecord(max(current.generation, least) + 1, session.id)
            version = None if record is None else record.version
            if _put(store, path, mine, version):
                return Lease(store, path, session, mine.generation) if session.is_held() else None
            continue
        left = deadline - clock()
        if left <= 0:
            return None
        store.wait(path, None if record is None else record.version, min(left, _POLL_SECONDS))
    return None


def _put(store: Store, path: str, current: LeaseRecord, version: int | None) -> bool:
    if version is None:
        return store.create(path, current.to_bytes()) is not None
    return store.replace(path, current.to_bytes(), version) is not None
