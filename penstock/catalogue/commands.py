"""From statements to commands: each is checked against everything there is, and answered, before it is accepted.

Receives statements and the catalogue; hands the commands that carry them out, the catalogue after those, and what to
answer. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from penstock.catalogue.accepted import Accepted
from penstock.catalogue.broken_jobs import broken, failing, naming, uses
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.code_requests import CodeRequest
from penstock.catalogue.command import (
    AddJob,
    AddStream,
    Answered,
    ChangeQuery,
    ChangeRecovery,
    CodeReference,
    EmptyJob,
    FlushJob,
    PauseJob,
    RememberText,
    RemoveJob,
    RemoveStream,
    ResumeJob,
    SinkCall,
    StateFate,
)
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.declaration_checks import check_declared, check_parameters, skipped_statement
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations, blame_reader
from penstock.catalogue.script import Script, placed
from penstock.catalogue.submission import Submission, unread_streams
from penstock.decode.partials import Partials
from penstock.errors import PenstockError, UserError
from penstock.ha.schemes import SEMANTICS
from penstock.sinks.contract import Sink
from penstock.sql.alter import replace_clauses
from penstock.sql.parse import parse
from penstock.sql.statements import (
    AlterJob,
    Change,
    CreateJob,
    CreateStream,
    DropStream,
    Explain,
    Select,
    SetRecovery,
    Show,
    Statement,
)

_FATES: dict[StateFate, str] = {
    "kept": "its state is kept",
    "anew": "its state has another shape now and begins anew, with the next epoch",
    "rebuilt": "its state is made again from the earliest events the log still has",
}
_GONE = "its state went when it failed; it begins anew, with the next epoch"


def _as_said(said: CreateJob) -> AlterJob:
    return AlterJob(said.name, said.select, None, None, said.parameters, False, said.text)


class Desk:
    """Checks statements and makes commands of them."""

    def __init__(self, builder: JobBuilder, given: PythonDeclarations, most: int) -> None:
        self._builder, self._given, self._most = builder, given, most
        self.submission = Submission(self, builder)
        #: which coordinator carries a job, where there are several
        self.carrier: Callable[[str], str] | None = None

    def accepted(self, said: Script, catalogue: Catalogue) -> Accepted:
        """What comes of statements, one after the other; raises if one of them cannot be, with its place."""
        made = Accepted(catalogue)
        if any(not isinstance(statement, Show | Explain) for statement in said.statements):
            self._check_not_reduced()
        for statement in said.statements:
            with placed(said, statement):
                self._accept(statement, made)
        return made

    def _check_not_reduced(self) -> None:
        """Raise where agents reduce a stream for the app that the engine runs: they would go on to send what that
        needs, and nothing else."""
        scans = {} if self._given.app is None else self._given.app.plan.scans
        if reduced := [name for name, scan in scans.items() if isinstance(scan.stream.decoder, Partials)]:
            raise UserError(
                "NO_COMMANDS",
                f"agents reduce {', '.join(reduced)} for these jobs, so they do not change while they run",
                hint="Change the SQL file of agents and engine and restart both, or have agents ship lines "
                "(without --reduce, --reduced): then jobs come and go. docs/ingest.md says how.",
            )

    def begun(self, said: Script, catalogue: Catalogue, *, first: bool) -> Accepted:
        """What comes of the text an engine begins with. What it said before and says now is left as it is, whatever
        has become of it since; what is new is created, what is said otherwise than before altered."""
        made = Accepted(catalogue)
        self._give(made)
        for name, error in () if first else broken(self._builder, made.catalogue).items():
            made.do(failing(made.catalogue.jobs[name], error), f"the job {name} cannot run: {error.text()}")
        for statement in said.statements:
            with placed(said, statement):
                self._begin(statement, catalogue, made, first)
        return made

    def submitted(self, request: CodeRequest, catalogue: Catalogue) -> Accepted:
        """What comes of a request about the Python of jobs; raises if it cannot be."""
        self._check_not_reduced()
        made = Accepted(catalogue)
        self.submission.accept(request, made)
        self._drop_unread_streams(made)
        return made

    def accept_first(self, said: Script, statement: Statement, made: Accepted, code: CodeReference) -> None:
        """Have what a statement of a file says, whose functions are of this code, as an engine that begins with it."""
        made.code = code
        with placed(said, statement):
            self._begin(statement, made.catalogue, made, first=False)
        made.code = None

    def _begin(self, statement: Statement, before: Catalogue, made: Accepted, first: bool) -> None:
        match statement:
            case CreateStream(if_not_exists=True) | CreateJob(if_not_exists=True):
                self._accept(statement, made)
            case CreateStream(name=name, text=text) if name in before.streams:
                if before.streams[name].text != text:
                    raise UserError(
                        "STREAM_CHANGED",
                        f"the stream {name} was created otherwise",
                        detail=f"it is: {before.streams[name].text}",
                        hint="Give the new one another name, or drop the old one and its jobs first.",
                    )
            case CreateJob(name=name, text=text):
                if before.said.get(name) == text:
                    return
                if name in made.catalogue.jobs:
                    self._alter(_as_said(statement), made)
                    if made.catalogue.jobs[name].recovery != statement.recovery:
                        made.note(ChangeRecovery(name, statement.recovery))
                else:
                    self._accept(statement, made)
                made.note(RememberText(name, text))
            case CreateStream():
                self._accept(statement, made)
            case _ if first:
                self._accept(statement, made)

    def unknown(self, job: str, catalogue: Catalogue) -> UserError:
        """What to say of a job that is not there."""
        near = get_close_matches(job, catalogue.jobs, 1)
        return UserError(
            "UNKNOWN_JOB",
            f"there is no job {job}",
            hint=f"Did you mean {near[0]}?" if near else "SHOW JOBS lists those there are.",
        )

    # -- one statement ---------------------------------------------------------------------------

    def _accept(self, statement: Statement, made: Accepted) -> None:
        if done := skipped_statement(statement, made.catalogue):
            made.answers.append(Answered(done, question=True))
            return
        match statement:
            case CreateStream():
                self._create_stream(statement, made)
            case DropStream():
                self._drop_stream(statement, made)
            case CreateJob():
                self._create_job(statement, made)
            case AlterJob():
                self._alter(statement, made)
            case SetRecovery(name=name, recovery=recovery):
                self.found(name, made.catalogue)
                told = "as the engine's settings say" if recovery is None else SEMANTICS[recovery].meaning
                says = f"altered job {name}; when the engine comes back: {told}"
                made.do(ChangeRecovery(name, recovery), says, "kept")
            case Change():
                self._change(statement, made)
            case Show():
                made.answers.append(self._shown(statement, made.catalogue))
            case Explain():
                made.answers.append(self._explained(statement, made.catalogue))
            case Select():
                raise UserError(
                    "NOT_A_COMMAND",
                    "a SELECT by itself has nowhere to put its rows",
                    hint="CREATE JOB name AS SELECT ...; then ask for its answer. `penstock sql` runs one right away.",
                )

    def _give(self, made: Accepted) -> None:
        """What Python gives is there before anything else."""
        for name in self._given.streams:
            if name not in made.catalogue.streams:
                made.do(AddStream(name, ""), f"the stream {name} is given by Python")
        for name in self._given.queries:
            if name not in made.catalogue.jobs:
                made.do(AddJob(name, ""), f"the job {name} is given by Python")

    def _create_stream(self, said: CreateStream, made: Accepted) -> None:
        self.check_free(said.name, made.catalogue)
        command = AddStream(said.name, said.text)
        self._builder.stream(said.name, made.catalogue.after(command))
        made.do(command, f"created stream {said.name}; it is read once a job reads it")

    def _drop_stream(self, said: DropStream, made: Accepted) -> None:
        if said.name not in made.catalogue.streams:
            near = get_close_matches(said.name, made.catalogue.streams, 1)
            raise UserError(
                "UNKNOWN_STREAM",
                f"there is no stream {said.name}",
                hint=f"Did you mean {near[0]}?" if near else "SHOW STREAMS lists those there are.",
            )
        self.check_unread(f"the stream {said.name}", said.name, made.catalogue)
        made.do(RemoveStream(said.name), f"dropped stream {said.name}")

    def _create_job(self, said: CreateJob, made: Accepted) -> None:
        self.check_free(said.name, made.catalogue)
        self.check_room(made.catalogue)
        sinks, parameters = tuple(map(SinkCall.of, said.sinks)), dict(said.parameters)
        command = AddJob(said.name, said.select.text, sinks, parameters, said.recovery, made.code)
        after = made.catalogue.after(command)
        self._builder.job(said.name, after)
        check_parameters(said.name, said.select.text, said.parameters)
        check_declared(self._builder, said.name, after)
        self._builder.sinks(after.jobs[said.name])
        made.do(command, f"created job {said.name}; it runs from the next epoch on")

    def _alter(self, said: AlterJob, made: Accepted) -> None:
        entry = self.found(said.name, made.catalogue)
        if not entry.select:
            raise UserError(
                "JOB_OF_PYTHON",
                f"the job {said.name} is given by Python and cannot be altered in SQL",
                hint=f"penstock jobs alter {said.name} --from app.py:query, or create a job in SQL.",
            )
        select = said.select
        if said.where is not None or said.limit is not None:
            before = parse(entry.select)[0]
            assert isinstance(before, Select)
            select = replace_clauses(before, said.where, said.limit)
        old = None if entry.left_out else self._builder.job(said.name, made.catalogue)
        text = entry.select if select is None else select.text
        command = ChangeQuery(said.name, text, {**entry.parameters, **said.parameters}, code=made.code)
        check_parameters(said.name, text, said.parameters)
        new = self._builder.job(said.name, made.catalogue.after(command))
        fate, told = self.state_after(old, new, rebuild=said.rebuild)
        command = replace(command, state=fate)
        self.check_readers(said.name, made.catalogue.after(command))
        check_declared(self._builder, said.name, made.catalogue.after(command))
        made.do(command, f"altered job {said.name}; {told}", fate)
        self._drop_unread_streams(made)

    def state_after(
        self, old: CompiledJob | None, new: CompiledJob, *, rebuild: bool = False
    ) -> tuple[StateFate, str]:
        """What becomes of a job's state when it is altered from one query to another, and that for people. `old`: None
        where its state is gone."""
        fate: StateFate = "kept"
        if old is None or not new.can_continue(old):
            fate = "rebuilt" if rebuild else "anew"
        return fate, "it needs no state" if new.is_stateless else _GONE if old is None else _FATES[fate]

    def _drop_unread_streams(self, made: Accepted) -> None:
        """Streams that came with jobs of Python go with the last that reads them."""
        for name in unread_streams(self._builder, made.catalogue):
            made.note(RemoveStream(name))

    def _change(self, said: Change, made: Accepted) -> None:
        entry = self.found(said.name, made.catalogue)
        entry.master.after(said.verb)
        match said.verb:
            case "drop":
                self.check_unread(f"the job {said.name}", said.name, made.catalogue)
                made.do(RemoveJob(said.name), f"dropped job {said.name}")
                self._drop_unread_streams(made)
            case "flush":
                job = self._builder.job(said.name, made.catalogue)
                if not job.can_flush:
                    raise UserError(
                        "NOTHING_TO_FLUSH",
                        f"the job {said.name} has no open windows it could tell early",
                        hint="Windows of time over a stream can be flushed, as in WINDOWING 30 SECONDS, where "
                        "no function of Python is called, and sessions.",
                    )
                told = "its open windows are told with the next epoch"
                made.do(FlushJob(said.name), f"flushed job {said.name}; {told}")
            case "empty":
                told = "its state begins anew, with the next epoch"
                made.do(EmptyJob(said.name), f"emptied job {said.name}; {told}", "anew")
            case "resume":
                job = self._builder.job(said.name, made.catalogue)
                self._builder.sinks(entry)
                told = _GONE if entry.lost else "it goes on with the state it had, without the events since"
                if job.is_stateless:
                    told = "it needs no state"
                command = ResumeJob(said.name, entry.lost)
                made.do(command, f"resumed job {said.name}; {told}", "anew" if entry.lost else "kept")
            case "pause":
                told = "it sees no events and tells nothing until it is resumed"
                made.do(PauseJob(said.name), f"paused job {said.name}; {told}")

    def _shown(self, said: Show, catalogue: Catalogue) -> Answered:
        if said.what == "streams":
            streams = tuple({"stream": e.name, "said": e.definition} for e in catalogue.streams.values())
            return Answered(_counted(len(streams), "stream"), rows=streams, question=True)
        jobs = tuple(self.describe(entry) for entry in catalogue.jobs.values())
        if self.carrier is not None:
            jobs = tuple({**job, "coordinator": self.carrier(job["job"])} for job in jobs)
        return Answered(_counted(len(jobs), "job"), rows=jobs, question=True)

    def describe(self, entry: JobEntry) -> dict[str, Any]:
        """A job, for people."""
        return shown(entry, self._builder.sinks(entry) if entry.of_app else ())

    def _explained(self, said: Explain, catalogue: Catalogue) -> Answered:
        if isinstance(said.what, Select):
            name = "query"
            catalogue = catalogue.after(AddJob(name, said.what.text))
        else:
            name = self.found(said.what, catalogue).name
            entry = catalogue.jobs[name]
            if entry.left_out:
                return Answered(f"does not run: {entry.master.error}", name, question=True)
        return Answered(self._builder.job(name, catalogue).explain(), name, question=True)

    # -- checks ----------------------------------------------------------------------------------

    def found(self, name: str, catalogue: Catalogue) -> JobEntry:
        if name not in catalogue.jobs:
            raise self.unknown(name, catalogue)
        return catalogue.jobs[name]

    def check_free(self, name: str, catalogue: Catalogue) -> None:
        kind = "stream" if name in catalogue.streams else "job" if name in catalogue.jobs else None
        if kind is not None:
            raise UserError(
                "NAME_TAKEN",
                f"there is a {kind} {name} already",
                hint=f"Choose another name, or ALTER JOB {name} AS SELECT ..."
                if kind == "job"
                else "Choose another name.",
            )

    def check_room(self, catalogue: Catalogue) -> None:
        """Raise where there are as many jobs as are allowed."""
        if len(catalogue.jobs) >= self._most:
            raise UserError(
                "TOO_MANY_JOBS",
                f"there are {len(catalogue.jobs):,} jobs, and no more than that are allowed",
                hint="Drop jobs that nobody needs, or start the engine with room for more.",
            )

    def check_unread(self, what: str, name: str, catalogue: Catalogue) -> None:
        if readers := self.readers(name, catalogue):
            raise UserError(
                "STILL_READ",
                f"{what} is read by {', '.join(sorted(readers)[:5])}{' and others' if len(readers) > 5 else ''}",
                hint="Drop or alter those jobs first.",
            )

    def readers(self, name: str, catalogue: Catalogue) -> list[str]:
        """The other jobs that read a stream or a job."""
        others = (other for other in naming(name, catalogue) if other != name)
        return [other for other in others if name in uses(self._builder, other, catalogue)]

    def check_readers(self, name: str, catalogue: Catalogue) -> None:
        """Whether all jobs can still be made that read a job, however far away."""
        for other in naming(name, catalogue):
            if catalogue.jobs[other].left_out and other != name:
                continue
            try:
                self._builder.job(other, catalogue)
            except PenstockError as error:
                raise (error if other == name else blame_reader(other, error)) from error


def shown(entry: JobEntry, sinks: Sequence[Sink] = ()) -> dict[str, Any]:
    """A job, for people. `sinks`: of an output of the app."""
    into = [sink.describe() for sink in entry.sinks] or ([] if entry.code is None else list(entry.code.sinks))
    return {
        "job": entry.name,
        "life": entry.master.life,
        "query": entry.query,
        "parameters": dict(entry.parameters),
        "into": [sink.describe() for sink in sinks] if entry.of_app else into,
        "error": entry.master.error,
        "recovery": None if entry.recovery is None else str(entry.recovery),
    }


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
