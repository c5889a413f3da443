"""From a request about the Python of jobs to commands: checked against everything there is before it is accepted.

Receives a request, whose code is kept only once it is accepted, and what was accepted before it; adds the commands that
carry it out and an answer for each job. Nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from penstock.catalogue.accepted import Accepted
from penstock.catalogue.broken_jobs import uses
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.code_library import jobs_read, reads_of, sources_of
from penstock.catalogue.code_requests import AlterFrom, CodeRequest, CreateFrom, Deploy, HaveFrom
from penstock.catalogue.command import (
    AddJob,
    AddStream,
    ChangeQuery,
    ChangeRecovery,
    CodeReference,
    RemoveJob,
    StateFate,
)
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.declaration_checks import check_declared
from penstock.catalogue.definition import (
    define_functions,
    define_output,
    define_sinks,
    define_stream,
    differences,
)
from penstock.catalogue.function_checks import check_empty_batches, may_call_python
from penstock.catalogue.job_builder import JobBuilder
from penstock.catalogue.jobs_declaration import JobsDeclaration
from penstock.catalogue.script import Script, script
from penstock.errors import PenstockError, UserError
from penstock.query.logical import App, Node, Output, Source
from penstock.sql.statements import CreateJob, CreateStream, Statement

_NAME = re.compile(r"[^\W\d][\w-]{0,99}")


class Checks(Protocol):
    """What statements have to pass, and requests too."""

    def found(self, name: str, catalogue: Catalogue) -> JobEntry:
        """A job of the catalogue; raises if there is none."""

    def check_free(self, name: str, catalogue: Catalogue) -> None:
        """Raise where a stream or job has the name."""

    def check_room(self, catalogue: Catalogue) -> None:
        """Raise where there are as many jobs as are allowed."""

    def check_unread(self, what: str, name: str, catalogue: Catalogue) -> None:
        """Raise where other jobs read a stream or a job."""

    def check_readers(self, name: str, catalogue: Catalogue) -> None:
        """Raise where a job that reads this one can no longer be made."""

    def readers(self, name: str, catalogue: Catalogue) -> list[str]:
        """The other jobs that read a stream or a job."""

    def state_after(
        self, old: CompiledJob | None, new: CompiledJob, *, rebuild: bool = False
    ) -> tuple[StateFate, str]:
        """What becomes of a job's state when it is altered, and that for people."""

    def accept_first(self, said: Script, statement: Statement, made: Accepted, code: CodeReference) -> None:
        """Accept what a statement of a file says, whose functions are of this code."""


