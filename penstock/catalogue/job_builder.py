"""The builder: from what a catalogue says of streams and jobs to streams and compiled jobs, each made once.

Receives entries of a catalogue; hands streams, compiled jobs and sinks. What depends on something that changed is made
again, the rest is kept.

What reads SQL is loaded when the first job of SQL is made: it takes a while, which an engine without one is spared.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.catalogue import Catalogue, JobEntry, StreamEntry
from penstock.catalogue.code_library import CodeLibrary
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.compiled_job import CompiledJob, compile_in_app, compile_job, continue_in_app
from penstock.catalogue.definition import Plain, define_stream
from penstock.catalogue.job_scope import JobScope
from penstock.catalogue.messages import Deliver
from penstock.catalogue.picklable import check_picklable, may_call_python
from penstock.catalogue.resolve import resolve_names
from penstock.errors import PenstockError, UserError
from penstock.query import logical
from penstock.query.code_digests import digest_objects, digest_plan
from penstock.query.compile import compile_forms
from penstock.query.stream import Stream
from penstock.sinks.contract import Sink
from penstock.sql.scope import UserFunction

if TYPE_CHECKING:
    from penstock.sql.statements import Select


@dataclass(frozen=True)
class PythonDeclarations:
    """What Python gives to jobs: streams and queries by name, functions that SQL can call, and what jobs say to
    messages."""

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
        plans = {
            name: compile_forms(
                logical.App(name, (logical.Output(name, rows.node, (), rows.node.origin),))
            ).plan
            for name, rows in self.queries.items()
        }
        of_app = {} if self.app is None else digest_plan(self.app.plan)
        return {**digest_objects(functions, sources, plans), **of_app}


#: a job, and columns that another declares of it
PreviousColumns = tuple[str, Mapping[str, pl.DataType]]


class JobBuilder:
    """Makes streams, jobs and sinks, and keeps them."""

    def __init__(self, given: PythonDeclarations, library: CodeLibrary | None = None) -> None:
        self._given = given
        #: what Python that comes while the engine runs defines; without a state there is none
        self.library = library or CodeLibrary(CodeStore(Path(os.devnull)))
        #: with what was said of them: a number or a name that was refused is given again
        self._streams: dict[str, tuple[Hashable, Stream]] = {}
        self._jobs: dict[str, tuple[Hashable, tuple[CompiledJob, ...], CompiledJob]] = {}
        #: what jobs declare of others' columns, as they were last made
        self._declared: dict[str, tuple[PreviousColumns, ...]] = {}
        self._sinks: dict[int, tuple[object, tuple[Sink, ...]]] = {}
        #: the outputs of the app that share its plan
        self._in_app_plan: dict[str, CompiledJob] = {}

    def job(self, name: str, catalogue: Catalogue) -> CompiledJob:
        """A job of the catalogue, compiled."""
        return self._job(name, catalogue, ())

    def stream(self, name: str, catalogue: Catalogue) -> Stream:
        """A stream of the catalogue."""
        entry = catalogue.streams[name]
        known = self._streams.get(entry.known_as)
        said = entry.text, entry.code
        if known is None or known[0] != said:
            self._jobs = {n: job for n, job in self._jobs.items() if not _reads(job[2], entry.known_as)}
            made = self._made(entry)
            node = made.node
            assert isinstance(node, logical.Source)
            if node.stream.name != entry.known_as:
                made = Stream(replace(node, stream=replace(node.stream, name=entry.known_as)))
            self._streams[entry.known_as] = said, made
        return self._streams[entry.known_as][1]

    def _made(self, entry: StreamEntry) -> Stream:
        if entry.text:
            return _stream_of(entry.text)
        if entry.code is not None:
            return self.library.stream(entry.code, entry.name)
        if self._given.app is not None and entry.name in self._given.app.streams:
            return Stream(self._given.app.streams[entry.name])
        return _given(entry.name, self._given.streams, "stream")

    def stream_definition(self, name: str, catalogue: Catalogue) -> dict[str, Plain]:
        """What a stream of the catalogue is, to be compared with another."""
        node = self.stream(name, catalogue).node
        assert isinstance(node, logical.Source)
        return define_stream(node.stream)

    def sinks(self, entry: JobEntry) -> tuple[Sink, ...]:
        """Where a job's rows go. Those of an output of the app are the app's, also when its query is altered."""
        if entry.of_app:
            self._sinks.setdefault(entry.created, (None, self._output(entry.name).sinks))
            return self._sinks[entry.created][1]
        ours = entry.code.sinks if entry.of_python and entry.code is not None else ()
        said, known = (entry.name, entry.sinks, ours), self._sinks.get(entry.created)
        if known is None or known[0] != said:
            if ours:
                assert entry.code is not None
                # two jobs of one query are two: what one has opened is not the other's
                made = tuple(map(_copied, self.library.output(entry.code, entry.name).sinks))
            elif entry.sinks:
                from penstock.sql.connectors import build_sinks

                made = build_sinks([sink.as_call(number) for number, sink in enumerate(entry.sinks, 1)])
            else:
                made = ()
            self._sinks[entry.created] = said, made
        return self._sinks[entry.created][1]

    def _output(self, name: str) -> logical.Output:
        """An output of the app that the engine starts with."""
        assert self._given.app is not None
        return self._given.app.outputs[name]

    def functions(self, entry: JobEntry) -> Mapping[str, UserFunction]:
        """The functions that a job's SQL can call: those of its file before those that Python gave at the start."""
        own = self.library.functions(entry.code) if entry.select and entry.code is not None else {}
        return {**self._given.functions, **own}

    def inputs_of(self, name: str, catalogue: Catalogue) -> frozenset[str]:
        """The streams and jobs that a job reads, also those of the epoch before that it cannot do without."""
        made = self.job(name, catalogue)
        return frozenset(read.name for read in self._jobs[name][1]) | {s.split("~")[0] for s in made.scans}

    def previous_columns(self, name: str) -> tuple[PreviousColumns, ...]:
        """What a job, as it was last made, says of the columns that jobs tell: by its PREVIOUS(job, '...')."""
        return self._declared.get(name, ())

    def jobs_declaring(self, name: str) -> list[str]:
        """The jobs that, as they were last made, declare columns of a job."""
        return [job for job, all_ in self._declared.items() if any(other == name for other, _ in all_)]

    def forget_unused(self, catalogue: Catalogue) -> list[tuple[Sink, ...]]:
        """Keep only what is in the catalogue; hands the sinks nobody needs."""
        self._jobs = {name: made for name, made in self._jobs.items() if name in catalogue.jobs}
        known = {entry.known_as for entry in catalogue.streams.values()}
        self._streams = {name: made for name, made in self._streams.items() if name in known}
        needed = {entry.created for entry in catalogue.jobs.values()}
        return [self._sinks.pop(number)[1] for number in self._sinks.keys() - needed]

    def _job(self, name: str, catalogue: Catalogue, within: tuple[str, ...]) -> CompiledJob:
        entry = catalogue.jobs[name]
        if name in within:
            circle = " reads ".join([*within[within.index(name) :], name])
            raise UserError(
                "JOB_CYCLE",
                f"jobs cannot read each other in a circle: {circle}",
                hint="Let one of them read the other's results of the epoch before, and declare their columns: "
                f"FROM PREVIOUS({name}, 'k STRING, n BIGINT').",
            )
        parameters = tuple(sorted(entry.parameters.items()))
        said = entry.number, entry.select, parameters, entry.private, entry.code
        if entry.in_app_plan and entry.code is None:
            return self._in_app(entry)
        known = self._jobs.get(name)
        if known is not None and known[0] == said:
            still = [self._job(read.name, catalogue, (*within, name)) for read in known[1]]
            if all(now is before for now, before in zip(still, known[1], strict=True)):
                return known[2]
        read: dict[str, CompiledJob] = {}
        declared: list[PreviousColumns] = []

        def rows_of(other: str) -> Stream:
            read[other] = self._job(other, catalogue, (*within, name))
            return read[other].read()

        functions = self.functions(entry)
        scope = JobScope(
            catalogue,
            dict(entry.parameters),
            functions,
            lambda stream: self.stream(stream, catalogue),
            rows_of,
            entry.private,
            declared,
        )
        if entry.select:
            from penstock.sql.select import plan_select

            rows = plan_select(_select(entry.select), scope)
        elif entry.code is not None:
            rows = resolve_names(self.library.output(entry.code, name), scope)
        elif entry.of_app:
            rows = Stream(self._output(name).node)
        else:
            rows = _given(name, self._given.queries, "job")
        made = compile_job(name, entry.number, rows, alone=entry.in_app_plan)
        if entry.in_app_plan:
            assert self._given.app is not None
            before = compile_job(name, entry.number, Stream(self._output(name).node), alone=True)
            made = continue_in_app(made, self._given.app, before)
        if may_call_python(entry.select, functions):
            check_picklable(made, str(rows.node.origin) if entry.of_python else None)
        self._jobs[name] = (said, tuple(read.values()), made)
        self._declared.pop(name, None)
        if declared:
            self._declared[name] = tuple(declared)
        return made

    def _in_app(self, entry: JobEntry) -> CompiledJob:
        """An output of the app as part of the app's plan."""
        if entry.name not in self._in_app_plan:
            assert self._given.app is not None
            made = compile_in_app(self._given.app, self._output(entry.name), entry.number)
            self._in_app_plan[entry.name] = made
        return self._in_app_plan[entry.name]


