"""Check requests that come with code, against the catalogue, and make commands of them.

The code of a request is stored only once it is accepted. Nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.catalogue.acceptance import Acceptance
from penstock.catalogue.alter_state import decide_state
from penstock.catalogue.broken_jobs import names_read
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.code_library import input_jobs, input_names, input_sources
from penstock.catalogue.code_requests import AlterFrom, CodeRequest, CreateFrom, CreateOrAlterFrom, Deploy
from penstock.catalogue.command import (
    AddJob,
    AddStream,
    ChangeQuery,
    ChangeRecovery,
    CodeReference,
    RemoveJob,
)
from penstock.catalogue.command_checks import CommandChecks, find_job
from penstock.catalogue.declaration_checks import check_declared
from penstock.catalogue.definition import (
    define_functions,
    define_output,
    define_sinks,
    define_stream,
    find_differences,
)
from penstock.catalogue.function_checks import check_empty_batches, may_call_python
from penstock.catalogue.job_builder import JobBuilder
from penstock.catalogue.jobs_declaration import JobsDeclaration
from penstock.catalogue.script import Script, read_script
from penstock.errors import PenstockError, UserError
from penstock.query.logical import App, Node, Output, Source
from penstock.sql.statements import CreateJob, CreateStream, Statement

_NAME = re.compile(r"[^\W\d][\w-]{0,99}")


#: accepts a statement of a file whose functions are in this code
AcceptInitial = Callable[[Script, Statement, Acceptance, CodeReference], None]


class CodeRequestChecker:
    """Creates and alters jobs from files, and deploys files. `accept_initial`: for the SQL of a deployed file."""

    def __init__(self, checks: CommandChecks, builder: JobBuilder, accept_initial: AcceptInitial) -> None:
        self._checks, self._builder, self._library = checks, builder, builder.library
        self._accept_initial = accept_initial

    def prepare(self, request: CodeRequest) -> None:
        """Execute the code of a request: it may take long, and nothing else should wait for it."""
        module = self._library.module(request.code.digest)
        if not isinstance(request, Deploy) and hasattr(module, request.attribute.partition(".")[0]):
            self._library.output(_reference(request, request.attribute), request.name)

    def accept(self, request: CodeRequest, acceptance: Acceptance) -> None:
        """Add the commands of a request; raises if it is refused."""
        match request:
            case CreateOrAlterFrom(name=name) if name not in acceptance.catalogue.jobs:
                self._create(name, _reference(request, request.attribute), acceptance)
            case CreateFrom():
                self._create(request.name, _reference(request, request.attribute), acceptance)
            case AlterFrom() | CreateOrAlterFrom():
                find_job(request.name, acceptance.catalogue)
                reference = _reference(request, request.attribute)
                self._alter(
                    request.name, reference, acceptance, acceptance.catalogue, rebuild=request.rebuild
                )
                self._checks.check_readers(request.name, acceptance.catalogue)
            case Deploy():
                self._deploy(request, acceptance)

    # -- one job ---------------------------------------------------------------------------------

    def _create(self, name: str, reference: CodeReference, acceptance: Acceptance) -> None:
        if not _NAME.fullmatch(name):
            raise UserError(
                "BAD_NAME",
                f"{name[:100]!r} cannot be the name of a job",
                hint="Letters, digits, _ and -, at most 100, and no digit first.",
            )
        self._checks.check_free(name, acceptance.catalogue)
        self._checks.check_room(acceptance.catalogue)
        output, reference = self._resolve_query(name, reference)
        added = self._add_streams(output, reference, acceptance)
        command = AddJob(name, recovery=output.recovery, code=reference)
        after = acceptance.catalogue.after(command)
        self._builder.job(name, after)
        check_declared(self._builder, name, after)
        self._builder.sinks(after.jobs[name])
        suffix = f"; the stream {', '.join(added)} came with it" if added else ""
        acceptance.do(command, f"created job {name}; it runs from the next epoch on{suffix}")

    def _alter(
        self,
        name: str,
        reference: CodeReference,
        acceptance: Acceptance,
        before: Catalogue,
        *,
        rebuild: bool = False,
    ) -> None:
        """Alter a job to the query that a reference names. `before`: the catalogue that has its present query."""
        entry = before.jobs[name]
        if not entry.of_python:
            raise UserError(
                "JOB_OF_SQL",
                f"the query of the job {name} is SQL and cannot be altered from a file of Python",
                hint=f"ALTER JOB {name} AS SELECT ..., or drop it and create it from the file.",
            )
        output, reference = self._resolve_query(name, reference)
        self._check_sinks(entry, reference, output)
        added = self._add_streams(output, reference, acceptance)
        old = None if entry.left_out else self._builder.job(name, before)
        command = ChangeQuery(name, code=reference)
        new = self._builder.job(name, acceptance.catalogue.after(command))
        state, effect = decide_state(old, new, rebuild=rebuild)
        command = replace(command, state=state)
        check_declared(self._builder, name, acceptance.catalogue.after(command))
        suffix = f"; the stream {', '.join(added)} came with it" if added else ""
        acceptance.do(command, f"altered job {name}; {effect}{suffix}", state)
        if output.recovery is not None and output.recovery != entry.recovery:
            acceptance.note(ChangeRecovery(name, output.recovery))

    def _resolve_query(self, name: str, reference: CodeReference) -> tuple[Output, CodeReference]:
        """The query that a reference names, and the reference with what it reads and where it writes."""
        output = self._library.output(reference, name)
        check_empty_batches(output)
        sinks = tuple(define_sinks(output.sinks))
        return output, replace(reference, reads=input_names(output), sinks=sinks)

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
                f"the file declares {', '.join(reference.sinks) or 'nothing'}",
                hint="A job keeps the sinks it was created with. Drop it and create it, or give the new one a name of "
                "its own.",
            )

    # -- streams ---------------------------------------------------------------------------------

    def _add_streams(self, output: Output, reference: CodeReference, acceptance: Acceptance) -> list[str]:
        """Add the streams that a query reads and the engine lacks; return their names. The others must be the same."""
        added = []
        for source in input_sources(output):
            name = source.stream.name
            if name not in acceptance.catalogue.streams:
                added.append(name)
            self._add_stream(name, source, reference, acceptance)
        return added

    def _add_stream(self, name: str, source: Node, reference: CodeReference, acceptance: Acceptance) -> None:
        """Add a stream of a file, or check that the engine's is the same."""
        assert isinstance(source, Source)
        if name not in acceptance.catalogue.streams:
            self._checks.check_free(name, acceptance.catalogue)
            acceptance.note(AddStream(name, code=replace(reference, reads=(), sinks=())))
        mine, theirs = (
            self._builder.stream_definition(name, acceptance.catalogue),
            define_stream(source.stream),
        )
        if found := find_differences(theirs, mine):
            raise UserError(
                "STREAM_DIFFERS",
                f"the engine has another stream {name} than the file declares",
                where=str(source.origin),
                detail=f"it has {'; '.join(found)}",
                hint="Declare in the file what the engine has, or give the stream another name.",
            )

    # -- a whole file ----------------------------------------------------------------------------

    def _deploy(self, request: Deploy, acceptance: Acceptance) -> None:
        before = acceptance.catalogue
        attribute, app = self._only_app(request)
        reference = replace(_reference(request, attribute), deployed=True)
        names = [output.name for output in app.outputs] if isinstance(app, App) else [*app.queries]
        text = None if isinstance(app, App) else read_script(app.sql, app.file)
        by_sql = [one.name for one in text.statements if isinstance(one, CreateJob)] if text else []
        # what a job reads comes before it; jobs of SQL that are there already need not be waited for
        pending = {*names, *(name for name in by_sql if name not in before.jobs)}
        altered: list[str] = []
        waiting = self._deploy_queries(names, pending, reference, before, acceptance, altered)
        if text is not None and isinstance(app, JobsDeclaration):
            self._deploy_sql(app, text, reference, before, acceptance)
            pending = {*waiting}
        while waiting:
            left = self._deploy_queries(waiting, pending, reference, before, acceptance, altered)
            if left == waiting:  # they read each other: the first is refused for it
                pending.clear()
            waiting = left
        if request.prune:
            self._prune(reference, {*names, *by_sql}, before, acceptance)
        for name in altered:
            self._checks.check_readers(name, acceptance.catalogue)

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

    def _deploy_queries(
        self,
        names: Sequence[str],
        pending: set[str],
        reference: CodeReference,
        before: Catalogue,
        acceptance: Acceptance,
        altered: list[str],
    ) -> list[str]:
        """Create or alter jobs of a file that read none of the `pending` ones, and remove them from those; return the
        others."""
        waiting = []
        for name in names:
            if any(
                one in pending and one != name for one in input_jobs(self._library.output(reference, name))
            ):
                waiting.append(name)
                continue
            pending.discard(name)
            if name not in before.jobs:
                self._create(name, reference, acceptance)
            elif self._is_unchanged(name, reference, before):
                acceptance.report(name, _unchanged(before.jobs[name]))
            else:
                self._alter(name, reference, acceptance, before)
                altered.append(name)
        return waiting

    def _is_unchanged(self, name: str, reference: CodeReference, catalogue: Catalogue) -> bool:
        code = catalogue.jobs[name].code
        if code is not None and code.file != reference.file:
            raise UserError(
                "NAME_TAKEN",
                f"there is a job {name} already, of another file",
                detail=f"it is of {code.file}",
                hint="Give one of them another name, drop that job, or alter it by itself: "
                f"penstock jobs alter {name} --from FILE:NAME.",
            )
        if code is None and (output := self._builder.written_output(catalogue.jobs[name])) is not None:
            return _are_equal(output, "", self._library.output(reference, name), reference.digest)
        if code is None or not code.deployed:
            return False
        if (code.digest, code.attribute) == (reference.digest, reference.attribute):
            return True
        try:
            old = self._library.output(code, name)
        except PenstockError:  # it is no longer complete: the new one replaces it
            return False
        return _are_equal(old, code.digest, self._library.output(reference, name), reference.digest)

    def _deploy_sql(
        self,
        app: JobsDeclaration,
        text: Script,
        reference: CodeReference,
        before: Catalogue,
        acceptance: Acceptance,
    ) -> None:
        """Create or alter the streams and jobs that the SQL of a file declares."""
        for name, stream in app.streams.items():
            if re.search(rf"\b{re.escape(name)}\b", app.sql):
                self._add_stream(name, stream.node, reference, acceptance)
        for statement in text.statements:
            known = isinstance(statement, CreateJob) and before.texts.get(statement.name) == statement.text
            if isinstance(statement, CreateJob) and known and statement.name in before.jobs:
                self._swap_functions(before.jobs[statement.name], app, reference, acceptance)
            elif isinstance(statement, CreateJob | CreateStream):
                self._accept_initial(text, statement, acceptance, reference)

    def _swap_functions(
        self, entry: JobEntry, app: JobsDeclaration, reference: CodeReference, acceptance: Acceptance
    ) -> None:
        """Let a SQL job call the functions as the file has them now."""
        used = {n: f for n, f in app.functions.items() if may_call_python(entry.select, [n])}
        old = self._builder.functions(entry)
        code = reference if entry.code is None else entry.code
        before = define_functions({n: old[n] for n in used if n in old}, code.digest)
        if before == define_functions(used, reference.digest):
            acceptance.report(entry.name, _unchanged(entry))
            return
        command = ChangeQuery(entry.name, entry.select, dict(entry.parameters), code=reference)
        was = None if entry.left_out else self._builder.job(entry.name, acceptance.catalogue)
        now = self._builder.job(entry.name, acceptance.catalogue.after(command))
        state, effect = decide_state(was, now)
        command = replace(command, state=state)
        self._checks.check_readers(entry.name, acceptance.catalogue.after(command))
        acceptance.do(command, f"altered job {entry.name}; {effect}", state)

    def _prune(
        self, reference: CodeReference, wanted: set[str], before: Catalogue, acceptance: Acceptance
    ) -> None:
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
            free = [name for name in gone if not self._checks.readers(name, acceptance.catalogue)]
            for name in free or gone[:1]:
                self._checks.check_unread(f"the job {name}", name, acceptance.catalogue)
                message = f"dropped job {name}, which the file no longer has, with its state"
                acceptance.do(RemoveJob(name), message)
                gone.remove(name)


def unread_streams(builder: JobBuilder, catalogue: Catalogue) -> list[str]:
    """The streams that came with Python jobs and that no job reads."""
    added = [name for name, entry in catalogue.streams.items() if entry.code is not None]
    if not added:
        return []
    read = frozenset[str]().union(*(names_read(builder, name, catalogue) for name in catalogue.jobs))
    return [name for name in added if name not in read and catalogue.streams[name].unique_name not in read]


def _unchanged(entry: JobEntry) -> str:
    life = entry.master.life
    return f"job {entry.name} is unchanged{'; its state is kept' if life == 'running' else f', {life}'}"


def _reference(request: CodeRequest, attribute: str) -> CodeReference:
    return CodeReference(request.code.digest, request.code.path, attribute)


def _are_equal(old: Output, old_digest: str, new: Output, new_digest: str) -> bool:
    """Whether two outputs compute the same from the same streams, with the code of bundles of these digests."""
    streams = [[define_stream(one.stream) for one in input_sources(output)] for output in (old, new)]
    same = define_output(old, old_digest) == define_output(new, new_digest)
    return same and streams[0] == streams[1]