class Submission:
    """Makes commands of requests; `checks` are those that statements go through as well."""

    def __init__(self, checks: Checks, builder: JobBuilder) -> None:
        self._checks, self._builder, self._library = checks, builder, builder.library

    def prepare(self, request: CodeRequest) -> None:
        """Execute what a request brings: it may take long, and nothing else should wait for it."""
        module = self._library.module(request.code.digest)
        if not isinstance(request, Deploy) and hasattr(module, request.attribute.partition(".")[0]):
            self._library.output(_reference(request, request.attribute), request.name)

    def accept(self, request: CodeRequest, made: Accepted) -> None:
        """Add what carries out a request; raises if it cannot be."""
        match request:
            case HaveFrom(name=name) if name not in made.catalogue.jobs:
                self._create(name, _reference(request, request.attribute), made)
            case CreateFrom():
                self._create(request.name, _reference(request, request.attribute), made)
            case AlterFrom() | HaveFrom():
                self._checks.found(request.name, made.catalogue)
                reference = _reference(request, request.attribute)
                self._alter(request.name, reference, made, made.catalogue, rebuild=request.rebuild)
                self._checks.check_readers(request.name, made.catalogue)
            case Deploy():
                self._deploy(request, made)

    # -- one job ---------------------------------------------------------------------------------

    def _create(self, name: str, reference: CodeReference, made: Accepted) -> None:
        if not _NAME.fullmatch(name):
            raise UserError(
                "BAD_NAME",
                f"{name[:100]!r} cannot be the name of a job",
                hint="Letters, digits, _ and -, at most 100, and no digit first.",
            )
        self._checks.check_free(name, made.catalogue)
        self._checks.check_room(made.catalogue)
        output, reference = self._found(name, reference)
        came = self._bring_streams(output, reference, made)
        command = AddJob(name, recovery=output.recovery, code=reference)
        after = made.catalogue.after(command)
        self._builder.job(name, after)
        check_declared(self._builder, name, after)
        self._builder.sinks(after.jobs[name])
        with_it = f"; the stream {', '.join(came)} came with it" if came else ""
        made.do(command, f"created job {name}; it runs from the next epoch on{with_it}")

    def _alter(
        self,
        name: str,
        reference: CodeReference,
        made: Accepted,
        before: Catalogue,
        *,
        rebuild: bool = False,
    ) -> None:
        """Alter a job to what a reference means. `before`: the catalogue in which it was what it is now."""
        entry = before.jobs[name]
        if not entry.of_python:
            raise UserError(
                "JOB_OF_SQL",
                f"the query of the job {name} is SQL and cannot be altered from a file of Python",
                hint=f"ALTER JOB {name} AS SELECT ..., or drop it and create it from the file.",
            )
        output, reference = self._found(name, reference)
        self._check_sinks(entry, reference, output)
        came = self._bring_streams(output, reference, made)
        old = None if entry.left_out else self._builder.job(name, before)
        command = ChangeQuery(name, code=reference)
        new = self._builder.job(name, made.catalogue.after(command))
        state, says = self._checks.state_after(old, new, rebuild=rebuild)
        command = replace(command, state=state)
        check_declared(self._builder, name, made.catalogue.after(command))
        with_it = f"; the stream {', '.join(came)} came with it" if came else ""
        made.do(command, f"altered job {name}; {says}{with_it}", state)
        if output.recovery is not None and output.recovery != entry.recovery:
            made.note(ChangeRecovery(name, output.recovery))

    def _found(self, name: str, reference: CodeReference) -> tuple[Output, CodeReference]:
        """The query that a reference means, and the reference with what it reads and where it writes."""
        output = self._library.output(reference, name)
        check_empty_batches(output)
        sinks = tuple(define_sinks(output.sinks))
        return output, replace(reference, reads=reads_of(output), sinks=sinks)

    def _check_sinks(self, entry: JobEntry, reference: CodeReference, output: Output) -> None:
        before = () if entry.code is None else entry.code.sinks
        if entry.of_app:
            before = tuple(define_sinks(self._builder.sinks(entry)))
        if before != reference.sinks:
            raise UserError(
                "SINKS_CHANGED",
                f"the job {entry.name} would write elsewhere than it does",
                where=str(output.origin),
                detail=f"it writes to {', '.join(before) or 'nothing'}; "
                f"the file says {', '.join(reference.sinks) or 'nothing'}",
                hint="A job keeps the sinks it was created with. Drop it and create it, or give the new one a name of "
                "its own.",
            )

    # -- streams ---------------------------------------------------------------------------------

    def _bring_streams(self, output: Output, reference: CodeReference, made: Accepted) -> list[str]:
        """Have the streams that a query reads: those there are must be the same, the others come with it."""
        came = []
        for source in sources_of(output):
            name = source.stream.name
            if name not in made.catalogue.streams:
                came.append(name)
            self._bring_stream(name, source, reference, made)
        return came

    def _bring_stream(self, name: str, source: Node, reference: CodeReference, made: Accepted) -> None:
        """Have a stream under a name: as it is in the file, or refuse it."""
        assert isinstance(source, Source)
        if name not in made.catalogue.streams:
            self._checks.check_free(name, made.catalogue)
            made.note(AddStream(name, code=replace(reference, reads=(), sinks=())))
        mine, theirs = self._builder.stream_definition(name, made.catalogue), define_stream(source.stream)
        if found := differences(theirs, mine):
            raise UserError(
                "STREAM_DIFFERS",
                f"the engine has another stream {name} than the file says",
                where=str(source.origin),
                detail=f"it has {'; '.join(found)}",
                hint="Say in the file what the engine has, or give the stream another name.",
            )

    # -- a whole file ----------------------------------------------------------------------------

    def _deploy(self, request: Deploy, made: Accepted) -> None:
        before = made.catalogue
        attribute, app = self._only_app(request)
        reference = replace(_reference(request, attribute), deployed=True)
        names = [output.name for output in app.outputs] if isinstance(app, App) else [*app.queries]
        text = None if isinstance(app, App) else script(app.sql, app.file)
        by_sql = [one.name for one in text.statements if isinstance(one, CreateJob)] if text else []
        # what a job reads comes before it; jobs of SQL that are there already need not be waited for
        pending = {*names, *(name for name in by_sql if name not in before.jobs)}
        altered: list[str] = []
        waiting = self._have(names, pending, reference, before, made, altered)
        if text is not None and isinstance(app, JobsDeclaration):
            self._have_sql(app, text, reference, before, made)
            pending = {*waiting}
        while waiting:
            left = self._have(waiting, pending, reference, before, made, altered)
            if left == waiting:  # they read each other: the first is refused for it
                pending.clear()
            waiting = left
        if request.prune:
            self._prune(reference, {*names, *by_sql}, before, made)
        for name in altered:
            self._checks.check_readers(name, made.catalogue)

    def _only_app(self, request: Deploy) -> tuple[str, App | JobsDeclaration]:
        apps = self._library.apps(request.code.digest)
        if len(apps) != 1:
            raise UserError(
                "SEVERAL_APPS" if apps else "NO_APP",
                f"{request.code.main} holds {len(apps) or 'no'} app{'s' if apps else ''}",
                detail=f"They are {', '.join(apps)}." if apps else None,
                hint="Put all outputs into one app."
                if apps
                else 'End the file with app = ps.app("name", ps.output(...)), or create its jobs one by one: '
                "penstock jobs create NAME --from app.py:query.",
            )
        return next(iter(apps.items()))

    def _have(
        self,
        names: Sequence[str],
        pending: set[str],
        reference: CodeReference,
        before: Catalogue,
        made: Accepted,
        altered: list[str],
    ) -> list[str]:
        """Have jobs of a file, and take them out of those that are `pending`; returns those that read one of these."""
        waiting = []
        for name in names:
            if any(
                one in pending and one != name for one in jobs_read(self._library.output(reference, name))
            ):
                waiting.append(name)
                continue
            pending.discard(name)
            if name not in before.jobs:
                self._create(name, reference, made)
            elif self._is_as_it_was(name, reference, before):
                made.report(name, _as_it_was(before.jobs[name]))
            else:
                self._alter(name, reference, made, before)
                altered.append(name)
        return waiting

    def _is_as_it_was(self, name: str, reference: CodeReference, catalogue: Catalogue) -> bool:
        code = catalogue.jobs[name].code
        if code is not None and code.file != reference.file:
            raise UserError(
                "NAME_TAKEN",
                f"there is a job {name} already, of another file",
                detail=f"it is of {code.file}",
                hint="Give one of them another name, drop that job, or alter it by itself: "
                f"penstock jobs alter {name} --from FILE:NAME.",
            )
        if code is None or not code.deployed:
            return False
        if (code.digest, code.attribute) == (reference.digest, reference.attribute):
            return True
        try:
            old = self._library.output(code, name)
        except PenstockError:  # it is not whole any more: the new one mends it
            return False
        new = self._library.output(reference, name)
        same = define_output(old, code.digest) == define_output(new, reference.digest)
        streams = [[define_stream(s.stream) for s in sources_of(one)] for one in (old, new)]
        return same and streams[0] == streams[1]

    def _have_sql(
        self, app: JobsDeclaration, text: Script, reference: CodeReference, before: Catalogue, made: Accepted
    ) -> None:
        """Have the streams and jobs that the SQL of a file says."""
        for name, stream in app.streams.items():
            if re.search(rf"\b{re.escape(name)}\b", app.sql):
                self._bring_stream(name, stream.node, reference, made)
        for statement in text.statements:
            known = isinstance(statement, CreateJob) and before.said.get(statement.name) == statement.text
            if isinstance(statement, CreateJob) and known and statement.name in before.jobs:
                self._swap_functions(before.jobs[statement.name], app, reference, made)
            elif isinstance(statement, CreateJob | CreateStream):
                self._checks.accept_first(text, statement, made, reference)

    def _swap_functions(
        self, entry: JobEntry, app: JobsDeclaration, reference: CodeReference, made: Accepted
    ) -> None:
        """Have a job of SQL call the functions as the file has them now."""
        used = {n: f for n, f in app.functions.items() if may_call_python(entry.select, [n])}
        old = self._builder.functions(entry)
        code = reference if entry.code is None else entry.code
        before = define_functions({n: old[n] for n in used if n in old}, code.digest)
        if before == define_functions(used, reference.digest):
            made.report(entry.name, _as_it_was(entry))
            return
        command = ChangeQuery(entry.name, entry.select, dict(entry.parameters), code=reference)
        was = None if entry.left_out else self._builder.job(entry.name, made.catalogue)
        now = self._builder.job(entry.name, made.catalogue.after(command))
        state, says = self._checks.state_after(was, now)
        command = replace(command, state=state)
        self._checks.check_readers(entry.name, made.catalogue.after(command))
        made.do(command, f"altered job {entry.name}; {says}", state)

    def _prune(self, reference: CodeReference, wanted: set[str], before: Catalogue, made: Accepted) -> None:
        """Drop the jobs that came with a file and are not in it any more, readers first."""
        gone = [
            name
            for name, entry in before.jobs.items()
            if name not in wanted
            and entry.code is not None
            and entry.code.deployed
            and entry.code.file == reference.file
        ]
        while gone:
            free = [name for name in gone if not self._checks.readers(name, made.catalogue)]
            for name in free or gone[:1]:
                self._checks.check_unread(f"the job {name}", name, made.catalogue)
                says = f"dropped job {name}, which the file has no more; its state goes with it"
                made.do(RemoveJob(name), says)
                gone.remove(name)


def unread_streams(builder: JobBuilder, catalogue: Catalogue) -> list[str]:
    """The streams that came with jobs of Python and that no job reads."""
    came = [name for name, entry in catalogue.streams.items() if entry.code is not None]
    if not came:
        return []
    read = frozenset[str]().union(*(uses(builder, name, catalogue) for name in catalogue.jobs))
    return [name for name in came if name not in read and catalogue.streams[name].known_as not in read]


def _as_it_was(entry: JobEntry) -> str:
    life = entry.master.life
    return f"job {entry.name} is as it was{'; its state is kept' if life == 'running' else f', {life}'}"


def _reference(request: CodeRequest, attribute: str) -> CodeReference:
    return CodeReference(request.code.digest, request.code.path, attribute)
