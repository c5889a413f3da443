"""FROM and JOIN: the streams a query reads, under the names it gives them.

Receives the parts of a tree that name streams; hands a `Relation`. Of joined streams every column stays, under a
name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl
from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.dialect import ALL_STREAMS
from penstock.sql.expressions import Expressions
from penstock.sql.literals import wider
from penstock.sql.places import located, nearest, refused
from penstock.sql.previous import is_previous, told_before
from penstock.sql.relation import Field, Relation
from penstock.sql.scope import Scope
from penstock.sql.windows import cut_of_call, event_times, is_window

_HOW_FROM = "As in FROM clicks, FROM (SELECT ...) AS part, or FROM TUMBLE(clicks, ts, INTERVAL '30' SECOND)."


class Sources:
    """Finds streams by their names; `parts` are those that the query itself has named."""

    def __init__(
        self, scope: Scope, query: Callable[[exp.Expr], Stream], parts: Mapping[str, Stream]
    ) -> None:
        self.scope = scope
        self.query = query
        self.parts = parts

    def table(self, node: exp.Expr) -> Relation:
        """What stands after FROM or JOIN."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise refused(alias, "UNSUPPORTED_SQL", "columns cannot be renamed here", "Use SELECT x AS y.")
        if isinstance(node, exp.Subquery):
            return Relation.of(self.query(node.this), node.alias or None)
        if not isinstance(node, exp.Table):
            raise refused(node, "UNSUPPORTED_SQL", "this cannot be read from", _HOW_FROM)
        _check_nothing_else(node)
        if isinstance(node.this, exp.Identifier):
            if node.args.get("db") is not None:
                raise refused(node, "UNKNOWN_STREAM", "names of streams have one part", _quoted(node.name))
            if node.name == ALL_STREAMS and not node.this.args.get("quoted"):
                return Relation.of(self._all(node), node.alias or None)
            return Relation.of(self.named(node, node.name), node.alias or node.name)
        if is_window(node.this):
            return self._cut(node)
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "latest":
            raise refused(
                node,
                "BAD_JOIN",
                "LATEST belongs after JOIN",
                "As in clicks JOIN LATEST(users) u ON u.id = ....",
            )
        if is_previous(node):
            return told_before(self.scope, node)
        if isinstance(node.this, exp.Anonymous):
            names = nearest(node.this.name, ["tumble", "hop", "session", "latest", "previous"])
            raise refused(
                node, "UNKNOWN_FUNCTION", f"there is no table function {node.this.name}", names or _HOW_FROM
            )
        raise refused(node, "UNSUPPORTED_SQL", "this cannot be read from", _HOW_FROM)

    def named(self, node: exp.Expr, name: str) -> Stream:
        """A part of the query, a stream or a job of this name; of another spelling if that is the only one."""
        found = self._spelled(name)
        if found is not None:
            return found
        names = [*self.parts, *self.scope.names()]
        same = [one for one in names if one.lower() == name.lower()]
        found = self._spelled(same[0]) if len(same) == 1 else None
        if found is not None:
            return found
        raise refused(
            node,
            "UNKNOWN_STREAM",
            f"there is no stream or job {name!r}",
            nearest(name, names) or (f"There are {', '.join(names)}." if names else "There are none yet."),
        )

    def _spelled(self, name: str) -> Stream | None:
        return self.parts[name] if name in self.parts else self.scope.rows(name)

    def _all(self, node: exp.Expr) -> Stream:
        """All streams, by the columns they have in common."""
        found = [rows for name in self.scope.streams() if (rows := self.scope.rows(name)) is not None]
        if not found:
            raise refused(node, "UNKNOWN_STREAM", "there are no streams yet", "CREATE STREAM makes one.")
        schemas = [stream.node.schema for stream in found]
        common = [
            name
            for name, dtype in schemas[0].items()
            if all(name in schema and schema[name] == dtype for schema in schemas)
        ]
        if not common:
            raise refused(
                node, "SCHEMA_MISMATCH", "the streams have no column in common", "Name one of them."
            )
        alike = [one if one.columns == common else one.select(*common) for one in found]
        return alike[0] if len(alike) == 1 else alike[0].union(*alike[1:])

    def _cut(self, node: exp.Table) -> Relation:
        """A table function: a stream in windows."""
        call = node.this
        given = call.expressions
        if len(given) < 3:
            raise refused(call, "BAD_WINDOW", f"{call.name} needs a stream, a time and a length", _HOW_FROM)
        name = given[0].name
        stream = self.named(given[0], name)
        time = given[1]
        if (
            isinstance(time, exp.Anonymous)
            and time.name.upper() == "DESCRIPTOR"
            and len(time.expressions) == 1
        ):
            time = time.expressions[0]
        relation = Relation.of(stream, node.alias or name)
        check_time(relation, time)
        cut = cut_of_call(call, given[2:], Expressions(relation, self.scope).value)
        return replace(relation, cut=cut)


def check_time(relation: Relation, node: exp.Expr) -> None:
    """Raise unless a name means the event time."""
    column, path = relation.find(node)
    times = event_times(relation.stream.node) & set(relation.stream.columns)
    if path or column not in times:
        known = {field.name for field in relation.fields if field.column in times}
        raise refused(
            node,
            "BAD_WINDOW",
            f"windows go by the event time, and {node.sql()} is not that",
            f"The event time is {' or '.join(sorted(known))}." if known else "These rows no longer have it.",
        )


def renamed(right: Relation, taken: set[str], same: Mapping[str, str]) -> Relation:
    """A relation whose columns have names that are not taken; `same` are to have the given ones."""
    names: dict[str, str] = {}
    for column in right.stream.columns:
        name = same.get(column, column)
        while column not in same and (name in taken or name in names.values()):
            name += "_right"
        names[column] = name
    if all(old == new for old, new in names.items()):
        return right
    stream = right.stream.select(**{new: pl.col(old) for old, new in names.items()})
    fields = tuple(Field(one.qualifier, one.name, names[one.column]) for one in right.fields)
    return Relation(stream, fields, right.cut)


def united(node: exp.Expr, parts: list[Stream]) -> Stream:
    """Streams one below the other: columns by their places, named by the first, numbers in the wider type."""
    names = parts[0].columns
    for part in parts[1:]:
        if len(part.columns) != len(names):
            raise refused(
                node,
                "SCHEMA_MISMATCH",
                f"one part of the union has {len(names)} columns, another {len(part.columns)}",
                "Select as many in each.",
            )
    schemas = [list(part.node.schema.values()) for part in parts]
    dtypes = schemas[0]
    for schema in schemas[1:]:
        dtypes = [wider(node, one, other) for one, other in zip(dtypes, schema, strict=True)]
    made = []
    for part in parts:
        columns = {
            name: pl.col(column) if part.node.schema[column] == dtype else pl.col(column).cast(dtype)
            for name, column, dtype in zip(names, part.columns, dtypes, strict=True)
        }
        made.append(
            part
            if dict(part.node.schema) == dict(zip(names, dtypes, strict=True))
            else part.select(**columns)
        )
    with located(node):
        return made[0].union(*made[1:])


def _check_nothing_else(node: exp.Expr) -> None:
    known = ("this", "alias", "db", "joins")
    for name, part in node.args.items():
        if part and name not in known:
            raise refused(node, "UNSUPPORTED_SQL", f"{name.upper()} of a stream is not known")


def _quoted(name: str) -> str:
    return f"Write {name}, without what stands before the dot."
