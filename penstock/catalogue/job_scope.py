"""Resolve the names in the query of a job: the streams and jobs of a catalogue, its parameters, the user's functions.

SQL looks names up in a `JobScope`. `resolve_names` replaces those in a query of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import polars as pl

from penstock.catalogue.catalogue import Catalogue
from penstock.errors import UserError
from penstock.origin import here
from penstock.query import logical
from penstock.query.logical import App, FromJob, Node, Output, Previous, Source, rewrite_app
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction
from penstock.sql.statements import Scalar


@dataclass(frozen=True)
class JobScope:
    """The names around one job's query."""

    catalogue: Catalogue
    parameters: Mapping[str, Scalar]
    functions: Mapping[str, UserFunction]
    #: return a stream of the catalogue, and the rows of a job of it
    stream: Callable[[str], Stream]
    job: Callable[[str], Stream]
    #: the number under which the job reads its streams by itself
    private: int | None = None
    #: filled with the columns that the query declares of other jobs, for PREVIOUS
    declared: list[tuple[str, Mapping[str, pl.DataType]]] = field(default_factory=list)

    def names(self) -> Sequence[str]:
        return [*self.catalogue.streams, *self.catalogue.jobs]

    def streams(self) -> Sequence[str]:
        return list(self.catalogue.streams)

    def rows(self, name: str) -> Stream | None:
        if name in self.catalogue.jobs:
            return self.job(name)
        if name not in self.catalogue.streams:
            return None
        stream = self.stream(name)
        return stream if self.private is None else _private_stream(stream, self.private)

    def previous(self, name: str, columns: Mapping[str, pl.DataType] | None) -> Stream | None:
        if columns is not None:
            self.declared.append((name, columns))
            return Stream(Previous(here(), columns, name, ()))
        if name not in self.catalogue.jobs:
            return None
        node = self.job(name).node
        streams = tuple(dict.fromkeys(s for one in _jobs_read(node) for s in one.streams))
        return Stream(Previous(here(), node.schema, name, streams))


def _jobs_read(node: Node) -> Iterator[FromJob]:
    if isinstance(node, FromJob):
        yield node
    for before in node.inputs:
        yield from _jobs_read(before)


def _private_stream(stream: Stream, number: int) -> Stream:
    """The same stream, read from its beginning by one job alone."""
    node = stream.node
    assert isinstance(node, Source)
    return Stream(replace(node, stream=replace(node.stream, name=f"{node.stream.name}~{number}")))


def resolve_names(output: Output, scope: JobScope) -> Stream:
    """The rows of a Python query over the streams and jobs of the catalogue, so that they are shared.

    On failure: `UserError` UNKNOWN_JOB, UNKNOWN_STREAM or JOB_COLUMNS, at the line that names it.
    """
    streams: dict[str, Node] = {}

    def resolve(node: Node) -> Node:
        match node:
            case Source():
                name = node.stream.name
                if name not in scope.catalogue.streams:
                    raise _unknown("UNKNOWN_STREAM", "stream", name, node, list(scope.catalogue.streams))
                if name not in streams:  # all readers share one node
                    rows = scope.rows(name)
                    assert rows is not None
                    streams[name] = rows.node
                return streams[name]
            case FromJob():
                if node.job not in scope.catalogue.jobs:
                    raise _unknown("UNKNOWN_JOB", "job", node.job, node, list(scope.catalogue.jobs))
                return _select_columns(node, scope.job(node.job).node)
            case Previous():
                scope.declared.append((node.job, node.schema))
        return node

    app = rewrite_app(App(output.name, (replace(output, sinks=()),)), resolve)
    return Stream(app.outputs[0].node)


def _select_columns(wanted: FromJob, rows: Node) -> Node:
    """The columns that a query reads of a job's rows."""
    if dict(wanted.schema) == dict(rows.schema):
        return rows
    for name, dtype in wanted.schema.items():
        if rows.schema.get(name) != dtype:
            has = f"emits {name} as {rows.schema[name]}" if name in rows.schema else f"has no column {name}"
            raise UserError(
                "JOB_COLUMNS",
                f"{wanted.job} {has}, where {name} is read as {dtype}",
                where=str(wanted.origin),
                detail=f"{wanted.job} emits {', '.join(f'{n} {t}' for n, t in rows.schema.items())}",
                hint="Name columns and types that the job has.",
            )
    columns = tuple((name, pl.col(name)) for name in wanted.schema)
    return logical.Map(wanted.origin, wanted.schema, rows, columns, only=True)


def _unknown(condition: str, kind: str, name: str, node: Node, names: list[str]) -> UserError:
    near = get_close_matches(name, names, 1)
    return UserError(
        condition,
        f"there is no {kind} {name}",
        where=str(node.origin),
        hint=f"Did you mean {near[0]}?" if near else f"SHOW {kind.upper()}S lists those there are.",
    )
