"""Join the coordinators that share an engine's jobs, and know which are alive, through the coordination store.

    jobs/ID/coordinators   the coordinators with a live session, and the signed facts of each; ID is the state's

Guarantees: an address in the view was written by a process with the key of the state directory (`shared_key`), whoever
else can write the store. While the store answers, a coordinator that died leaves everybody's view within its session's
timeout plus one look. One that was paused until its session ended joins again with a new one. While the store is away,
the last view holds.
Does not guarantee: that two coordinators have the same view at the same moment. Nothing depends on it: the command log
keeps commands in order.
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
from penstock.coordination.shared_key import SharedKey
from penstock.errors import ExternalError, PenstockError, UserError

#: how often the view is renewed
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Coordinator:
    """The facts of a coordinator. `engine`: it executes the epochs too."""

    name: str
    url: str
    engine: bool = False
    host: str = ""
    process: int = 0


#: called when other coordinators are alive than before, with both rosters
Watcher = Callable[[Roster, Roster], None]


class Coordinators:
    """One coordinator among others: a context manager."""

    def __init__(
        self,
        store: Store,
        state: str,
        me: Coordinator,
        key: SharedKey,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        watcher: Watcher = lambda before, after: None,
        problem: Callable[[PenstockError], None] = lambda error: None,
    ) -> None:
        self.me, self._store, self._watcher, self._problem = me, store, watcher, problem
        self._key, self._refused = key, frozenset[str]()
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
        """Leave: the others take over its jobs at once."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        self._store.close()

    @property
    def roster(self) -> Roster:
        """The coordinators that are alive."""
        return self._roster

    @property
    def alive(self) -> Mapping[str, Coordinator]:
        """The coordinators that are alive, by name."""
        return self._alive

    def manager_of(self, job: str) -> Coordinator:
        """The coordinator that manages a job; this one where no other is known."""
        return self._alive.get(self._roster.manager_of(job), self.me)

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
        facts = json.dumps(asdict(self.me))
        signed = json.dumps({"facts": facts, "signature": self._sign(facts)}).encode()
        joined = False
        while session.is_held() and not self._closing.is_set():
            try:
                # the session of a killed coordinator of our name may not have expired yet
                joined = joined or session.join(self._group, self.me.name, signed)
                if joined:
                    self._look()
            except ExternalError as error:
                self._problem(error)
            self._closing.wait(_LOOK_SECONDS)

    def _look(self) -> None:
        members = self._store.members(self._group)
        read = {name: self._read(name, value) for name, value in members.items()}
        self._report_refused(frozenset(name for name, found in read.items() if found is None))
        alive = {name: found for name, found in read.items() if found is not None}
        alive[self.me.name] = self.me
        before, after = self._roster, Roster(self.me.name, frozenset(alive) - {self.me.name})
        self._alive, self._roster = alive, after
        if before != after or not self._looked.is_set():
            self._watcher(before, after)
        self._looked.set()

    def _read(self, name: str, value: bytes) -> Coordinator | None:
        """The facts of a member; None if no process with the key of the state has written them."""
        try:
            signed = json.loads(value)
            facts, signature = str(signed["facts"]), str(signed["signature"])
            if not self._key.verifies(signature, "coordinator", self._group, facts):
                return None
            found = Coordinator(**json.loads(facts))
        except (
            ValueError,
            TypeError,
            KeyError,
            RecursionError,
        ):  # whoever writes the store may write anything
            return None
        return found if found.name == name else None

    def _sign(self, facts: str) -> str:
        return self._key.sign("coordinator", self._group, facts)

    def _report_refused(self, names: frozenset[str]) -> None:
        """Report members that are not coordinators of this state, once each time they appear."""
        new, self._refused = names - self._refused, names
        if new:
            self._problem(
                UserError(
                    "COORDINATOR_NOT_VERIFIED",
                    f"not every member of {self._group} in {self._store.describe()} is a coordinator of this state",
                    detail=f"No process with the key of the state directory wrote {', '.join(sorted(new))}; nothing "
                    "is sent there.",
                    hint="Start all coordinators of a state directory with the same Penstock, on that directory; if "
                    "none of yours has this name, see who can write the coordination store.",
                )
            )


def coordinator(name: str | None, url: str, *, engine: bool = False) -> Coordinator:
    """This process as a coordinator, named by its machine and port unless it has a name."""
    host, port = socket.gethostname(), url.rpartition(":")[2]
    # one that listens on all addresses is reached by its machine's name
    reachable = url.replace("//0.0.0.0:", f"//{host}:").replace("//[::]:", f"//{host}:")
    return Coordinator(name or f"{host}:{port}", reachable, engine, host, os.getpid())
