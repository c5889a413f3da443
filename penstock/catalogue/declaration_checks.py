"""Whether what is said of a job agrees with what there is: with its query the values given to parameters, and the
columns that others declare of it; with the catalogue what is said for the case that it is there, or is not.

Receives a statement, or a job of a catalogue that can be made; raises `UserError` with UNKNOWN_PARAMETER or
BAD_PREVIOUS.
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
    """What to answer where IF EXISTS or IF NOT EXISTS leaves nothing to do."""
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


def check_parameters(job: str, select: str, given: Collection[str]) -> None:
    """Whether a query uses all parameters that are given values."""
    if not given:
        return
    statement = parse(select)[0]
    assert isinstance(statement, Select)
    used = list(dict.fromkeys(str(one.this.name) for one in statement.tree.find_all(exp.Parameter)))
    for name in given:
        if name not in used:
            near = suggest_name(name, used)
            there = f"It has {', '.join(f'${one}' for one in used)}." if used else "It has none."
            raise UserError(
                "UNKNOWN_PARAMETER",
                f"the query of {job} has no parameter ${name}",
                hint=near.replace("'", "$", 1).replace("'", "") if near else there,
            )


def check_declared(builder: JobBuilder, name: str, catalogue: Catalogue) -> None:
    """Whether a job tells what it and others declare of it, and others what it declares of them; of those that are not
    there, or cannot be made, nothing is known."""
    made = builder.job(name, catalogue)
    for other, columns in builder.previous_columns(name):
        if other == name:
            _agree(name, name, columns, made.schema)
        elif other in catalogue.jobs and not catalogue.jobs[other].left_out:
            _agree(name, other, columns, _schema(builder, other, catalogue))
    for reader in builder.jobs_declaring(name):
        if reader == name or reader not in catalogue.jobs or catalogue.jobs[reader].left_out:
            continue
        if _schema(builder, reader, catalogue) is not None:
            for other, columns in builder.previous_columns(reader):
                if other == name:
                    _agree(reader, name, columns, made.schema)


def _schema(builder: JobBuilder, name: str, catalogue: Catalogue) -> Mapping[str, pl.DataType] | None:
    try:
        return builder.job(name, catalogue).schema
    except PenstockError:
        return None


def _agree(
    reader: str, job: str, declared: Mapping[str, pl.DataType], told: Mapping[str, pl.DataType] | None
) -> None:
    if told is None:
        return
    for name, dtype in declared.items():
        if name in told and _fits(dtype, told[name]):
            continue
        has = f"tells {name} as {told[name]}, not as {dtype}" if name in told else f"has no column {name}"
        raise UserError(
            "BAD_PREVIOUS",
            f"{reader} declares columns that {job} does not tell: {job} {has}",
            detail=f"{job} tells {', '.join(f'{column} {kind}' for column, kind in told.items())}",
            hint=f"Say PREVIOUS({job}, '...') with columns and types that it has.",
        )


def _fits(declared: pl.DataType, told: pl.DataType) -> bool:
    """Whether values can be read so: numbers as numbers, times as times, all else as what they are."""
    if isinstance(declared, pl.List) and isinstance(told, pl.List):
        return _fits(declared.inner, told.inner)  # type: ignore[arg-type]
    return (
        declared == told
        or (declared.is_numeric() and told.is_numeric())
        or (isinstance(declared, pl.Datetime) and isinstance(told, pl.Datetime))
        or (declared == pl.String and isinstance(told, pl.Categorical | pl.Enum))
        or told == pl.Null
    )
