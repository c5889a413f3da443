"""Defines the coordination store: small records that change by compare-and-set, and sessions with heartbeats.

Receives paths such as `units/clicks/leader` and bytes; returns records and members, and reports changes.

Guarantees: `create`, `replace` and `delete` of one record are atomic and serialized, and durable when they
return; of several changes of the same version one succeeds. A session that has ended stays ended for every process; its
own process knows (`is_held` is false) before any other may treat it as ended, as long as no monotonic clock runs more
than a fourth faster than another. No two processes' clocks are compared: an observer measures, by its own clock,
whether the other's heartbeats still arrive.
Does not guarantee: that a waiter sees every change (it sees the newest); that a version is not used again
after a delete; that a member which died before the first read is gone at the first read.
On failure: `ExternalError` STORE_UNAVAILABLE. The change may have been made or not: read again.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import ExternalError, UserError
from penstock.moved import former_names, former_names_in

#: how long a session lives without a heartbeat, by default
TIMEOUT_SECONDS = 2.0
#: the share of the timeout after which its own process treats it as ended
HOLDER_SHARE = 0.75
#: heartbeats per timeout
HEARTBEATS = 6
_NAME = re.compile(r"[A-Za-z0-9_.@:-]{1,200}")


def clock() -> float:
    """Seconds that pass while the machine sleeps too, and that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class Record:
    """The value at a path, and the version that a change must name."""

    value: bytes
    version: int


@former_names(alive="is_alive", end="end_session", session="start_session")
class Store(ABC):
    """A coordination store. Several threads may use it. Close it after use."""

    @abstractmethod
    def get(self, path: str) -> Record | None:
        """The newest record at a path; None when there is none."""

    @abstractmethod
    def create(self, path: str, value: bytes) -> int | None:
        """Put a record where there is none; returns its version, or None when there is one."""

    @abstractmethod
    def replace(self, path: str, value: bytes, version: int) -> int | None:
        """Replace the record of this version; returns the new version, or None when the version is another."""

    @abstractmethod
    def delete(self, path: str, version: int) -> bool:
        """Remove the record of this version; False when it has another, or is gone."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """The names directly below a path that are a record or have one below them, sorted."""

    @abstractmethod
    def wait(self, path: str, seen: int | None, seconds: float) -> Record | None:
        """Wait until a record's version is not `seen` (None: there was no record), at most so long; returns it."""

    @abstractmethod
    def start_session(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Session:
        """Start a session: it lives while this process sends heartbeats. Close it after use."""

    @abstractmethod
    def is_alive(self, session: str) -> bool:
        """Whether a session may still live. False is final."""

    @abstractmethod
    def end_session(self, session: str) -> None:
        """End a session whose process is known to have ended, so that nobody waits for the timeout."""

    @abstractmethod
    def members(self, group: str) -> Mapping[str, bytes]:
        """The members of a group whose sessions live: each one's value, by name."""

    @abstractmethod
    def describe(self) -> str:
        """The store's address, for messages."""

    @abstractmethod
    def close(self) -> None:
        """Release the store's resources. Whoever started a session closes it."""


@former_names(_beat="_send_heartbeat", after_each_beat="add_heartbeat_listener", held="is_held")
class Session(ABC):
    """A process's liveness as others see it. A thread sends heartbeats until the session is closed or lost."""

    def __init__(self, id: str, timeout_seconds: float) -> None:
        self.id = id
        self.timeout_seconds = timeout_seconds
        #: set once the session is over, for whichever reason
        self.ended = threading.Event()
        #: whether the store did not answer the last heartbeat: if the session is over, then because of an outage
        self.is_store_away = False
        self._until = clock() + timeout_seconds * HOLDER_SHARE
        self._closing = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name=f"session-{id}", daemon=True)

    def is_held(self) -> bool:
        """Whether the session certainly lives: no other process treats it as ended yet."""
        if not self.ended.is_set() and clock() >= self._until:
            self.ended.set()
        return not self.ended.is_set()

    def add_heartbeat_listener(self, listener: Callable[[], None]) -> None:
        """Call a function after each heartbeat."""
        self._listeners.append(listener)

    @abstractmethod
    def join(self, group: str, name: str, value: bytes) -> bool:
        """Join a group until the session ends; False when a living member has that name."""

    @abstractmethod
    def leave(self, group: str, name: str) -> None:
        """Leave a group."""

    def close(self) -> None:
        """End the session: others see it at once."""
        self._closing.set()
        self.ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        self._end()

    @abstractmethod
    def _send_heartbeat(self) -> bool:
        """Send a heartbeat; False when others have seen the session end. May raise STORE_UNAVAILABLE."""

    @abstractmethod
    def _end(self) -> None:
        """Make the end visible to others."""

    def _run(self) -> None:
        while not self._closing.wait(self.timeout_seconds / HEARTBEATS) and self.is_held():
            before = clock()
            try:
                seen = self._send_heartbeat()
            except ExternalError:
                self.is_store_away = True
                continue  # the store is unavailable: it may be back before the session ends
            self.is_store_away = False
            if not seen or not self.is_held():  # a heartbeat after the end does not revive the session
                self.ended.set()
                break
            self._until = before + self.timeout_seconds * HOLDER_SHARE
            for listener in self._listeners:
                listener()


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into its parts; raises `UserError` BAD_PATH if it is not one."""
    parts = tuple(path.split("/"))
    if not all(_NAME.fullmatch(part) and part.strip(".") for part in parts):
        raise UserError(
            "BAD_PATH",
            f"{path!r} is not a path in the coordination store",
            hint="Use parts of letters, digits and _ . @ : - with / between them.",
        )
    return parts


def store_unavailable(store: str, failure: BaseException) -> ExternalError:
    """The error for a store that does not answer."""
    return ExternalError(
        "STORE_UNAVAILABLE",
        f"the coordination store {store} does not answer",
        detail=f"{type(failure).__name__}: {failure}.",
        hint="Restart it. An engine that has a lease continues until the lease expires, then stops writing.",
        is_transient=True,
    )


__getattr__ = former_names_in(
    __name__,
    BEATS="HEARTBEATS",
    HOLDER_PART="HOLDER_SHARE",
    checked="split_path",
    unavailable="store_unavailable",
)
