"""Jobs that come and go, as a program the engine runs: commands in, a plan for every epoch out.

Receives SQL statements and what Python gives; hands an answer to every command at once, and each epoch its plan.

Guarantees: what was said in one go is accepted as a whole or not at all, and what is accepted is on disk. It takes
effect at the boundary of the epoch whose offsets name it, in a repeated epoch too. A job that failed is left out of the
epoch in which it did, and that is kept as well.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from penstock.jobs.catalogue import Catalogue, Command
from penstock.jobs.command_log import CommandLog
from penstock.jobs.commands import Answered, Desk
from penstock.jobs.compiled import Compiled
from penstock.jobs.messages import Deliver, routed
from penstock.jobs.planner import Placed, planned
from penstock.jobs.results import Answer, Results
from penstock.jobs.workshop import Given, Workshop
from penstock.query.logical import Source, StreamDefinition
from penstock.query.physical import Plan, ScanPlan
from penstock.query.stream import Stream
from penstock.sql.parse import parse
from penstock.sql.scope import UserFunction
from penstock.state.durable import write_whole
from penstock.state.ipc import stream_bytes
from penstock.words.errors import PenstockError, UserError

#: how many catalogues and plans are kept at hand
_AT_HAND = 8


class Jobs:
    """The jobs of one state directory."""

    def __init__(
        self,
        name: str,
        state: Path,
        *,
        streams: Mapping[str, Stream] | None = None,
        queries: Mapping[str, Stream] | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        deliver: Mapping[str, Deliver] | None = None,
        begin: str = "",
        most: int = 10_000,
    ) -> None:
        self.name = name
        self.fingerprint = f"jobs:{name}"
        self.summary = "jobs that come and go"
        given = Given(streams or {}, queries or {}, functions or {}, deliver or {})
        self._deliver = given.deliver
        self._state = state
        self._lock = threading.RLock()
        self._log = CommandLog(state)
        self._workshop = Workshop(given)
        self._desk = Desk(self._workshop, given, most)
        self._results = Results(state)
        self._entries: list[list[Command]] = []
        self._catalogues: dict[int, Catalogue] = {0: Catalogue()}
        self._plans: dict[tuple[int, frozenset[int]], Plan] = {}
        self._opened: str | None = None
        self._start_log: Callable[[str, ScanPlan], None] | None = None
        #: what was answered to the text it began with
        self.answers: list[Answered] = []
        self._first = begin

    # -- commands --------------------------------------------------------------------------------

    @property
    def commands(self) -> int:
        return len(self._entries)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue with all commands so far."""
        with self._lock:
            return self._catalogue(len(self._entries))

    def say(self, text: str) -> list[Answered]:
        """Take statements in, all or none; hands an answer to each."""
        statements = parse(text)
        with self._lock:
            before = self.catalogue
            accepted = self._desk.accepted(statements, before)
            return self._taken(accepted.commands, accepted.catalogue, accepted.answers)

    # -- what there is ---------------------------------------------------------------------------

    def stream(self, name: str) -> StreamDefinition:
        """A stream of the catalogue."""
        with self._lock:
            node = self._workshop.stream(name, self.catalogue).node
        assert isinstance(node, Source)
        return node.stream

    def compiled(self, job: str) -> Compiled:
        """A job of the catalogue."""
        with self._lock:
            if job not in self.catalogue.jobs:
                raise self._desk.unknown(job, self.catalogue)
            return self._workshop.job(job, self.catalogue)

    @property
    def kept_from(self) -> int:
        """What jobs told before this epoch may be gone."""
        return self._results.kept_from

    def _taken(
        self, commands: Sequence[Command], after: Catalogue, answers: Sequence[Answered]
    ) -> list[Answered]:
        if not commands:
            return list(answers)
        if self._opened is not None:
            self._open(after)
        number = self._log.append(commands)
        self._catalogues[number] = after
        self._entries.append(list(commands))
        for command in commands:
            if command["do"] in ("drop", "create job"):
                self._results.forget(command["name"])
        return [answer.numbered(number) for answer in answers]

    # -- questions -------------------------------------------------------------------------------

    def ask(self, job: str) -> Answer | None:
        """A job's latest answer; None before its first."""
        if job not in self.catalogue.jobs:
            raise self._desk.unknown(job, self.catalogue)
        return self._results.latest(job)

    def route(self, job: str, message: Any = None) -> Any:
        """What a job answers to a message: what its `deliver` function says, or the rows of its latest answer that
        have the values the message says."""

        def latest(name: str) -> pl.DataFrame | None:
            answer = self.ask(name)
            return None if answer is None else answer.rows

        return routed(job, message, latest, self._deliver)

    def since(self, job: str, epoch: int, most: int | None = None) -> list[Answer]:
        """A job's rows of the epochs from one on, as far as they are kept; of at `most` so many epochs."""
        return list(islice(self._results.since(job, epoch), most))

    # -- what the engine asks for ----------------------------------------------------------------

    def begun(self) -> None:
        """Have the streams and jobs of the text it begins with, whatever there is already: create what is missing,
        alter what is said otherwise now. What the text does not name is left."""
        statements = parse(self._first)
        with self._lock:
            self._entries = list(self._log.entries())
            accepted = self._desk.begun(statements, self.catalogue, first=not self._entries)
            self.answers = self._taken(accepted.commands, accepted.catalogue, accepted.answers)
            self._results.load(self.catalogue.jobs)

    def opened(self, state: str, start_log: Callable[[str, ScanPlan], None]) -> None:
        with self._lock:
            self._opened, self._start_log = state, start_log
            self._open(self.catalogue)

    def closed(self) -> None:
        with self._lock:
            for sinks in self._workshop.forget(Catalogue()):
                for sink in sinks:
                    _close(sink)
            self._opened = None

    def plan(self, commands: int, without: Collection[int] = ()) -> Plan:
        with self._lock:
            key = commands, frozenset(without)
            if key not in self._plans:
                self._plans[key] = self._planned(commands, key[1])
                for old in list(self._plans)[:-_AT_HAND]:
                    del self._plans[old]
            return self._plans[key]

    def flushed(self, after: int, upto: int) -> frozenset[int]:
        said = [command for entry in self._entries[after:upto] for command in entry]
        if not any(command["do"] == "flush" for command in said):
            return frozenset()
        jobs = self._catalogue(upto).jobs
        named = [command["name"] for command in said if command["do"] == "flush"]
        return frozenset(jobs[name].number for name in named if name in jobs)

    def previous(self, epoch: int, plan: Plan) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        assert plan.jobs is not None
        for job, columns in plan.jobs.previous.items():
            rows = self._results.of(job, epoch - 1)
            if rows is not None:
                found[job] = stream_bytes(_columns(rows, columns)).to_pybytes()
        return found

    def failures(self, epoch: int) -> Collection[int]:
        return [int(number) for number in self._failures(epoch)]

    def failed(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        known = self._failures(epoch)
        told = {str(number): error.text() for number, error in errors.items()}
        write_whole(self._failure_path(epoch), json.dumps({**known, **told}).encode())
        with self._lock:
            by_number = {entry.number: entry for entry in self._catalogue(commands).jobs.values()}
            said: list[Command] = [
                {
                    "do": "fail",
                    "name": by_number[number].name,
                    "version": by_number[number].version,
                    "error": error.text(),
                    "epoch": epoch,
                }
                for number, error in errors.items()
                if number in by_number
            ]
            after = self.catalogue
            for command in said:
                after = after.after(command)
            self._taken(said, after, [])

    def delivered(self, epoch: int, rows: Mapping[str, pl.DataFrame]) -> None:
        self._results.put(epoch, rows)

    # -- inside ----------------------------------------------------------------------------------

    def _planned(self, commands: int, without: frozenset[int]) -> Plan:
        catalogue = self._catalogue(commands)
        placed = [
            Placed(
                self._workshop.job(name, catalogue),
                "failed" if entry.number in without else entry.master.life,
                self._workshop.sinks(entry),
            )
            for name, entry in catalogue.jobs.items()
        ]
        return planned(self.name, placed)

    def _catalogue(self, number: int) -> Catalogue:
        known = max(known for known in self._catalogues if known <= number)
        found = self._catalogues[known]
        for entry in self._entries[known:number]:
            for command in entry:
                found = found.after(command)
        self._catalogues[number] = found
        for old in sorted(self._catalogues)[1:-_AT_HAND]:
            del self._catalogues[old]
        return found

    def _open(self, catalogue: Catalogue) -> None:
        """Open the sinks of new jobs and start the logs of new streams; raises if that cannot be."""
        for name, entry in catalogue.jobs.items():
            job = self._workshop.job(name, catalogue)
            self._desk.open_sinks(entry, dict(job.schema), f"{self._opened}.{entry.created}")
            if self._start_log is not None:
                for stream, scan in job.scans.items():
                    self._start_log(stream, scan)

    def _failures(self, epoch: int) -> dict[str, Any]:
        path = self._failure_path(epoch)
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return found

    def _failure_path(self, epoch: int) -> Path:
        return self._state / "failures" / f"{epoch:012d}.json"


def _columns(rows: pl.DataFrame, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows with these columns; null where there is no such thing."""
    return rows.select(
        pl.col(name).cast(dtype, strict=False) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in wanted.items()
    )


def _close(sink: Any) -> None:
    try:
        sink.close()
    except Exception as failure:
        raise UserError("SINK_FAILED", f"a sink could not be closed: {failure}") from failure
