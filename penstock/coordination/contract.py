"""What a coordination store is: small records that change by compare-and-set, and sessions that others can see end.

Receives paths such as `units/clicks/leader` and bytes; hands records, members and news of changes.

Guarantees: `create`, `replace` and `delete` of one record happen one after the other, each in one step, and are kept
when they return; of several that name the same version one succeeds. A session that has ended stays ended, for
everybody; its own process knows (`held` is false) before any other may think so, as long as no monotonic clock
runs more than a fourth faster than another. Nothing compares the clocks of two processes: an observer watches, with
its own, whether the other still shows signs of life.
Does not guarantee: that a waiter sees every change (it sees the newest); that a version is not met again after a
delete; that a member which died before anybody looked is gone at the first look.
On failure: `ExternalError` STORE_UNAVAILABLE. The change may then have been made or not: read again.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import ExternalError, UserError

#: how long a session lives without a sign of life, unless said otherwise
TIMEOUT_SECONDS = 2.0
#: the part of the timeout after which its own process counts it as ended
HOLDER_PART = 0.75
#: signs of life per timeout
BEATS = 6
_NAME = re.compile(r"[A-Za-z0-9_.@:-]{1,200}")


def clock() -> float:
    """Seconds that pass while the machine sleeps too, and that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class Record:
    """What lies at a path, and the version that a change must name."""

    value: bytes
    version: int


class Store(ABC):
    """A coordination store. May be used by several threads. To be closed."""

    @abstractmethod
    def get(self, path: str) -> Record | None:
        """The newest record at a path; None when there is none."""

    @abstractmethod
    def create(self, path: str, value: bytes) -> int | None:
        """Put a record where there is none; returns its version, or None when there is one."""

    @abstractmethod
    def replace(self, path: str, value: bytes, version: int) -> int | None:
        """Replace the record of this version; returns the new one's, or None when it is another's turn."""

    @abstractmethod
    def delete(self, path: str, version: int) -> bool:
        """Remove the record of this version; False when it has another, or is gone."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """The names directly below a path that are a record or have one below them, sorted."""

    @abstractmethod
    def wait(self, path: str, seen: int | None, seconds: float) -> Record | None:
        """Wait until a record's version is not `seen` (None: there was no record), or for so long; what it is then."""

    @abstractmethod
    def session(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Session:
        """Begin a session: it lives while this process gives signs of life. To be closed."""

    @abstractmethod
    def alive(self, session: str) -> bool:
        """Whether a session may still live. False is final."""

    @abstractmethod
    def end(self, session: str) -> None:
        """Told by one who knows that a session's process has ended: nobody has to wait for the timeout."""

    @abstractmethod
    def members(self, group: str) -> Mapping[str, bytes]:
        """The members of a group whose sessions live: what each said of itself, by name."""

    @abstractmethod
    def describe(self) -> str:
        """One line for people: where it is."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held open. Sessions are closed by whoever began them."""


class Session(ABC):
    """A process's life as others see it. Gives signs of life from a thread of its own until closed or lost."""

    def __init__(self, id: str, timeout_seconds: float) -> None:
        self.id = id
        self.timeout_seconds = timeout_seconds
        #: set once the session is over, for whichever reason
        self.ended = threading.Event()
        self._until = clock() + timeout_seconds * HOLDER_PART
        self._closing = threading.Event()
        self._watchers: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._live, name=f"session-{id}", daemon=True)

    def held(self) -> bool:
        """Whether the session lives, for certain: nobody else counts it as ended yet."""
        if not self.ended.is_set() and clock() >= self._until:
            self.ended.set()
        return not self.ended.is_set()

    def after_each_beat(self, look: Callable[[], None]) -> None:
        """Have something looked at as often as a sign of life is given."""
        self._watchers.append(look)

    @abstractmethod
    def join(self, group: str, name: str, value: bytes) -> bool:
        """Be a member of a group until the session ends; False when a living member has that name."""

    @abstractmethod
    def leave(self, group: str, name: str) -> None:
        """Be no member any more."""

    def close(self) -> None:
        """End the session: others see it at once."""
        self._closing.set()
        self.ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        self._end()

    @abstractmethod
    def _beat(self) -> bool:
        """Give a sign of life; False when others have seen the session end. May raise STORE_UNAVAILABLE."""

    @abstractmethod
    def _end(self) -> None:
        """Make the end known."""

    def _live(self) -> None:
        while not self._closing.wait(self.timeout_seconds / BEATS) and self.held():
            before = clock()
            try:
                seen = self._beat()
            except ExternalError:
                continue  # the store is away: we go on while the session lives, and it may be back before
            if not seen or not self.held():  # a sign that comes after the end revives nothing
                self.ended.set()
                break
            self._until = before + self.timeout_seconds * HOLDER_PART
            for look in self._watchers:
                look()


def checked(path: str) -> tuple[str, ...]:
    """The parts of a path; `UserError` BAD_PATH if it is none."""
    parts = tuple(path.split("/"))
    if not all(_NAME.fullmatch(part) and part.strip(".") for part in parts):
        raise UserError(
            "BAD_PATH",
            f"{path!r} cannot be a path in the coordination store",
            hint="Use parts of letters, digits and _ . @ : - with / between them.",
        )
    return parts


def unavailable(store: str, failure: BaseException) -> ExternalError:
    """The error of a store that does not answer."""
    return ExternalError(
        "STORE_UNAVAILABLE",
        f"the coordination store {store} does not answer",
        detail=f"{type(failure).__name__}: {failure}.",
        hint="Bring it back. An engine that has a lease goes on until the lease runs out, then stops writing.",
    )
