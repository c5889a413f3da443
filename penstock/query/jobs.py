"""Read other jobs in a query of Python: their rows, as a stream. Building it runs nothing.

Name and types of columns are checked when the query becomes a job itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from penstock.errors import UserError
from penstock.origin import here
from penstock.query import check, logical
from penstock.query.stream import Stream

Columns = Mapping[str, pl.DataType | type[pl.DataType]]


def job(name: str, columns: Columns) -> Stream:
    """These columns of the rows of another job, as `FROM name` reads them in SQL."""
    origin, schema = here(), _schema(name, columns)
    return Stream(logical.FromJob(origin, schema, name, 0, ()))


def previous(name: str, columns: Columns) -> Stream:
    """What a job emitted in the epoch before, as `PREVIOUS(name, '...')` reads it in SQL; also the job's own."""
    origin, schema = here(), _schema(name, columns)
    return Stream(logical.Previous(origin, schema, name, ()))


def _schema(name: object, columns: Columns) -> dict[str, pl.DataType]:
    origin = here()
    if not isinstance(name, str) or not isinstance(columns, Mapping) or not columns:
        raise UserError(
            "BAD_NAME",
            "a job is read by its name and the columns that the query needs",
            where=str(origin),
            hint='As in ps.job("hits", {"page": ps.String(), "n": ps.Int64()}).',
        )
    schema = dict(pl.Schema(columns))
    check.names_free(schema, origin)
    return schema
