"""The coordinators that share the masters of an engine's jobs, as the coordination store knows them.

    jobs/ID/coordinators   the coordinators whose sessions live, and what each says of itself; ID is the state's

Receives this process's name and address; hands who is alive, and who carries a job's master.

Guarantees: while the store answers, one that has died is gone from everybody's view within its session's timeout and a
look. One that was paused so long that its session ended comes back under a new one. While the store is away, the last
view holds. Does not guarantee: that two have the same view at the same moment. Nothing rests on that: what keeps
commands in order is the log they are appended to.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import TracebackType

from penstock.catalogue.master_placement import Roster
from penstock.coordination.contract import TIMEOUT_SECONDS, Session, Store
from penstock.errors import ExternalError, PenstockError

#: how often the view is renewed
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Coordinator:
    """What a coordinator says of itself. `engine`: it runs the epochs too."""

    name: str
    url: str
    engine: bool = False
    host: str = ""
    process: int = 0


#: told that others are alive now than before: who was and who is
Watcher = Callable[[Roster, Roster], None]


class Coordinators:
    """One coordinator among others. To be entered, and closed."""

    def __init__(
        self,
        store: Store,
        state: str,
        me: Coordinator,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        watcher: Watcher = lambda before, after: None,
        problem: Callable[[PenstockError], None] = lambda error: None,
    ) -> None:
        self.me, self._store, self._watcher, self._problem = me, store, watcher, problem
        self._group = f"jobs/{state}/coordinators"
        self._timeout = timeout_seconds
        self._alive: Mapping[str, Coordinator] = {me.name: me}
        self._roster = Roster(me.name)
        self._closing = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._live, name="penstock-coordinators", daemon=True)

    def __enter__(self) -> Coordinators:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave: the others take over at once."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        self._store.close()

    @property
    def roster(self) -> Roster:
        """Who is alive."""
        return self._roster

    @property
    def alive(self) -> Mapping[str, Coordinator]:
        """The coordinators that are alive, by name."""
        return self._alive

    def carrier(self, job: str) -> Coordinator:
        """Who carries a job's master; this one where nobody else is known."""
        return self._alive.get(self._roster.carrier(job), self.me)

    def wait_joined(self, seconds: float) -> bool:
        """Wait until this one is a member and has seen the others, or for so long."""
        return self._looked.wait(seconds)

    def _live(self) -> None:
        while not self._closing.is_set():
            try:
                session = self._store.start_session(self._timeout)
            except ExternalError as error:
                self._problem(error)
                self._closing.wait(self._timeout)
                continue
            try:
                self._attend(session)
            finally:
                with contextlib.suppress(ExternalError):
                    session.close()

    def _attend(self, session: Session) -> None:
        """Be a member while the session lives."""
        said = json.dumps(asdict(self.me)).encode()
        joined = False
        while session.is_held() and not self._closing.is_set():
            try:
                # one of our name that was killed may not have been missed yet
                joined = joined or session.join(self._group, self.me.name, said)
                if joined:
                    self._look()
            except ExternalError as error:
                self._problem(error)
            self._closing.wait(_LOOK_SECONDS)

    def _look(self) -> None:
        found = self._store.members(self._group)
        alive = {name: Coordinator(**json.loads(said)) for name, said in found.items()}
        alive[self.me.name] = self.me
        before, after = self._roster, Roster(self.me.name, frozenset(alive) - {self.me.name})
        self._alive, self._roster = alive, after
        if before != after or not self._looked.is_set():
            self._watcher(before, after)
        self._looked.set()


def coordinator(name: str | None, url: str, *, engine: bool = False) -> Coordinator:
    """This process as a coordinator, named by its machine and port unless it has a name."""
    host, port = socket.gethostname(), url.rpartition(":")[2]
    # one that listens on all addresses is reached by its machine's name
    reached = url.replace("//0.0.0.0:", f"//{host}:").replace("//[::]:", f"//{host}:")
    return Coordinator(name or f"{host}:{port}", reached, engine, host, os.getpid())
