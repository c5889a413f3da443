"""Resolve the names in a query of Python: its streams and jobs become those of the catalogue, so that they are shared.

Receives an output as its file defines it, and the names around a job; returns its rows over the catalogue's streams and
jobs. Pure.

On failure: `UserError` UNKNOWN_JOB, UNKNOWN_STREAM or JOB_COLUMNS, at the line that names it.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

import polars as pl

from penstock.catalogue.job_scope import JobScope
from penstock.errors import UserError
from penstock.query import logical
from penstock.query.logical import App, FromJob, Node, Output, Previous, Source, rewrite_app
from penstock.query.stream import Stream


def resolve_names(output: Output, scope: JobScope) -> Stream:
    """The rows of an output over what its names mean."""
    streams: dict[str, Node] = {}

    def change(node: Node) -> Node:
        match node:
            case Source():
                name = node.stream.name
                if name not in scope.catalogue.streams:
                    raise _unknown("UNKNOWN_STREAM", "stream", name, node, list(scope.catalogue.streams))
                if name not in streams:  # one object for all who read it
                    rows = scope.rows(name)
                    assert rows is not None
                    streams[name] = rows.node
                return streams[name]
            case FromJob():
                if node.job not in scope.catalogue.jobs:
                    raise _unknown("UNKNOWN_JOB", "job", node.job, node, list(scope.catalogue.jobs))
                return _columns_of(node, scope.job(node.job).node)
            case Previous():
                scope.declared.append((node.job, node.schema))
        return node

    made = rewrite_app(App(output.name, (replace(output, sinks=()),)), change)
    return Stream(made.outputs[0].node)


def _columns_of(wanted: FromJob, rows: Node) -> Node:
    """Of a job's rows the columns that are wanted."""
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
