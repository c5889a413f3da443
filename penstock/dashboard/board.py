"""What the pages show, read from the service and nowhere else.

Receives questions from open pages; hands what the API would answer. Everything is asked of the host at most once a
second, however many pages are open, and less often where asking takes long: looking never takes more than a twentieth
of a core. While no page is open, nothing is asked.
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
from penstock.sinks.portable import portable

T = TypeVar("T")

#: an answer is good for this long, in seconds, and for this many times as long as it took
_GOOD_SECONDS, _GOOD_TIMES = 0.9, 20
#: rows of an answer that are shown
SHOWN_ROWS = 100


@dataclass(frozen=True)
class JobView:
    """A job's page: what it is, what it told last, how it is made, what was done to it."""

    facts: schemas.JobPage
    epoch: int | None
    rows: pl.DataFrame
    total: int
    graph: schemas.Graph | None
    versions: list[schemas.JobVersion]


@dataclass(frozen=True)
class Strain:
    """How hard the fleet worked at an instant: cores that were busy, cores there were, executors."""

    at: float
    busy: float
    cores: int
    executors: int


@dataclass
class Board:
    """The service, for pages."""

    service: Service
    strain: deque[Strain] = field(default_factory=lambda: deque(maxlen=300))
    _seen: dict[Hashable, tuple[float, Any]] = field(default_factory=dict)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -- what is shown ---------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The engine in numbers."""
        return self._once("status", self.service.status)

    def epochs(self) -> list[dict[str, Any]]:
        """The last epochs, oldest first."""
        return self._once("epochs", lambda: self.service.host.epochs(300))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs; none while the engine starts."""
        return self._once("jobs", lambda: [] if self._starting else self.service.host.jobs())

    def streams(self) -> list[dict[str, Any]]:
        """All streams; none while the engine starts."""
        return self._once("streams", lambda: [] if self._starting else self.service.host.streams())

    def engine(self) -> schemas.EngineFacts:
        """The engine inside; without figures before it runs."""
        return self._once("engine", self._engine)

    def recovery(self) -> schemas.RecoveryFacts:
        """How the engine is protected."""
        return self._once("recovery", lambda: recovery_facts(self.service.host))

    def logs(self, most: int = 200) -> list[dict[str, Any]]:
        """The latest lines of the log, the latest first."""
        return self._once(("logs", most), lambda: self.service.logged.lines(most))

    def aside(self, stream: str, why: str) -> list[dict[str, Any]]:
        """Records of a stream that were put aside, the latest first."""
        return self._once((stream, why), lambda: self.service.host.aside(stream, why, 50))

    def job(self, name: str) -> JobView:
        """A job's page; raises if there is no such job."""
        return self._once(("job", name), lambda: self._job(name))

    @property
    def changeable(self) -> bool:
        """Whether jobs can be created and altered here."""
        return hasattr(self.service.host.program, "say")

    # -- what is done ----------------------------------------------------------------------------

    def create(self, name: str, query: str, check: bool = False) -> schemas.Answered:
        """Create a job, or only check whether it could be."""
        return self._done(lambda: self.service.create(requests.NewJob(name=name, query=query), check), check)

    def alter(self, name: str, query: str, check: bool = False) -> schemas.Answered:
        """Alter a job's query, or only check whether it could be."""
        return self._done(lambda: self.service.alter(name, requests.Change(query=query), check), check)

    def set_parameters(
        self, name: str, parameters: Mapping[str, requests.Value], check: bool = False
    ) -> schemas.Answered:
        """Give parameters of a job other values, or only check whether they could be."""
        change = requests.Change(parameters=dict(parameters))
        return self._done(lambda: self.service.alter(name, change, check), check)

    def change(self, verb: str, name: str) -> schemas.Answered:
        """Pause, resume, flush, empty or drop a job."""
        return self._done(lambda: self.service.change(verb, name), False)

    def _done(self, what: Callable[[], schemas.Answered], check: bool) -> schemas.Answered:
        try:
            return what()
        finally:
            if not check:
                with self._lock:
                    self._seen.clear()

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _starting(self) -> bool:
        return self.service.host.phase == "starting"

    def _engine(self) -> schemas.EngineFacts:
        found = engine_facts(self.service.host)
        if found.measured:
            cores = sum(one.cores for one in found.executors.values())
            busy = sum(one.cores * (one.cpu or 0.0) for one in found.executors.values())
            self.strain.append(Strain(time.time(), busy, cores, len(found.executors)))
        return found

    def _job(self, name: str) -> JobView:
        host = self.service.host
        facts = schemas.JobPage(**host.job(name))
        answer = host.ask(name)
        rows = pl.DataFrame() if answer is None else answer.rows
        try:
            graph = host.graph(name)
        except Exception:  # a job that failed may have no plan
            if facts.life != "failed":
                raise
            graph = None
        versions = [schemas.JobVersion(**one) for one in host.versions(name)]
        shown = portable(rows.head(SHOWN_ROWS)) if rows.width else rows
        return JobView(facts, None if answer is None else answer.epoch, shown, rows.height, graph, versions)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            now = time.monotonic()
            good, seen = self._seen.get(key, (0.0, None))
            if now < good:
                found: T = seen
                return found
            made = make()
            took = time.monotonic() - now
            with self._lock:
                self._seen[key] = now + max(_GOOD_SECONDS, _GOOD_TIMES * took), made
                for old in [key for key, (until, _) in self._seen.items() if until < now - 60]:
                    del self._seen[old]
            return made
