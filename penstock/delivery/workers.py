"""Threads that execute work which may block: one as long as work is quick, more while others wait behind what is slow.

Guarantees: items are started in the order in which they are due. An item that blocks delays the others by
`grow_seconds` at most, up to `most` items that block at once.
Does not guarantee: that an item under way ends when `close` is called.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
#: a thread that has had nothing to do for so long ends, in seconds
_IDLE_SECONDS = 10.0


class Workers(Generic[Item]):
    """Executes items, each by a call of `execute`, which must not raise. From any thread."""

    def __init__(
        self, execute: Callable[[Item], None], name: str, *, most: int = 200, grow_seconds: float = 0.1
    ) -> None:
        self._execute, self._name = execute, name
        self._most, self._grow_seconds = most, grow_seconds
        self._lock = threading.Lock()
        #: for threads without work, and for the one that watches the others
        self._work, self._watch = threading.Condition(self._lock), threading.Condition(self._lock)
        #: what is due, with the time since when; and what is due later, by time and number
        self._due: deque[tuple[float, Item]] = deque()
        self._later: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._watcher: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due."""
        with self._lock:
            return not self._due

    def submit(self, item: Item, delay_seconds: float = 0.0) -> None:
        """Execute an item, after a delay if there is one. Nothing is executed any more after `close`."""
        with self._lock:
            if self._is_closed:
                return
            now = time.monotonic()
            if delay_seconds > 0:
                heapq.heappush(self._later, (now + delay_seconds, next(self._numbers), item))
            else:
                self._add_due(now, item)
            if self._later or self._lacks_thread():
                self._wake_watcher()

    def close(self, seconds: float = 0.0) -> bool:
        """Execute nothing more; wait at most so long for items under way. Returns whether none is left."""
        with self._lock:
            self._is_closed = True
            self._due.clear()
            self._later.clear()
            self._work.notify_all()
            self._watch.notify_all()
            threads = [*self._threads, *([self._watcher] if self._watcher else [])]
        deadline = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _add_due(self, now: float, item: Item) -> None:
        self._due.append((now, item))
        if self._idle:
            self._work.notify()
        elif not self._threads:
            self._start_thread()

    def _lacks_thread(self) -> bool:
        """Whether more is due than idle threads will take: one that is notified counts as idle until it runs."""
        return len(self._due) > self._idle

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _wake_watcher(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(
                target=self._watch_others, name=f"{self._name}-watch", daemon=True
            )
            self._watcher.start()
        self._watch.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._due and not self._is_closed:
                    self._idle += 1
                    is_notified = self._work.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if not is_notified and not self._due:
                        break
                if not self._due or self._is_closed:
                    self._threads.discard(threading.current_thread())
                    return
                _, item = self._due.popleft()
            self._execute(item)

    def _watch_others(self) -> None:
        """Add what is due by now, and a thread while something has waited for one."""
        with self._lock:
            while not self._is_closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._add_due(now, heapq.heappop(self._later)[2])
                pauses = [self._later[0][0] - now] if self._later else []
                if self._lacks_thread():
                    waited = now - self._due[self._idle][0]
                    if waited >= self._grow_seconds and len(self._threads) < self._most:
                        self._start_thread()
                        waited = 0.0
                    pauses.append(max(self._grow_seconds - waited, 0.01))
                self._watch.wait(min(pauses, default=None))
