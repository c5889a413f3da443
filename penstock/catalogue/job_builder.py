"""Build the streams, compiled jobs and sinks of a catalogue. What depends on an entry that changed is built again, the
rest is cached.

The SQL front end is imported with the first job of SQL: it takes a while, which an engine without one is spared.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.catalogue import Catalogue, JobEntry, StreamEntry
from penstock.catalogue.code_library import CodeLibrary
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.compiled_job import CompiledJob, compile_in_app, compile_job, continue_in_app
from penstock.catalogue.definition import Plain, define_stream
from penstock.catalogue.function_checks import check_picklable, may_call_python
from penstock.catalogue.job_scope import JobScope, resolve_names
from penstock.catalogue.messages import Deliver
from penstock.errors import PenstockError, UserError
from penstock.query import logical
from penstock.query.code_digests import digest_objects, digest_plan
from penstock.query.compile import compile_forms
from penstock.query.stream import Stream
from penstock.sinks.contract import Sink
from penstock.sql.scope import UserFunction


@dataclass(frozen=True)
class PythonDeclarations:
    """What Python declares for jobs at the start: streams and queries by name, functions that SQL can call, and
    functions that answer messages."""

    streams: Mapping[str, Stream]
    queries: Mapping[str, Stream]
    functions: Mapping[str, UserFunction]
    deliver: Mapping[str, Deliver] = field(default_factory=dict)
    #: the app that the engine starts with
    app: AppPlan | None = None

    def code(self) -> Mapping[str, str]:
        """The digests of all code in it, by names (see `penstock.query.code_digests`)."""
        functions = {f"function: {name}": function for name, function in self.functions.items()}
        functions |= {f"message: {name}": function for name, function in self.deliver.items()}
        nodes = [stream.node for stream in self.streams.values()]
        sources = [node.stream for node in nodes if isinstance(node, logical.Source)]
        outputs = [
            logical.Output(name, rows.node, (), rows.node.origin) for name, rows in self.queries.items()
        ]
        plans = {output.name: compile_forms(logical.App(output.name, (output,))).plan for output in outputs}
        app = {} if self.app is None else digest_plan(self.app.plan)
        return {**digest_objects(functions, sources, plans), **app}


#: a job, and the columns that another declares of it
PreviousColumns = tuple[str, Mapping[str, pl.DataType]]


@dataclass(frozen=True)
class _BuiltJob:
    job: CompiledJob
    #: what it was built from
    entry: Hashable
    reads: tuple[CompiledJob, ...]


class JobBuilder:
    """Builds streams, jobs and sinks, and caches them."""

    def __init__(self, declarations: PythonDeclarations, library: CodeLibrary | None = None) -> None:
        self._declarations = declarations
        #: the code that comes while the engine runs; none without a state directory
        self.library = library or CodeLibrary(CodeStore(Path(os.devnull)))
        # with what they were built from, since numbers and names that were refused are used again
        self._streams: dict[str, tuple[Hashable, Stream]] = {}
        self._jobs: dict[str, _BuiltJob] = {}
        #: the columns that jobs, as they were last built, declare of others
        self._previous_columns: dict[str, tuple[PreviousColumns, ...]] = {}
        self._sinks: dict[int, tuple[Hashable, tuple[Sink, ...]]] = {}
        #: the outputs of the app that share its plan
        self._in_app_plan: dict[str, CompiledJob] = {}

        #: what the caches of a draft were when it was made
        self._before: tuple[dict[Any, Any], ...] = ()

    # -- drafts ----------------------------------------------------------------------------------

    def draft(self) -> JobBuilder:
        """A builder with the same caches, which another thread may use while this one is used."""
        draft = JobBuilder(self._declarations, self.library)
        for own, copied in zip(self._caches(), draft._caches(), strict=True):
            copied.update(own)
        draft._before = tuple(map(dict, draft._caches()))
        return draft

    def adopt(self, draft: JobBuilder) -> None:
        """Take what a draft has built since it was made, except where this one has built something itself."""
        for own, theirs, before in zip(self._caches(), draft._caches(), draft._before, strict=True):
            for key in {**before, **theirs}:
                if own.get(key) is not before.get(key) or theirs.get(key) is before.get(key):
                    continue
                if key in theirs:
                    own[key] = theirs[key]
                else:
                    del own[key]

    def _caches(self) -> tuple[dict[Any, Any], ...]:
        return self._streams, self._jobs, self._previous_columns, self._sinks, self._in_app_plan

    # -- streams ---------------------------------------------------------------------------------

    def stream(self, name: str, catalogue: Catalogue) -> Stream:
        """A stream of the catalogue."""
        entry = catalogue.streams[name]
        cached = self._streams.get(entry.unique_name)
        built_from = entry.text, entry.code
        if cached is None or cached[0] != built_from:
            self._jobs = {n: one for n, one in self._jobs.items() if not _reads(one.job, entry.unique_name)}
            stream = self._build_stream(entry)
            node = stream.node
            assert isinstance(node, logical.Source)
            if node.stream.name != entry.unique_name:
                stream = Stream(replace(node, stream=replace(node.stream, name=entry.unique_name)))
            self._streams[entry.unique_name] = built_from, stream
        return self._streams[entry.unique_name][1]

    def _build_stream(self, entry: StreamEntry) -> Stream:
        if entry.text:
            from penstock.sql.connectors import build_stream
            from penstock.sql.parse import parse
            from penstock.sql.statements import CreateStream

            statement = parse(entry.text)[0]
            assert isinstance(statement, CreateStream)
            return build_stream(statement)
        if entry.code is not None:
            return self.library.stream(entry.code, entry.name)
        app = self._declarations.app
        if app is not None and entry.name in app.streams:
            return Stream(app.streams[entry.name])
        return _find_declared(entry.name, self._declarations.streams, "stream")

    def stream_definition(self, name: str, catalogue: Catalogue) -> dict[str, Plain]:
        """The definition of a stream of the catalogue, to compare with another."""
        node = self.stream(name, catalogue).node
        assert isinstance(node, logical.Source)
        return define_stream(node.stream)

    # -- sinks -----------------------------------------------------------------------------------

    def sinks(self, entry: JobEntry) -> tuple[Sink, ...]:
        """The sinks of a job. Those of an output of the app are the app's, also when its query is altered."""
        if entry.of_app:
            self._sinks.setdefault(entry.created, (None, self._output(entry.name).sinks))
            return self._sinks[entry.created][1]
        of_code = entry.code.sinks if entry.of_python and entry.code is not None else ()
        built_from, cached = (entry.name, entry.sinks, of_code), self._sinks.get(entry.created)
        if cached is None or cached[0] != built_from:
            self._sinks[entry.created] = built_from, self._build_sinks(entry)
        return self._sinks[entry.created][1]

    def _build_sinks(self, entry: JobEntry) -> tuple[Sink, ...]:
        if entry.of_python and entry.code is not None and entry.code.sinks:
            # two jobs of one query have sinks of their own: what one has opened is not the other's
            return tuple(map(_copy_sink, self.library.output(entry.code, entry.name).sinks))
        if not entry.sinks:
            return ()
        from penstock.sql.connectors import build_sinks

        return build_sinks([sink.as_call(number) for number, sink in enumerate(entry.sinks, 1)])

    # -- jobs ------------------------------------------------------------------------------------

    def job(self, name: str, catalogue: Catalogue) -> CompiledJob:
        """A job of the catalogue."""
        return self._job(name, catalogue, ())

    def functions(self, entry: JobEntry) -> Mapping[str, UserFunction]:
        """The functions that a job's SQL can call: those of its file before those that were declared at the start."""
        own = self.library.functions(entry.code) if entry.select and entry.code is not None else {}
        return {**self._declarations.functions, **own}

    def inputs_of(self, name: str, catalogue: Catalogue) -> frozenset[str]:
        """The streams and jobs that a job reads, also those of the epoch before whose columns it does not declare."""
        job = self.job(name, catalogue)
        built = self._jobs.get(name)  # an output in the app's plan reads no jobs
        jobs = frozenset[str]() if built is None else frozenset(read.name for read in built.reads)
        return jobs | {stream.split("~")[0] for stream in job.scans}

    def previous_columns(self, name: str) -> tuple[PreviousColumns, ...]:
        """The columns of jobs that a job, as it was last built, declares by PREVIOUS(job, '...')."""
        return self._previous_columns.get(name, ())

    def jobs_declaring(self, name: str) -> list[str]:
        """The jobs that, as they were last built, declare columns of a job."""
        return [
            job for job, all_ in self._previous_columns.items() if any(other == name for other, _ in all_)
        ]

    def forget_unused(self, *needed: Catalogue) -> dict[int, tuple[Sink, ...]]:
        """Keep only what is in one of these catalogues; returns the sinks that nobody needs any more, by the number of
        their job's creation."""
        jobs = {name for catalogue in needed for name in catalogue.jobs}
        self._jobs = {name: built for name, built in self._jobs.items() if name in jobs}
        for name in self._previous_columns.keys() - jobs:
            del self._previous_columns[name]
        streams = {entry.unique_name for catalogue in needed for entry in catalogue.streams.values()}
        self._streams = {name: built for name, built in self._streams.items() if name in streams}
        created = {entry.created for catalogue in needed for entry in catalogue.jobs.values()}
        return {number: self._sinks.pop(number)[1] for number in self._sinks.keys() - created}

    def _job(self, name: str, catalogue: Catalogue, readers: tuple[str, ...]) -> CompiledJob:
        """A job, which `readers` read, each the next one."""
        entry = catalogue.jobs[name]
        if name in readers:
            cycle = " reads ".join([*readers[readers.index(name) :], name])
            raise UserError(
                "JOB_CYCLE",
                f"jobs cannot read each other in a cycle: {cycle}",
                hint="Let one of them read the other's results of the epoch before, and declare their columns: "
                f"FROM PREVIOUS({name}, 'k STRING, n BIGINT').",
            )
        if entry.in_app_plan and entry.code is None:
            return self._output_in_app(entry)
        parameters = tuple(sorted(entry.parameters.items()))
        built_from = entry.number, entry.select, parameters, entry.private, entry.code
        readers = *readers, name
        built = self._jobs.get(name)
        if built is not None and built.entry == built_from:
            inputs = [self._job(read.name, catalogue, readers) for read in built.reads]
            if all(now is before for now, before in zip(inputs, built.reads, strict=True)):
                return built.job
        read: dict[str, CompiledJob] = {}

        def rows_of(other: str) -> Stream:
            read[other] = self._job(other, catalogue, readers)
            return read[other].read()

        scope = JobScope(
            catalogue,
            dict(entry.parameters),
            self.functions(entry),
            lambda stream: self.stream(stream, catalogue),
            rows_of,
            entry.private,
        )
        job = self._compile(entry, self._rows(entry, scope), scope.functions)
        self._jobs[name] = _BuiltJob(job, built_from, tuple(read.values()))
        self._previous_columns.pop(name, None)
        if scope.declared:
            self._previous_columns[name] = tuple(scope.declared)
        return job

    def _rows(self, entry: JobEntry, scope: JobScope) -> Stream:
        """The rows of a job's query."""
        if entry.select:
            from penstock.sql.parse import parse
            from penstock.sql.select import plan_select
            from penstock.sql.statements import Select

            statement = parse(entry.select)[0]
            assert isinstance(statement, Select)
            return plan_select(statement, scope)
        if entry.code is not None:
            return resolve_names(self.library.output(entry.code, entry.name), scope)
        if entry.of_app:
            return Stream(self._output(entry.name).node)
        return _find_declared(entry.name, self._declarations.queries, "job")

    def _compile(self, entry: JobEntry, rows: Stream, functions: Mapping[str, UserFunction]) -> CompiledJob:
        job = compile_job(entry.name, entry.number, rows, alone=entry.in_app_plan)
        if entry.in_app_plan:
            assert self._declarations.app is not None
            output = Stream(self._output(entry.name).node)
            former = compile_job(entry.name, entry.number, output, alone=True)
            job = continue_in_app(job, self._declarations.app, former)
        if may_call_python(entry.select, functions):
            check_picklable(job, str(rows.node.origin) if entry.of_python else None)
        return job

    def _output_in_app(self, entry: JobEntry) -> CompiledJob:
        """An output of the app as part of the app's plan."""
        if entry.name not in self._in_app_plan:
            assert self._declarations.app is not None
            job = compile_in_app(self._declarations.app, self._output(entry.name), entry.number)
            self._in_app_plan[entry.name] = job
        return self._in_app_plan[entry.name]

    def written_output(self, entry: JobEntry) -> logical.Output | None:
        """An output of the app as its file has it, unless a command has altered it."""
        app = self._declarations.app
        return app.written.get(entry.name) if app is not None and entry.in_app_plan else None

    def _output(self, name: str) -> logical.Output:
        """An output of the app that the engine starts with."""
        assert self._declarations.app is not None
        return self._declarations.app.outputs[name]


def _find_declared(name: str, declared: Mapping[str, Stream], kind: str) -> Stream:
    if name not in declared:
        raise UserError(
            "NOT_GIVEN",
            f"the {kind} {name} was declared in Python when it was created, and is not now",
            hint=f"Declare it again, under the same name, or DROP {kind.upper()} {name} before you leave it out.",
        )
    return declared[name]


def _copy_sink(sink: Sink) -> Sink:
    """A copy of a sink that is not opened yet."""
    try:
        return deepcopy(sink)
    except Exception:  # it holds something that exists once, such as the console
        return copy(sink)


def _reads(job: CompiledJob, stream: str) -> bool:
    """Whether a job reads a stream, with others or by itself."""
    return any(name == stream or name.startswith(f"{stream}~") for name in job.streams)


def blame_reader(name: str, error: PenstockError) -> PenstockError:
    """The error of a command about a job, because of which the job `name`, which reads it, cannot be built."""
    return type(error)(
        error.condition,
        f"the job {name}, which reads it, could not continue: {error.primary}",
        detail=error.detail,
        hint=error.hint or "Alter that job first.",
    )