def _given(name: str, given: Mapping[str, Stream], kind: str) -> Stream:
    if name not in given:
        raise UserError(
            "NOT_GIVEN",
            f"the {kind} {name} was given by Python when it was created, and is not now",
            hint=f"Give it again, under the same name, or DROP {kind.upper()} {name} before you leave it out.",
        )
    return given[name]


def _copied(sink: Sink) -> Sink:
    """A sink that is not opened yet, as one of its own."""
    try:
        return deepcopy(sink)
    except Exception:  # it has something that is there once, such as the console
        return copy(sink)


def _reads(job: CompiledJob, stream: str) -> bool:
    """Whether a job reads a stream, with others or by itself."""
    return any(name == stream or name.startswith(f"{stream}~") for name in job.streams)


def _stream_of(text: str) -> Stream:
    from penstock.sql.connectors import build_stream
    from penstock.sql.parse import parse
    from penstock.sql.statements import CreateStream

    statement = parse(text)[0]
    assert isinstance(statement, CreateStream)
    return build_stream(statement)


def _select(text: str) -> Select:
    from penstock.sql.parse import parse
    from penstock.sql.statements import Select

    statement = parse(text)[0]
    assert isinstance(statement, Select)
    return statement


def blame_reader(name: str, error: PenstockError) -> PenstockError:
    """An error of another job than the one a command is about."""
    return type(error)(
        error.condition,
        f"the job {name}, which reads it, could not go on: {error.primary}",
        detail=error.detail,
        hint=error.hint or "Alter that job first.",
    )
