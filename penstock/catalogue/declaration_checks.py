"""Check what is declared about a job: the values of parameters against its query, columns against what jobs emit,
IF EXISTS against the catalogue.

On failure: `UserError` UNKNOWN_PARAMETER or BAD_PREVIOUS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl
from sqlglot import exp

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.job_builder import JobBuilder
from penstock.errors import PenstockError, UserError
from penstock.sql.errors import suggest_name
from penstock.sql.parse import parse
from penstock.sql.statements import Change, CreateJob, CreateStream, DropStream, Select, Statement


def skipped_statement(statement: Statement, now: Catalogue) -> str | None:
    """The answer to a statement that IF EXISTS or IF NOT EXISTS leaves without effect; else None."""
    match statement:
        case CreateStream(name=name, if_not_exists=True) if name in now.streams:
            return f"there is a stream {name} already; it is left as it is"
        case CreateJob(name=name, if_not_exists=True) if name in now.jobs:
            return f"there is a job {name} already; it is left as it is"
        case DropStream(name=name, if_exists=True) if name not in now.streams:
            return f"there is no stream {name}; nothing is dropped"
        case Change(name=name, if_exists=True) if name not in now.jobs:
            return f"there is no job {name}; nothing is dropped"
    return None


def check_parameters(job: str, select: str, names: Collection[str]) -> None:
    """Raise unless a query uses all parameters that have values."""
    if not names:
        return
    statement = parse(select)[0]
    assert isinstance(statement, Select)
    used = list(dict.fromkeys(str(one.this.name) for one in statement.tree.find_all(exp.Parameter)))
    for name in names:
        if name not in used:
            near = suggest_name(name, used)
            existing = f"It has {', '.join(f'${one}' for one in used)}." if used else "It has none."
            raise UserError(
                "UNKNOWN_PARAMETER",
                f"the query of {job} has no parameter ${name}",
                hint=near.replace("'", "$", 1).replace("'", "") if near else existing,
            )


def check_declared(builder: JobBuilder, name: str, catalogue: Catalogue) -> None:
    """Raise unless a job emits the columns that it and others declare of it, and others those that it declares of them.
    Jobs that do not exist, or cannot be compiled, are not checked."""
    schema = builder.job(name, catalogue).schema
    for other, columns in builder.previous_columns(name):
        if other == name:
            _check_columns(name, name, columns, schema)
        elif other in catalogue.jobs and not catalogue.jobs[other].left_out:
            _check_columns(name, other, columns, _schema(builder, other, catalogue))
    for reader in builder.jobs_declaring(name):
        if reader == name or reader not in catalogue.jobs or catalogue.jobs[reader].left_out:
            continue
        if _schema(builder, reader, catalogue) is not None:
            for other, columns in builder.previous_columns(reader):
                if other == name:
                    _check_columns(reader, name, columns, schema)


def _schema(builder: JobBuilder, name: str, catalogue: Catalogue) -> Mapping[str, pl.DataType] | None:
    try:
        return builder.job(name, catalogue).schema
    except PenstockError:
        return None


def _check_columns(
    reader: str, job: str, declared: Mapping[str, pl.DataType], emitted: Mapping[str, pl.DataType] | None
) -> None:
    if emitted is None:
        return
    for name, dtype in declared.items():
        if name in emitted and _fits(dtype, emitted[name]):
            continue
        has = (
            f"emits {name} as {emitted[name]}, not as {dtype}" if name in emitted else f"has no column {name}"
        )
        raise UserError(
            "BAD_PREVIOUS",
            f"{reader} declares columns that {job} does not emit: {job} {has}",
            detail=f"{job} emits {', '.join(f'{column} {kind}' for column, kind in emitted.items())}",
            hint=f"Write PREVIOUS({job}, '...') with columns and types that it has.",
        )


def _fits(declared: pl.DataType, emitted: pl.DataType) -> bool:
    """Whether values can be read as a type: numbers as numbers, times as times, all else as they are."""
    if isinstance(declared, pl.List) and isinstance(emitted, pl.List):
        return _fits(declared.inner, emitted.inner)  # type: ignore[arg-type]
    return (
        declared == emitted
        or (declared.is_numeric() and emitted.is_numeric())
        or (isinstance(declared, pl.Datetime) and isinstance(emitted, pl.Datetime))
        or (declared == pl.String and isinstance(emitted, pl.Categorical | pl.Enum))
        or emitted == pl.Null
    )
