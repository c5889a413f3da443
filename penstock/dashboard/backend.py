"""Reads and changes the service for the pages, and caches what it reads.

However many pages are open, each value is read at most once a second, and less often if a read takes long: never more
than a twentieth of a core for one value. While no page is open, nothing is read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from penstock.server import request_bodies as requests
from penstock.server import response_bodies as schemas
from penstock.server.api import Service
from penstock.server.diagnostics import engine_facts, recovery_facts
from penstock.sinks.portable import to_portable

T = TypeVar("T")

#: a value is cached for so many seconds, and for so many times as long as reading it took
_CACHE_SECONDS, _CACHE_TIMES = 0.9, 20
#: a value that no page reads leaves the cache after so many seconds
_UNUSED_SECONDS = 60
#: rows of a result that are shown
MAX_ROWS = 100


@dataclass(frozen=True)
class JobView:
    """What the page of a job shows: the job, the first rows of its latest result, its graph, its history."""

    facts: schemas.JobDetails
    epoch: int | None
    rows: pl.DataFrame
    total: int
    graph: schemas.Graph | None
    versions: list[schemas.JobVersion]


@dataclass(frozen=True)
class CoreUsage:
    """Busy and available cores at an instant (seconds since 1970)."""

    at: float
    busy: float
    cores: int


@dataclass
class Backend:
    """The service, as the pages read and change it."""

    service: Service
    core_usage: deque[CoreUsage] = field(default_factory=lambda: deque(maxlen=300))
    #: until when a value is cached, and the value
    _cache: dict[Hashable, tuple[float, Any]] = field(default_factory=dict)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -- reads -----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The values of `/status`."""
        return self._cached("status", self.service.status)

    def epochs(self) -> list[dict[str, Any]]:
        """The last epochs, oldest first."""
        return self._cached("epochs", lambda: self.service.host.epochs(300))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs; none while the engine starts."""
        return self._cached("jobs", lambda: [] if self._is_starting else self.service.host.jobs())

    def streams(self) -> list[dict[str, Any]]:
        """All streams; none while the engine starts."""
        return self._cached("streams", lambda: [] if self._is_starting else self.service.host.streams())

    def engine(self) -> schemas.EngineFacts:
        """The engine with its stages and executors; without measurements before it runs."""
        return self._cached("engine", self._engine)

    def recovery(self) -> schemas.RecoveryFacts:
        """The scheme of the engine, its restarts, and the HA unit of the service."""
        return self._cached("recovery", lambda: recovery_facts(self.service.host))

    def logs(self, limit: int = 200) -> list[dict[str, Any]]:
        """The latest lines of the log, the latest first."""
        return self._cached(("logs", limit), lambda: self.service.recent_lines.lines(limit))

    def side_output(self, stream: str, kind: str) -> list[dict[str, Any]]:
        """The dead letters (`dead`) or late events (`late`) of a stream, the latest first."""
        return self._cached((stream, kind), lambda: self.service.host.side_output(stream, kind, 50))

    def job(self, name: str) -> JobView:
        """What the page of a job shows; raises if there is no such job."""
        return self._cached(("job", name), lambda: self._job(name))

    @property
    def takes_commands(self) -> bool:
        """Whether jobs can be created and altered."""
        return self.service.host.takes_commands

    # -- changes ---------------------------------------------------------------------------------

    def create(self, name: str, query: str, check: bool = False) -> schemas.StatementReply:
        """Create a job, or only check the statement."""
        return self._change(
            lambda: self.service.create(requests.NewJob(name=name, query=query), check), check
        )

    def alter(self, name: str, query: str, check: bool = False) -> schemas.StatementReply:
        """Alter the query of a job, or only check the statement."""
        change = requests.JobChange(query=query)
        return self._change(lambda: self.service.alter(name, change, check), check)

    def set_parameters(
        self, name: str, parameters: Mapping[str, requests.Value], check: bool = False
    ) -> schemas.StatementReply:
        """Alter parameters of a job, or only check the statement."""
        change = requests.JobChange(parameters=dict(parameters))
        return self._change(lambda: self.service.alter(name, change, check), check)

    def change(self, verb: str, name: str) -> schemas.StatementReply:
        """Pause, resume, flush, empty or drop a job."""
        return self._change(lambda: self.service.change(verb, name), False)

    def _change(self, action: Callable[[], schemas.StatementReply], check: bool) -> schemas.StatementReply:
        try:
            return action()
        finally:
            if not check:
                with self._lock:
                    self._cache.clear()

    # -- parts -----------------------------------------------------------------------------------

    @property
    def _is_starting(self) -> bool:
        return self.service.host.phase == "starting"

    def _engine(self) -> schemas.EngineFacts:
        engine = engine_facts(self.service.host)
        if engine.measured:
            executors = engine.executors.values()
            busy = sum(one.cores * (one.cpu or 0.0) for one in executors)
            self.core_usage.append(CoreUsage(time.time(), busy, sum(one.cores for one in executors)))
        return engine

    def _job(self, name: str) -> JobView:
        host = self.service.host
        facts = schemas.JobDetails(**host.job(name))
        result = host.latest_result(name)
        rows = pl.DataFrame() if result is None else result.rows
        try:
            graph = host.graph(name)
        except Exception:  # a job that failed may have no plan
            if facts.life != "failed":
                raise
            graph = None
        versions = [schemas.JobVersion(**one) for one in host.versions(name)]
        first = to_portable(rows.head(MAX_ROWS)) if rows.width else rows
        return JobView(facts, None if result is None else result.epoch, first, rows.height, graph, versions)

    def _cached(self, key: Hashable, read: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            now = time.monotonic()
            until, cached = self._cache.get(key, (0.0, None))
            if now < until:
                hit: T = cached
                return hit
            value = read()
            took = time.monotonic() - now
            with self._lock:
                self._cache[key] = now + max(_CACHE_SECONDS, _CACHE_TIMES * took), value
                unused = [key for key, (until, _) in self._cache.items() if until < now - _UNUSED_SECONDS]
                for old in unused:
                    del self._cache[old]
            return value
