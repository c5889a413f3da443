"""Gives the API access to a running program, whether this process or another runs its engine.

The thread of the engine (or of a follower of engines elsewhere) reports epochs; the threads of the API read and change.

Guarantees: a read never waits for an epoch. Results are shown once their epoch is committed.
Does not guarantee: that statements are checked in parallel; they take turns.
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
from penstock.catalogue.command import Reply
from penstock.catalogue.coordinators import Coordinators
from penstock.catalogue.program import Program
from penstock.delivery.result_log import JobResult
from penstock.engine.gauges import Gauges
from penstock.engine.status import EngineStatus, set_engine
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, UserError
from penstock.metrics import Registry, expose
from penstock.metrics.declared import JOB_ROWS
from penstock.metrics.epoch import EpochMetrics
from penstock.metrics.facts import set_connections, set_service, set_unit
from penstock.query.logical import StreamDefinition
from penstock.server import inventory
from penstock.server.epoch_history import EpochHistory, status_values
from penstock.server.job_graph import Rates, job_graph
from penstock.server.response_bodies import Graph
from penstock.server.restarts import Restarts
from penstock.server.statement_guard import StatementGuard
from penstock.server.stream_writers import SegmentWriters, append_lines
from penstock.server.wire import result_json
from penstock.sql.parse import parse
from penstock.sql.parsed_texts import parse_once

#: called when epochs are committed or jobs change; from any thread
Listener = Callable[[], None]

#: the status of the engine is read this often at most, in seconds
_STATUS_SECONDS = 0.9
#: jobs whose latest result is cached as JSON
_MAX_CACHED_RESULTS = 1_000


class Host:  # over 25 methods: one for each thing that the API shows or changes
    """A running program, as the API sees it."""

    def __init__(self, program: Program, state: Path, guard: StatementGuard | None = None) -> None:
        self.program, self.state = program, state
        self.phase = "starting"
        #: the last epoch whose results may be shown
        self.committed = -1
        #: bytes or records that wait in the log of each stream
        self.backlog: Callable[[], Mapping[str, int]] = dict
        #: the status of the engine, and that of the HA unit that the service runs or watches
        self.engine_status: Callable[[], EngineStatus | None] = lambda: None
        self.unit_status: Callable[[], Mapping[str, Any] | None] = lambda: None
        self.listeners: list[Listener] = []
        #: the coordinators that share the jobs; None if this process manages all of them
        self.peers: Coordinators | None = None
        self._guard = guard or StatementGuard((), state)
        self._gauges, self._lock = Gauges(), threading.Lock()
        self._history = EpochHistory()
        self._cached_status: tuple[float, EngineStatus | None] = (-_STATUS_SECONDS, None)
        self._status_lock = threading.Lock()
        self.restarts = Restarts(state)
        self._last_seconds: float | None = None
        self._epochs: Counter[str] = Counter()
        #: latest results as JSON, until there are newer ones; `_changes` counts changes of jobs
        self._cached_results: dict[str, bytes] = {}
        self._changes = self._commands = 0
        self._started_at = time.monotonic()
        self._writers = SegmentWriters()

    def close(self) -> None:
        """Close the logs that this process writes."""
        self._writers.close()

    # -- reports of the engine -------------------------------------------------------------------

    def open(self, committed: int, *, ours: bool = True) -> None:
        """Show results and accept statements: the state is open. `ours`: the state belongs to this service, so its
        restarts are recorded there."""
        self.committed = committed
        if ours:
            self.restarts.open(committed)
        self.phase = "opened"

    def enter_phase(self, phase: str) -> None:
        """Show another phase of the engine."""
        self.phase = phase
        if phase == "running":
            with self._lock:
                self._gauges.start()

    def add_epoch(self, report: EpochReport) -> None:
        """Show a committed epoch."""
        emitted = report.metrics.rows
        self.count_epoch(report.metrics)
        with self._lock:
            self._epochs.update(emitted.keys())
        self.committed = max(self.committed, report.epoch)
        self._drop_stale_results(emitted)

    def count_epoch(self, epoch: EpochMetrics) -> None:
        """Count the figures of an epoch; its rows may be in another process."""
        with self._lock:
            self._gauges.count(epoch)
            self._last_seconds = epoch.seconds
            self._history.add(epoch, sum(self.backlog().values()))
        self.restarts.add_epoch(epoch)

    def follow(self, committed: int, emitted: Mapping[str, int]) -> None:
        """Show epochs that another process committed; `emitted`: in how many of them each job emitted rows."""
        with self._lock:
            self._epochs.update(emitted)
        self.committed = committed
        self._drop_stale_results(emitted)

    def _drop_stale_results(self, emitted: Iterable[str]) -> None:
        """Drop the cached results of jobs that emitted rows, and all of them after a command."""
        commands = self.program.commands
        if commands != self._commands:  # also commands that another process accepted
            self._commands = commands
            self._changes += 1
            self._cached_results.clear()
        for name in emitted:
            self._cached_results.pop(name, None)
        self._notify()

    def end(self) -> None:
        """Show that the engine has stopped."""
        self.phase = "ending"
        self.restarts.end()
        self._notify()

    def _notify(self) -> None:
        for listener in list(self.listeners):
            listener()

    def check_open(self) -> None:
        """Raise while the engine starts."""
        if self.phase == "starting":
            raise ExternalError("ENGINE_STARTING", "the engine is starting", hint="Retry in a second.")

    # -- statements ------------------------------------------------------------------------------

    @property
    def takes_commands(self) -> bool:
        """Whether jobs can be created and altered; those for which agents reduce cannot."""
        return not inventory.is_reduced(self.program)

    def execute(self, text: str, request: str | None = None, check: bool = False) -> list[Reply]:
        """Execute statements that may arrive over HTTP, once for each idempotency key `request`. With `check`, return
        what they would return and change nothing."""
        self.check_open()
        with parse_once():
            self._guard.check(parse(text))
            program = self.program
            with self._changing_jobs(check):
                return program.check(text) if check else program.execute(text, request)

    def submit(self, submitted: CodeRequest, request: str | None = None, check: bool = False) -> list[Reply]:
        """Create or alter a job from code, if code may arrive over HTTP."""
        self.check_open()
        self._guard.check_code()
        with self._changing_jobs(check):
            return self.program.submit(submitted, request, check=check)

    def check_code(self) -> None:
        """Raise unless code may arrive over HTTP."""
        self._guard.check_code()

    @contextlib.contextmanager
    def _changing_jobs(self, check: bool) -> Iterator[None]:
        """Drop what is cached of jobs afterwards, unless a change is only checked."""
        try:
            yield
        finally:
            if not check:
                self._changes += 1
                self._cached_results.clear()
                self._notify()

    # -- results ---------------------------------------------------------------------------------

    @property
    def result_version(self) -> tuple[int, int]:
        """Changes as soon as the latest result of any job may change."""
        return self.committed, self._changes

    def cached_result(self, job: str) -> bytes | None:
        """A job's latest result as JSON if it is cached. Never waits."""
        return self._cached_results.get(job)

    def encode_latest_result(self, job: str) -> bytes:
        """Encode a job's latest result as JSON, and cache it."""
        version = self.result_version
        encoded = result_json(job, self.latest_result(job))
        if len(self._cached_results) < _MAX_CACHED_RESULTS:
            self._cached_results[job] = encoded
        if version != self.result_version:  # it may be stale already
            self._cached_results.pop(job, None)
        return encoded

    def latest_result(self, job: str) -> JobResult | None:
        """A job's latest result; None before its first."""
        self.check_open()
        return self.program.ask(job)

    def send_message(self, job: str, message: Any) -> Any:
        """Return the reply of a job to a message."""
        self.check_open()
        return self.program.questions.send_message(job, message)

    def job_identity(self, job: str) -> int:
        """A number that distinguishes a job from earlier ones of its name; raises if there is no such job."""
        self.program.ask(job)
        return self.program.catalogue.jobs[job].created

    def results(self, job: str, since: int, limit: int) -> list[JobResult]:
        """A job's results in committed epochs from one on, at most so many. Raises if some are no longer retained."""
        committed = self.committed
        self.check_retained(job, since)
        return [result for result in self.program.since(job, since, limit) if result.epoch <= committed]

    def check_retained(self, job: str, since: int) -> None:
        """Raise unless all results of a job from an epoch on are retained."""
        latest = self.latest_result(job)
        if since > self.committed + 1:
            raise UserError(
                "EPOCH_AHEAD",
                f"epoch {since} has not happened yet",
                detail=f"the last epoch is {self.committed}",
                hint="The engine may have been reset; start without since.",
            )
        if since < self.program.questions.retained_from and latest is not None and latest.epoch >= since:
            raise UserError(
                "RESULTS_GONE",
                f"the results of {job} in epoch {since} are no longer retained",
                detail=f"results are retained from epoch {self.program.questions.retained_from} on",
                hint=f"Start with since={self.program.questions.retained_from}, or without since for new results only.",
            )

    # -- streams and jobs ------------------------------------------------------------------------

    def streams(self) -> list[dict[str, Any]]:
        """All streams."""
        self.check_open()
        backlog = self.backlog()
        return [
            {**inventory.stream_facts(name, text, stream), "backlog": backlog.get(stream.name)}
            for name, text, stream in inventory.streams(self.program)
        ]

    def stream(self, name: str) -> StreamDefinition:
        """A stream; raises if there is none."""
        self.check_open()
        return inventory.stream(self.program, name)

    def push(
        self, stream: str, body: bytes, producer: str | None = None, sequence: int | None = None
    ) -> tuple[int, int]:
        """Append the lines of a body to the log of a stream; return how many there are and how many of them are new."""
        return append_lines(stream, self.stream(stream).log, body, self._writers, producer, sequence)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs."""
        self.check_open()
        return list(map(self._job, inventory.jobs(self.program)))

    def job(self, name: str) -> dict[str, Any]:
        """A job, with its columns and its plan."""
        self.check_open()
        self.program.ask(name)
        return {**self._job(name), **inventory.job_details(self.program, name)}

    def _job(self, name: str) -> dict[str, Any]:
        manager = None if self.peers is None else self.peers.roster.manager_of(name)
        return {**inventory.job_facts(self.program, name), **self._job_activity(name), "coordinator": manager}

    def _job_activity(self, name: str) -> dict[str, Any]:
        latest = self.program.ask(name)
        with self._lock:
            rows, epochs = self._gauges.registry.count(JOB_ROWS, name), self._epochs[name]
            rate = self._history.rows_per_second(name)
        status = self.engine()
        recovery = None if status is None or status.recovery is None else status.recovery.jobs.get(name)
        return {
            "epoch": None if latest is None else latest.epoch,
            "rows": rows,
            "epochs": epochs,
            "rows_per_second": rate,
            "last_recovery": None if recovery is None else recovery.to_json(),
            "behind": []
            if status is None
            else [dict(vars(one)) for one in status.deliveries if one.job == name],
        }

    # -- inside ----------------------------------------------------------------------------------

    def epochs(self, limit: int) -> list[dict[str, Any]]:
        """The latest epochs, oldest first."""
        with self._lock:
            return self._history.points(limit)

    def engine(self) -> EngineStatus | None:
        """The status of the engine, read once a second at most; None before it runs."""
        with self._status_lock:
            read_at, status = self._cached_status
            if time.monotonic() - read_at >= _STATUS_SECONDS:
                status = self.engine_status() if self.phase in ("running", "ending") else None
                self._cached_status = time.monotonic(), status
            return status

    def graph(self, name: str) -> Graph:
        """The graph of a job's plan, with current rates."""
        self.check_open()
        self.program.ask(name)
        with self._lock:
            events = self._gauges.rate() if self._gauges.epochs else 0.0
            emitted = {name: self._history.rows_per_second(name)}
            rates = Rates(events, self._history.units_per_second(), emitted)
        status = self.engine()
        if status is not None and status.measured is not None:
            rates = replace(rates, stages=status.measured.stages)
        return job_graph(self.program.questions.compiled(name), rates, self.program.questions.shared_stages())

    def versions(self, name: str) -> list[dict[str, Any]]:
        """The changes of a job, oldest first."""
        self.check_open()
        self.program.ask(name)
        return [{"at": at, **asdict(one)} for at, one in self.program.questions.versions(name)]

    def coordinators(self) -> list[dict[str, Any]]:
        """The coordinators that share the jobs."""
        if self.peers is None:
            return []
        self.check_open()
        jobs = Counter(map(self.peers.roster.manager_of, self.program.catalogue.jobs))
        return [
            {"name": one.name, "url": one.url, "engine": one.engine, "jobs": jobs[one.name]}
            for _, one in sorted(self.peers.alive.items())
        ]

    def side_output(self, stream: str, kind: str, limit: int) -> list[dict[str, Any]]:
        """The dead letters (`dead`), late events (`late`) or skipped partitions (`leaped`) of a stream, the latest
        first."""
        return inventory.side_output_rows(self.state / kind / self.stream(stream).name, self.committed, limit)

    def export_metrics(
        self, service: Mapping[str, Any], responses: Mapping[int, int], connections: Mapping[str, int]
    ) -> str:
        """All metrics of the engine, the unit and the service, as Prometheus reads them."""
        jobs = [] if self.phase == "starting" else self.jobs()
        current, counters = Registry(), self._gauges.registry
        if (status := self.engine()) is not None:
            set_engine(current, status)
        if (unit := self.unit_status()) is not None:
            set_unit(current, unit)
        set_service(current, service, jobs, responses)
        set_connections(current, connections)
        counters.retain("job", {job["name"] for job in jobs})
        return expose(current, counters)

    def status(self) -> dict[str, Any]:
        """The engine in numbers."""
        with self._lock:
            values = status_values(self._gauges)
            values["last_epoch_seconds"] = self._last_seconds
        streams, lives = inventory.counts(self.program) if self.phase != "starting" else (0, {})
        return {
            "name": self.program.name,
            "version": penstock.__version__,
            "phase": self.phase,
            "up_seconds": time.monotonic() - self._started_at,
            "epoch": self.committed,
            **values,
            "backlog": dict(self.backlog()),
            "streams": streams,
            "jobs": lives,
        }
