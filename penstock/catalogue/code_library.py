"""Find queries in the code of jobs: the output, stream or functions that a reference to code names.

A file is executed, and a function that returns a query is called, once for each version.

Guarantees: what a reference names depends on the source that is stored under its digest, not on the file as it is now.
On failure: `UserError` with the user's line; `InternalError` STATE_DAMAGED where the stored source is damaged.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from penstock.catalogue.code import CodeBundle
from penstock.catalogue.code_loader import describe_failure, load_bundle, unload_bundle
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.command import CodeReference
from penstock.catalogue.jobs_declaration import JobsDeclaration
from penstock.errors import PenstockError, UserError
from penstock.origin import Origin
from penstock.query import logical
from penstock.query.logical import App, FromJob, Output, Previous, Source
from penstock.query.rows import Rows, require_stream
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction


class CodeLibrary:
    """What the code of one state directory's jobs defines."""

    def __init__(self, store: CodeStore) -> None:
        self.store = store
        self._lock = threading.RLock()
        #: bundles that requests try, stored or not, and how many requests try each
        self._candidates: dict[str, CodeBundle] = {}
        self._candidate_uses: Counter[str] = Counter()
        self._bundles: dict[str, CodeBundle] = {}
        self._values: dict[tuple[str, str], Any] = {}

    @contextlib.contextmanager
    def with_candidate(self, bundle: CodeBundle) -> Iterator[None]:
        """In this context, references may name a bundle that is not stored, and perhaps never will be."""
        with self._lock:
            self._candidates[bundle.digest] = bundle
            self._candidate_uses[bundle.digest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._candidate_uses[bundle.digest] -= 1
                last = not self._candidate_uses[bundle.digest]
                if last:
                    del self._candidates[bundle.digest], self._candidate_uses[bundle.digest]
                if last and not self.store.has(bundle.digest):
                    self.unload_unused(self._bundles.keys() - {bundle.digest})

    def module(self, digest: str) -> ModuleType:
        """The module of a bundle's file."""
        bundle = self._bundle(digest)
        return load_bundle(bundle, self.store.place(digest))

    def output(self, reference: CodeReference, job: str) -> Output:
        """The query of a job, under the job's name; raises NOT_A_QUERY if there is none."""
        value = self._value(reference)
        query = _find_query(value, job)
        if isinstance(query, Output):
            return replace(query, name=job)
        if isinstance(query, Rows):
            at = Origin(self._shown_path(reference), 0)
            return Output(job, require_stream(query, at, f"the job {job}").node, (), at)
        if isinstance(value, App | JobsDeclaration):
            names = _query_names(value)
            near = get_close_matches(job, names, 1)
            raise self._not_a_query(
                reference,
                f"{reference.attribute} is an app without an output {job}",
                f"Did you mean {near[0]}?" if near else f"It has {', '.join(names) or 'none'}.",
            )
        raise self._not_a_query(
            reference,
            f"{reference.attribute} is a {type(value).__name__}, not a query",
            "Name a stream of rows, a ps.output(...), or a function without arguments that returns one.",
        )

    def stream(self, reference: CodeReference, name: str) -> Stream:
        """A stream that a job's code names."""
        value = self._value(reference)
        if isinstance(value, JobsDeclaration) and name in value.streams:
            return value.streams[name]
        for output in _outputs_of(value):
            for source in input_sources(output):
                if source.stream.name == name:
                    return Stream(source)
        raise self._not_a_query(
            reference, f"{reference.attribute} reads no stream {name}", "It did when the job was created."
        )

    def functions(self, reference: CodeReference | None) -> Mapping[str, UserFunction]:
        """The functions that SQL of the same file can call."""
        value = None if reference is None else self._value(reference)
        return value.functions if isinstance(value, JobsDeclaration) else {}

    def apps(self, digest: str) -> dict[str, App | JobsDeclaration]:
        """The apps of a file, by the names of their attributes; one that has two names, by the first."""
        apps: dict[str, App | JobsDeclaration] = {}
        for name, value in vars(self.module(digest)).items():
            if isinstance(value, App | JobsDeclaration) and all(
                value is not other for other in apps.values()
            ):
                apps[name] = value
        return apps

    def unload_unused(self, needed: Collection[str]) -> None:
        """Unload all code except this."""
        with self._lock:
            for digest in [one for one in self._bundles if one not in needed]:
                if digest not in self._candidates:
                    del self._bundles[digest]
                    self._values = {key: value for key, value in self._values.items() if key[0] != digest}
                    unload_bundle(digest)

    def _bundle(self, digest: str) -> CodeBundle:
        with self._lock:
            bundle = self._bundles.get(digest) or self._candidates.get(digest) or self.store.get(digest)
            self._bundles[digest] = bundle
            return bundle

    def _value(self, reference: CodeReference) -> Any:
        """The value of an attribute of a file; of a function, what it returns."""
        key = reference.digest, reference.attribute
        with self._lock:
            if key in self._values:
                return self._values[key]
        value: Any = self.module(reference.digest)
        for name in reference.attribute.split("."):
            if not hasattr(value, name):
                near = get_close_matches(name, [n for n in dir(value) if n[0] != "_"], 1)
                raise UserError(
                    "NO_SUCH_QUERY",
                    f"{reference.file} has no {reference.attribute}",
                    where=str(Origin(self._shown_path(reference), 0)),
                    hint=f"Did you mean {near[0]}?" if near else "Name what the file calls the query.",
                )
            value = getattr(value, name)
        if inspect.isfunction(value) or inspect.ismethod(value) or inspect.isbuiltin(value):
            value = self._call(reference, value)
        with self._lock:
            return self._values.setdefault(key, value)

    def _call(self, reference: CodeReference, function: Any) -> Any:
        code = getattr(function, "__code__", None)
        at = Origin(self._shown_path(reference), code.co_firstlineno if code is not None else 0)
        try:
            inspect.signature(function).bind()
        except (TypeError, ValueError) as failure:
            raise UserError(
                "NOT_A_QUERY",
                f"the function {reference.attribute} needs arguments",
                where=str(at),
                detail=str(failure),
                hint="It is called without any, and returns a query.",
            ) from failure
        try:
            return function()
        except PenstockError:
            raise
        except (Exception, SystemExit) as failure:
            bundle, place = self._bundle(reference.digest), self.store.place(reference.digest)
            raise describe_failure(
                bundle, place, failure, "The function raised this when it was called; nothing has changed."
            ) from failure

    def _shown_path(self, reference: CodeReference) -> str:
        bundle = self._bundle(reference.digest)
        return str(self.store.place(reference.digest) / bundle.main)

    def _not_a_query(self, reference: CodeReference, what: str, hint: str) -> UserError:
        return UserError(
            "NOT_A_QUERY",
            what,
            where=str(Origin(self._shown_path(reference), self._line(reference))),
            hint=hint,
        )

    def _line(self, reference: CodeReference) -> int:
        """Where an attribute is assigned or defined; 0 if it is not in the syntax."""
        bundle = self._bundle(reference.digest)
        return bundle.line_of(reference.attribute)


def input_names(output: Output) -> tuple[str, ...]:
    """The names of the streams and jobs that a query reads, also of the epoch before."""
    names: dict[str, None] = {}
    for node in _nodes_of(output):
        if isinstance(node, Source):
            names[node.stream.name] = None
        elif isinstance(node, FromJob | Previous):
            names[node.job] = None
    return tuple(names)


def input_jobs(output: Output) -> set[str]:
    """The jobs whose rows of the same epoch a query reads."""
    return {node.job for node in _nodes_of(output) if isinstance(node, FromJob)}


def input_sources(output: Output) -> list[Source]:
    """The streams that a query reads, each once."""
    sources = {node.stream: node for node in _nodes_of(output) if isinstance(node, Source)}
    return list(sources.values())


def _nodes_of(output: Output) -> list[logical.Node]:
    return logical.nodes_of(App(output.name, (output,)))


def _find_query(value: Any, job: str) -> Any:
    """The query of a job: the value itself, or the output of an app that has the job's name."""
    if isinstance(value, App):
        return next((output for output in value.outputs if output.name == job), None)
    if isinstance(value, JobsDeclaration):
        return value.queries.get(job)
    return value


def _query_names(value: App | JobsDeclaration) -> list[str]:
    return [output.name for output in value.outputs] if isinstance(value, App) else list(value.queries)


def _outputs_of(value: Any) -> Iterator[Output]:
    match value:
        case Output():
            yield value
        case App():
            yield from value.outputs
        case JobsDeclaration():
            for name, rows in value.queries.items():
                yield Output(name, rows.node, (), rows.node.origin)
        case Rows():
            yield Output("rows", value.node, (), value.node.origin)
