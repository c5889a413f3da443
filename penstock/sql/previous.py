"""PREVIOUS: what a job told in the epoch before, as rows to read now. It may be read in a circle."""

from __future__ import annotations

import polars as pl
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from penstock.errors import UserError
from penstock.sql.dialect import Penstock
from penstock.sql.places import refused
from penstock.sql.relation import Relation
from penstock.sql.scope import Scope
from penstock.sql.types import dtype_of

_HOW = "As in PREVIOUS(limits) or, before that job is there, PREVIOUS(limits, 'page STRING, most BIGINT')."


def is_previous(node: exp.Expr) -> bool:
    """Whether this is `PREVIOUS(...)`."""
    call = node.this if isinstance(node, exp.Table) else node
    return isinstance(call, exp.Anonymous) and call.name.lower() == "previous"


def told_before(scope: Scope, node: exp.Expr) -> Relation:
    """What `PREVIOUS(job)` stands for; with columns that are said, also of a job that is not there yet."""
    given = node.this.expressions
    named = len(given) in (1, 2) and isinstance(given[0], exp.Column | exp.Table)
    if not named or (len(given) == 2 and not given[1].is_string):
        raise refused(node, "BAD_PREVIOUS", "PREVIOUS takes the name of a job", _HOW)
    name = given[0].name
    found = scope.previous(name, _declared(given[1]) if len(given) == 2 else None)
    if found is None:
        raise refused(
            node,
            "UNKNOWN_JOB",
            f"there is no job {name!r} yet",
            f"Create it first, or say its columns: PREVIOUS({name}, 'name TYPE, ...').",
        )
    return Relation.of(found, node.alias or name)


def _declared(node: exp.Expr) -> dict[str, pl.DataType]:
    """Columns said as `name TYPE, name TYPE`."""
    try:
        found = dtype_of(exp.DataType.build(f"STRUCT<{node.name}>", dialect=Penstock))
    except (ParseError, TokenError, ValueError, UserError) as failure:
        raise refused(node, "BAD_PREVIOUS", f"{node.name!r} does not say columns", _HOW) from failure
    assert isinstance(found, pl.Struct)
    return {
        field.name: field.dtype() if isinstance(field.dtype, type) else field.dtype for field in found.fields
    }
