"""Check statements against the catalogue and make commands of them.

Each statement gets a reply, and the commands of the statements before it count. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from penstock.catalogue.acceptance import Acceptance
from penstock.catalogue.alter_state import NO_STATE, STATE_LOST, decide_state
from penstock.catalogue.broken_jobs import fail_command, find_broken_jobs
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.code_request_checker import CodeRequestChecker, unread_streams
from penstock.catalogue.code_requests import CodeRequest
from penstock.catalogue.command import (
    AddJob,
    AddStream,
    ChangeQuery,
    ChangeRecovery,
    CodeReference,
    EmptyJob,
    FlushJob,
    PauseJob,
    RememberText,
    RemoveJob,
    RemoveStream,
    Reply,
    ResumeJob,
    SinkCall,
)
from penstock.catalogue.command_checks import CommandChecks, find_job
from penstock.catalogue.declaration_checks import check_declared, check_parameters, skipped_statement
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.script import Script, locate_errors
from penstock.decode.partials import Partials
from penstock.errors import UserError
from penstock.ha.schemes import SEMANTICS
from penstock.sinks.contract import Sink
from penstock.sql.parse import parse
from penstock.sql.replace_clauses import replace_clauses
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


def _as_alteration(statement: CreateJob) -> AlterJob:
    return AlterJob(statement.name, statement.select, None, None, statement.parameters, False, statement.text)


class StatementChecker:
    """Checks statements, and the requests that come with code."""

    def __init__(self, builder: JobBuilder, given: PythonDeclarations, max_jobs: int) -> None:
        self._builder, self._given, self._max_jobs = builder, given, max_jobs
        self._checks = CommandChecks(builder, max_jobs)
        self.code_requests = CodeRequestChecker(self._checks, builder, self._accept_initial)
        #: which coordinator manages a job, where there are several
        self.manager_of: Callable[[str], str] | None = None

    def on(self, builder: JobBuilder) -> StatementChecker:
        """The same checker with another builder."""
        checker = StatementChecker(builder, self._given, self._max_jobs)
        checker.manager_of = self.manager_of
        return checker

    def check_statements(self, script: Script, catalogue: Catalogue) -> Acceptance:
        """Check statements one after the other; raises if one is refused, with its position."""
        acceptance = Acceptance(catalogue)
        if any(not isinstance(statement, Show | Explain) for statement in script.statements):
            self._check_not_reduced()
        for statement in script.statements:
            with locate_errors(script, statement):
                self._accept(statement, acceptance)
        return acceptance

    def _check_not_reduced(self) -> None:
        """Raise where agents reduce a stream for the app that the engine runs: they continue to send what that
        needs, and nothing else."""
        scans = {} if self._given.app is None else self._given.app.plan.scans
        if reduced := [name for name, scan in scans.items() if isinstance(scan.stream.decoder, Partials)]:
            raise UserError(
                "NO_COMMANDS",
                f"agents reduce {', '.join(reduced)} for these jobs, so they do not change while they run",
                hint="Change the SQL file of agents and engine and restart both, or have agents ship lines "
                "(without --reduce, --reduced): then jobs can change. docs/ingest.md says how.",
            )

    def check_initial(self, script: Script, catalogue: Catalogue, *, first: bool) -> Acceptance:
        """Check the text that an engine starts with. A statement that the text had before is skipped, whatever happened
        to its job since; a new one creates, a different one alters. `first`: there are no commands yet."""
        acceptance = Acceptance(catalogue)
        self._add_given(acceptance)
        for name, error in () if first else find_broken_jobs(self._builder, acceptance.catalogue).items():
            acceptance.do(
                fail_command(acceptance.catalogue.jobs[name], error),
                f"the job {name} cannot run: {error.text()}",
            )
        for statement in script.statements:
            with locate_errors(script, statement):
                self._check_initial(statement, catalogue, acceptance, first)
        return acceptance

    def check_code_request(self, request: CodeRequest, catalogue: Catalogue) -> Acceptance:
        """Check a request that comes with code; raises if it is refused."""
        self._check_not_reduced()
        acceptance = Acceptance(catalogue)
        self.code_requests.accept(request, acceptance)
        self._drop_unread_streams(acceptance)
        return acceptance

    def _accept_initial(
        self, script: Script, statement: Statement, acceptance: Acceptance, code: CodeReference
    ) -> None:
        """Accept a statement of a file whose functions are in this code, as if an engine started with it."""
        acceptance.code = code
        with locate_errors(script, statement):
            self._check_initial(statement, acceptance.catalogue, acceptance, first=False)
        acceptance.code = None

    def _check_initial(
        self, statement: Statement, before: Catalogue, acceptance: Acceptance, first: bool
    ) -> None:
        match statement:
            case CreateStream(if_not_exists=True) | CreateJob(if_not_exists=True):
                self._accept(statement, acceptance)
            case CreateStream(name=name, text=text) if name in before.streams:
                if before.streams[name].text != text:
                    raise UserError(
                        "STREAM_CHANGED",
                        f"the stream {name} was created differently",
                        detail=f"it is: {before.streams[name].definition}",
                        hint="Give the new one another name, or drop the old one and its jobs first.",
                    )
            case CreateJob(name=name, text=text):
                if before.texts.get(name) == text:
                    return
                if name in acceptance.catalogue.jobs:
                    self._alter(_as_alteration(statement), acceptance)
                    if acceptance.catalogue.jobs[name].recovery != statement.recovery:
                        acceptance.note(ChangeRecovery(name, statement.recovery))
                else:
                    self._accept(statement, acceptance)
                acceptance.note(RememberText(name, text))
            case CreateStream():
                self._accept(statement, acceptance)
            case _ if first:
                self._accept(statement, acceptance)

    # -- one statement ---------------------------------------------------------------------------

    def _accept(self, statement: Statement, acceptance: Acceptance) -> None:
        if done := skipped_statement(statement, acceptance.catalogue):
            acceptance.replies.append(Reply(done, question=True))
            return
        match statement:
            case CreateStream():
                self._create_stream(statement, acceptance)
            case DropStream():
                self._drop_stream(statement, acceptance)
            case CreateJob():
                self._create_job(statement, acceptance)
            case AlterJob():
                self._alter(statement, acceptance)
            case SetRecovery(name=name, recovery=recovery):
                find_job(name, acceptance.catalogue)
                meaning = "as the engine's settings say" if recovery is None else SEMANTICS[recovery].meaning
                message = f"altered job {name}; when the engine recovers: {meaning}"
                acceptance.do(ChangeRecovery(name, recovery), message, "kept")
            case Change():
                self._change(statement, acceptance)
            case Show():
                acceptance.replies.append(self._show(statement, acceptance.catalogue))
            case Explain():
                acceptance.replies.append(self._explain(statement, acceptance.catalogue))
            case Select():
                raise UserError(
                    "NOT_A_COMMAND",
                    "a SELECT by itself has nowhere to put its rows",
                    hint="CREATE JOB name AS SELECT ...; then ask for its result. `penstock sql` runs one right away.",
                )

    def _add_given(self, acceptance: Acceptance) -> None:
        """Add the streams and jobs that Python gives, before all others."""
        for name in self._given.streams:
            if name not in acceptance.catalogue.streams:
                acceptance.do(AddStream(name, ""), f"the stream {name} is given by Python")
        for name in self._given.queries:
            if name not in acceptance.catalogue.jobs:
                acceptance.do(AddJob(name, ""), f"the job {name} is given by Python")

    def _create_stream(self, statement: CreateStream, acceptance: Acceptance) -> None:
        self._checks.check_free(statement.name, acceptance.catalogue)
        command = AddStream(statement.name, statement.text)
        self._builder.stream(statement.name, acceptance.catalogue.after(command))
        acceptance.do(command, f"created stream {statement.name}; it is read once a job reads it")

    def _drop_stream(self, statement: DropStream, acceptance: Acceptance) -> None:
        if statement.name not in acceptance.catalogue.streams:
            near = get_close_matches(statement.name, acceptance.catalogue.streams, 1)
            raise UserError(
                "UNKNOWN_STREAM",
                f"there is no stream {statement.name}",
                hint=f"Did you mean {near[0]}?" if near else "SHOW STREAMS lists those there are.",
            )
        self._checks.check_unread(f"the stream {statement.name}", statement.name, acceptance.catalogue)
        acceptance.do(RemoveStream(statement.name), f"dropped stream {statement.name}")

    def _create_job(self, statement: CreateJob, acceptance: Acceptance) -> None:
        self._checks.check_free(statement.name, acceptance.catalogue)
        self._checks.check_room(acceptance.catalogue)
        sinks, parameters = tuple(map(SinkCall.of, statement.sinks)), dict(statement.parameters)
        command = AddJob(
            statement.name, statement.select.text, sinks, parameters, statement.recovery, acceptance.code
        )
        after = acceptance.catalogue.after(command)
        self._builder.job(statement.name, after)
        check_parameters(statement.name, statement.select.text, statement.parameters)
        check_declared(self._builder, statement.name, after)
        self._builder.sinks(after.jobs[statement.name])
        acceptance.do(command, f"created job {statement.name}; it runs from the next epoch on")

    def _alter(self, statement: AlterJob, acceptance: Acceptance) -> None:
        entry = find_job(statement.name, acceptance.catalogue)
        if not entry.select:
            raise UserError(
                "JOB_OF_PYTHON",
                f"the job {statement.name} is given by Python and cannot be altered in SQL",
                hint=f"penstock jobs alter {statement.name} --from app.py:query, or create a job in SQL.",
            )
        select = statement.select
        if statement.where is not None or statement.limit is not None:
            before = parse(entry.select)[0]
            assert isinstance(before, Select)
            select = replace_clauses(before, statement.where, statement.limit)
        old = None if entry.left_out else self._builder.job(statement.name, acceptance.catalogue)
        text = entry.select if select is None else select.text
        command = ChangeQuery(
            statement.name, text, {**entry.parameters, **statement.parameters}, code=acceptance.code
        )
        check_parameters(statement.name, text, statement.parameters)
        new = self._builder.job(statement.name, acceptance.catalogue.after(command))
        outcome, message = decide_state(old, new, rebuild=statement.rebuild)
        command = replace(command, state=outcome)
        self._checks.check_readers(statement.name, acceptance.catalogue.after(command))
        check_declared(self._builder, statement.name, acceptance.catalogue.after(command))
        acceptance.do(command, f"altered job {statement.name}; {message}", outcome)
        self._drop_unread_streams(acceptance)

    def _drop_unread_streams(self, acceptance: Acceptance) -> None:
        """Drop the streams that came with Python jobs and that no job reads any more."""
        for name in unread_streams(self._builder, acceptance.catalogue):
            acceptance.note(RemoveStream(name))

    def _change(self, statement: Change, acceptance: Acceptance) -> None:
        entry = find_job(statement.name, acceptance.catalogue)
        entry.master.after(statement.verb)
        match statement.verb:
            case "drop":
                self._checks.check_unread(f"the job {statement.name}", statement.name, acceptance.catalogue)
                acceptance.do(RemoveJob(statement.name), f"dropped job {statement.name}")
                self._drop_unread_streams(acceptance)
            case "flush":
                job = self._builder.job(statement.name, acceptance.catalogue)
                if not job.can_flush:
                    raise UserError(
                        "NOTHING_TO_FLUSH",
                        f"the job {statement.name} has no open windows that it could emit early",
                        hint="Windows of time over a stream can be flushed, as in WINDOWING 30 SECONDS, where "
                        "no function of Python is called, and sessions.",
                    )
                effect = "its open windows are emitted with the next epoch"
                acceptance.do(FlushJob(statement.name), f"flushed job {statement.name}; {effect}")
            case "empty":
                effect = "its state starts empty, with the next epoch"
                acceptance.do(EmptyJob(statement.name), f"emptied job {statement.name}; {effect}", "anew")
            case "resume":
                job = self._builder.job(statement.name, acceptance.catalogue)
                self._builder.sinks(entry)
                effect = "it continues with the state it had, without the events since"
                if entry.lost or job.is_stateless:
                    effect = NO_STATE if job.is_stateless else STATE_LOST
                command = ResumeJob(statement.name, entry.lost)
                acceptance.do(
                    command, f"resumed job {statement.name}; {effect}", "anew" if entry.lost else "kept"
                )
            case "pause":
                effect = "it gets no events and emits nothing until it is resumed"
                acceptance.do(PauseJob(statement.name), f"paused job {statement.name}; {effect}")

    def _show(self, statement: Show, catalogue: Catalogue) -> Reply:
        if statement.what == "streams":
            streams = tuple({"stream": e.name, "said": e.definition} for e in catalogue.streams.values())
            return Reply(_count(len(streams), "stream"), rows=streams, question=True)
        jobs = tuple(self.describe(entry) for entry in catalogue.jobs.values())
        if self.manager_of is not None:
            jobs = tuple({**job, "coordinator": self.manager_of(job["job"])} for job in jobs)
        return Reply(_count(len(jobs), "job"), rows=jobs, question=True)

    def describe(self, entry: JobEntry) -> dict[str, Any]:
        """A job, for people."""
        return describe_job(entry, self._builder.sinks(entry) if entry.of_app else ())

    def _explain(self, statement: Explain, catalogue: Catalogue) -> Reply:
        if isinstance(statement.what, Select):
            name = "query"
            catalogue = catalogue.after(AddJob(name, statement.what.text))
        else:
            name = find_job(statement.what, catalogue).name
            entry = catalogue.jobs[name]
            if entry.left_out:
                return Reply(f"does not run: {entry.master.error}", name, question=True)
        return Reply(self._builder.job(name, catalogue).explain(), name, question=True)


def describe_job(entry: JobEntry, sinks: Sequence[Sink] = ()) -> dict[str, Any]:
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


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
