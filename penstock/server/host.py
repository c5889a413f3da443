"""What the API is an API of: a program that runs, whoever runs it.

Receives reports of epochs from the engine's thread, and questions and statements from the API's; hands answers.

Guarantees: what is asked never waits for an epoch. Results are shown once their epoch is committed. Does not guarantee:
that a statement is checked while another is; they take turns.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import penstock
from penstock.catalogue.code_requests import CodeRequest
from penstock.catalogue.command import Answered
from penstock.catalogue.coordinators import Coordinators
from penstock.catalogue.program import Program
from penstock.catalogue.results import Answer
from penstock.engine.gauges import Gauges
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, UserError
from penstock.metrics import Registry, expose
from penstock.metrics.declared import JOB_ROWS
from penstock.metrics.epoch import EpochFigures
from penstock.metrics.facts import set_engine, set_service, set_unit
from penstock.query.logical import StreamDefinition
from penstock.server import inventory
from penstock.server.engine_numbers import numbers, put_aside
from penstock.server.epoch_history import Past
from penstock.server.job_graph import Flow, of_job
from penstock.server.push import pushed
from penstock.server.response_bodies import Graph
from penstock.server.restarts import Restarts
from penstock.server.security import FileGuard
from penstock.server.stream_writers import SegmentWriters
from penstock.server.wire import answer_json
from penstock.sql.parse import parse

#: told that epochs were committed or jobs changed; from any thread
Listener = Callable[[], None]

#: the engine is looked at this often at most, in seconds
_LOOK_SECONDS = 0.9


class Host:
    """A program under way, as the API sees it."""

    def __init__(self, program: Program, state: Path, guard: FileGuard | None = None) -> None:
        self.program, self.state = program, state
        self.phase = "starting"
        #: the last epoch whose results may be shown
        self.committed = -1
        #: how much waits in the log of each stream, in its units
        self.backlog: Callable[[], Mapping[str, int]] = dict
        #: the engine's own status, and that of an HA unit that is watched
        self.look: Callable[[], Mapping[str, Any]] = dict
        self.unit: Callable[[], Mapping[str, Any] | None] = lambda: None
        self.listeners: list[Listener] = []
        #: who else carries masters of its jobs; None where all are here
        self.spread: Coordinators | None = None
        self._guard = guard or FileGuard((), state)
        self._gauges, self._lock = Gauges(), threading.Lock()
        self._past = Past()
        self._looked: tuple[float, Mapping[str, Any]] = (-_LOOK_SECONDS, {})
        self._looking = threading.Lock()
        self.restarts = Restarts(state)
        self._last_seconds: float | None = None
        self._epochs: Counter[str] = Counter()
        #: answers as JSON, until there are newer ones; `_changes` counts what was said
        self._answers: dict[str, bytes] = {}
        self._changes = self._commands = 0
        self._began = time.monotonic()
        self._writers = SegmentWriters()

    def close(self) -> None:
        """Let go of the logs that were written to."""
        self._writers.close()

    # -- what the engine's thread tells ----------------------------------------------------------

    def opened(self, committed: int, *, ours: bool = True) -> None:
        """The state is open: from now on there are answers, and statements are taken. `ours`: it is this service whose
        starts are kept beside it."""
        self.committed = committed
        if ours:
            self.restarts.opened(committed)
        self.phase = "opened"

    def entered(self, phase: str) -> None:
        """The engine says what it is about."""
        self.phase = phase
        if phase == "running":
            with self._lock:
                self._gauges.began()

    def epoch(self, report: EpochReport) -> None:
        """An epoch is committed."""
        emitted = report.figures.rows
        self.counted(report.figures)
        with self._lock:
            self._epochs.update(emitted.keys())
        self.committed = max(self.committed, report.epoch)
        self._renew(emitted)

    def counted(self, epoch: EpochFigures) -> None:
        """What an epoch did in numbers; its rows may be elsewhere."""
        with self._lock:
            self._gauges.count(epoch)
            self._last_seconds = epoch.seconds
            self._past.add(epoch, sum(self.backlog().values()))
        self.restarts.epoch(epoch)

    def followed(self, committed: int, told: Mapping[str, int]) -> None:
        """Another process has committed epochs, in which jobs told something so many times."""
        with self._lock:
            self._epochs.update(told)
        self.committed = committed
        self._renew(told)

    def _renew(self, told: Iterable[str]) -> None:
        """Forget the answers that may be old now."""
        commands = self.program.commands
        if commands != self._commands:  # others may have said something
            self._commands = commands
            self._changes += 1
            self._answers.clear()
        for name in told:
            self._answers.pop(name, None)
        self._heard()

    def ended(self) -> None:
        """The engine has stopped."""
        self.phase = "ending"
        self.restarts.ended()
        self._heard()

    def _heard(self) -> None:
        for listener in list(self.listeners):
            listener()

    def check_open(self) -> None:
        """Raise until there is something to ask."""
        if self.phase == "starting":
            raise ExternalError("ENGINE_STARTING", "the engine is starting", hint="Ask again in a second.")

    # -- statements ------------------------------------------------------------------------------

    def say(self, text: str, request: str | None = None, check: bool = False) -> list[Answered]:
        """Have statements carried out, if they may be said over HTTP, once if the request has a name; or only say what
        would be answered."""
        self.check_open()
        self._guard.check(parse(text))
        program = self.program
        with self._changing(check):
            return program.checked(text) if check else program.say(text, request)

    def submit(
        self, submitted: CodeRequest, request: str | None = None, check: bool = False
    ) -> list[Answered]:
        """Have code become a job, if code is taken over HTTP at all."""
        self.check_open()
        self._guard.check_code()
        with self._changing(check):
            return self.program.submit(submitted, request, check=check)

    def check_code(self) -> None:
        """Raise unless code is taken over HTTP."""
        self._guard.check_code()

    @contextlib.contextmanager
    def _changing(self, check: bool) -> Iterator[None]:
        """What is known of jobs may be another after this, unless it is only checked."""
        try:
            yield
        finally:
            if not check:
                self._changes += 1
                self._answers.clear()
                self._heard()

    # -- answers ---------------------------------------------------------------------------------

    @property
    def moment(self) -> tuple[int, int]:
        """What is another as soon as answers may be others."""
        return self.committed, self._changes

    def answered(self, job: str) -> bytes | None:
        """A job's latest answer as JSON, if it is at hand. Never waits."""
        return self._answers.get(job)

    def answer(self, job: str) -> bytes:
        """A job's latest answer as JSON."""
        seen = self.moment
        told = answer_json(job, self.ask(job))
        if len(self._answers) < 1_000:
            self._answers[job] = told
        if seen != self.moment:  # it may be an older one
            self._answers.pop(job, None)
        return told

    def ask(self, job: str) -> Answer | None:
        """A job's latest answer."""
        self.check_open()
        return self.program.ask(job)

    def message(self, job: str, message: Any) -> Any:
        """What a job answers to a message."""
        self.check_open()
        return self.program.route(job, message)

    def identity(self, job: str) -> int:
        """What tells a job from others of its name; raises if there is none."""
        self.program.ask(job)
        return self.program.catalogue.jobs[job].created

    def results(self, job: str, since: int, most: int) -> list[Answer]:
        """What a job told in committed epochs from one on; of at most so many epochs. Raises if some of it is gone."""
        upto = self.committed
        self.check_kept(job, since)
        return [answer for answer in self.program.since(job, since, most) if answer.epoch <= upto]

    def check_kept(self, job: str, since: int) -> None:
        """Raise if a job told something from an epoch on that is no longer kept."""
        latest = self.ask(job)
        if since > self.committed + 1:
            raise UserError(
                "EPOCH_AHEAD",
                f"epoch {since} is ahead of what has happened here",
                detail=f"the last epoch is {self.committed}",
                hint="The engine may have begun anew since; begin without since.",
            )
        if since < self.program.kept_from and latest is not None and latest.epoch >= since:
            raise UserError(
                "RESULTS_GONE",
                f"what {job} told in epoch {since} is no longer kept",
                detail=f"kept is what was told from epoch {self.program.kept_from} on",
                hint=f"Begin with since={self.program.kept_from}, or without since for what comes from now on.",
            )

    # -- what there is ---------------------------------------------------------------------------

    def streams(self) -> list[dict[str, Any]]:
        """All streams."""
        self.check_open()
        waiting = self.backlog()
        return [
            {**inventory.stream_facts(name, said, stream), "backlog": waiting.get(stream.name)}
            for name, said, stream in inventory.streams(self.program)
        ]

    def stream(self, name: str) -> StreamDefinition:
        """A stream; raises if there is none."""
        self.check_open()
        return inventory.stream(self.program, name)

    def push(
        self, stream: str, body: bytes, producer: str | None = None, sequence: int | None = None
    ) -> tuple[int, int]:
        """Append the lines of a body to a stream's log; hands how many there were and how many were new."""
        return pushed(stream, self.stream(stream).log, body, self._writers, producer, sequence)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs."""
        self.check_open()
        return list(map(self._job, inventory.jobs(self.program)))

    def job(self, name: str) -> dict[str, Any]:
        """A job, with its columns and how it is carried out."""
        self.check_open()
        self.program.ask(name)
        return {**self._job(name), **inventory.job_inside(self.program, name)}

    def _job(self, name: str) -> dict[str, Any]:
        carrier = None if self.spread is None else self.spread.roster.carrier(name)
        return {**inventory.job_facts(self.program, name), **self._told(name), "coordinator": carrier}

    def _told(self, name: str) -> dict[str, Any]:
        latest = self.program.ask(name)
        with self._lock:
            rows, epochs = self._gauges.registry.count(JOB_ROWS, name), self._epochs[name]
            rate = self._past.told_per_second(name)
        return {
            "epoch": None if latest is None else latest.epoch,
            "rows": rows,
            "epochs": epochs,
            "rows_per_second": rate,
            "last_recovery": self.engine().get("recovery", {}).get("jobs", {}).get(name),
        }

    # -- inside ----------------------------------------------------------------------------------

    def epochs(self, most: int) -> list[dict[str, Any]]:
        """The latest epochs, oldest first."""
        with self._lock:
            return self._past.points(most)

    def engine(self) -> Mapping[str, Any]:
        """The engine's own status: looked at once a second at most, however many ask."""
        with self._looking:
            at, seen = self._looked
            if time.monotonic() - at >= _LOOK_SECONDS:
                seen = self.look() if self.phase in ("running", "ending") else {}
                self._looked = time.monotonic(), seen
            return seen

    def graph(self, name: str) -> Graph:
        """How a job's rows are made, and what passes at present."""
        self.check_open()
        self.program.ask(name)
        with self._lock:
            events = self._gauges.rate() if self._gauges.epochs else 0.0
            flow = Flow(events, self._past.units_per_second(), {name: self._past.told_per_second(name)})
        flow = replace(flow, sub_queries=self.engine().get("sub_queries", {}))
        return of_job(self.program.compiled(name), flow, self.program.sharing())

    def versions(self, name: str) -> list[dict[str, Any]]:
        """What was done to a job, oldest first."""
        self.check_open()
        self.program.ask(name)
        return [{"at": at, **asdict(one)} for at, one in self.program.versions(name)]

    def coordinators(self) -> list[dict[str, Any]]:
        """The coordinators that share the jobs' masters."""
        if self.spread is None:
            return []
        self.check_open()
        jobs = Counter(map(self.spread.roster.carrier, self.program.catalogue.jobs))
        return [
            {"name": one.name, "url": one.url, "engine": one.engine, "jobs": jobs[one.name]}
            for _, one in sorted(self.spread.alive.items())
        ]

    def aside(self, stream: str, why: str, most: int) -> list[dict[str, Any]]:
        """The latest records of a stream that were put aside, the latest first."""
        return put_aside(self.state / why / self.stream(stream).name, self.committed, most)

    def exported(self, service: Mapping[str, Any], responses: Mapping[int, int]) -> str:
        """All metrics of the engine, the unit and the service as Prometheus' text."""
        jobs = [] if self.phase == "starting" else self.jobs()
        now, counted = Registry(), self._gauges.registry
        set_engine(now, self.engine())
        if (unit := self.unit()) is not None:
            set_unit(now, unit)
        set_service(now, service, jobs, responses)
        counted.retain("job", {job["name"] for job in jobs})
        return expose(now, counted)

    def status(self) -> dict[str, Any]:
        """The engine in numbers."""
        with self._lock:
            told = numbers(self._gauges)
            told["last_epoch_seconds"] = self._last_seconds
        streams, lives = inventory.counts(self.program) if self.phase != "starting" else (0, {})
        return {
            "name": self.program.name,
            "version": penstock.__version__,
            "phase": self.phase,
            "up_seconds": time.monotonic() - self._began,
            "epoch": self.committed,
            **told,
            "backlog": dict(self.backlog()),
            "streams": streams,
            "jobs": lives,
        }
