"""FROM and JOIN: the streams that a query reads, under the names that it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from penstock.decode.values import as_instance
from penstock.errors import UserError
from penstock.query import logical
from penstock.query.stream import Stream
from penstock.sql.coercion import common_type
from penstock.sql.dialect import ALL_STREAMS, Penstock
from penstock.sql.errors import check_clauses, errors_at, query_error, suggest_name
from penstock.sql.expressions import ExpressionCompiler
from penstock.sql.relation import Relation
from penstock.sql.scope import Scope
from penstock.sql.types import dtype_of
from penstock.sql.windows import is_window, window_of_call

_FROM = "As in FROM clicks, FROM (SELECT ...) AS part, or FROM TUMBLE(clicks, ts, INTERVAL '30' SECOND)."
_PREVIOUS = "As in PREVIOUS(limits) or, before that job exists, PREVIOUS(limits, 'page STRING, most BIGINT')."


class Sources:
    """Finds streams by name; `parts` are those that the query itself has named."""

    def __init__(
        self, scope: Scope, query: Callable[[exp.Expr], Stream], parts: Mapping[str, Stream]
    ) -> None:
        self.scope = scope
        self.query = query
        self.parts = parts

    def relation(self, node: exp.Expr) -> Relation:
        """What stands after FROM or JOIN."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise query_error(
                alias, "UNSUPPORTED_SQL", "columns cannot be renamed here", "Use SELECT x AS y."
            )
        if isinstance(node, exp.Subquery):
            return Relation.of(self.query(node.this), node.alias or None)
        if not isinstance(node, exp.Table):
            raise query_error(node, "UNSUPPORTED_SQL", "this cannot be read from", _FROM)
        check_clauses(node, ("this", "alias", "db", "joins"))
        if isinstance(node.this, exp.Identifier):
            if node.args.get("db") is not None:
                hint = f"Write {node.name}, without what stands before the dot."
                raise query_error(node, "UNKNOWN_STREAM", "names of streams have one part", hint)
            if node.name == ALL_STREAMS and not node.this.args.get("quoted"):
                return Relation.of(self._all_streams(node), node.alias or None)
            return Relation.of(self.stream(node, node.name), node.alias or node.name)
        if is_window(node.this):
            return self._window_table(node)
        if is_previous(node):
            return self._previous_results(node)
        if not isinstance(node.this, exp.Anonymous):
            raise query_error(node, "UNSUPPORTED_SQL", "this cannot be read from", _FROM)
        if node.this.name.lower() == "latest":
            raise query_error(
                node,
                "BAD_JOIN",
                "LATEST belongs after JOIN",
                "As in clicks JOIN LATEST(users) u ON u.id = ....",
            )
        raise query_error(
            node,
            "UNKNOWN_FUNCTION",
            f"there is no table function {node.this.name}",
            suggest_name(node.this.name, ["tumble", "hop", "session", "latest", "previous"]) or _FROM,
        )

    def stream(self, node: exp.Expr, name: str) -> Stream:
        """The part of the query, stream or job of this name; without regard to case if only one matches so."""
        if (exact := self._rows(name)) is not None:
            return exact
        names = [*self.parts, *self.scope.names()]
        same = [one for one in names if one.lower() == name.lower()]
        if len(same) == 1 and (other := self._rows(same[0])) is not None:
            return other
        raise query_error(
            node,
            "UNKNOWN_STREAM",
            f"there is no stream or job {name!r}",
            suggest_name(name, names)
            or (f"There are {', '.join(names)}." if names else "There are none yet."),
        )

    def _rows(self, name: str) -> Stream | None:
        return self.parts[name] if name in self.parts else self.scope.rows(name)

    def _all_streams(self, node: exp.Expr) -> Stream:
        """The union of all streams, with the columns that all of them have."""
        streams = [rows for name in self.scope.streams() if (rows := self.scope.rows(name)) is not None]
        if not streams:
            raise query_error(node, "UNKNOWN_STREAM", "there are no streams yet", "CREATE STREAM makes one.")
        schemas = [stream.node.schema for stream in streams]
        common = [
            name
            for name, dtype in schemas[0].items()
            if all(name in schema and schema[name] == dtype for schema in schemas)
        ]
        if not common:
            raise query_error(
                node, "SCHEMA_MISMATCH", "the streams have no column in common", "Name one of them."
            )
        first, *others = (one if one.columns == common else one.select(*common) for one in streams)
        return first.union(*others) if others else first

    def _window_table(self, node: exp.Table) -> Relation:
        """A table function: a stream in windows."""
        call = node.this
        if len(call.expressions) < 3:
            raise query_error(call, "BAD_WINDOW", f"{call.name} needs a stream, a time and a length", _FROM)
        table, time, *lengths = call.expressions
        if (
            isinstance(time, exp.Anonymous)
            and time.name.upper() == "DESCRIPTOR"
            and len(time.expressions) == 1
        ):
            time = time.expressions[0]
        relation = Relation.of(self.stream(table, table.name), node.alias or table.name)
        check_event_time(relation, time)
        literal_value = ExpressionCompiler(relation, self.scope).literal_value
        return replace(relation, window=window_of_call(call, lengths, literal_value))

    def _previous_results(self, node: exp.Expr) -> Relation:
        """`PREVIOUS(job)`: a job's results of the epoch before, so jobs can read each other in a circle.

        A job that does not exist yet is read with declared columns.
        """
        arguments = node.this.expressions
        named = len(arguments) in (1, 2) and isinstance(arguments[0], exp.Column | exp.Table)
        if not named or (len(arguments) == 2 and not arguments[1].is_string):
            raise query_error(node, "BAD_PREVIOUS", "PREVIOUS takes the name of a job", _PREVIOUS)
        name = arguments[0].name
        rows = self.scope.previous(name, _declared_columns(arguments[1]) if len(arguments) == 2 else None)
        if rows is None:
            raise query_error(
                node,
                "UNKNOWN_JOB",
                f"there is no job {name!r} yet",
                f"Create it first, or declare its columns: PREVIOUS({name}, 'name TYPE, ...').",
            )
        return Relation.of(rows, node.alias or name)


def is_previous(node: exp.Expr) -> bool:
    """Whether this is `PREVIOUS(...)`."""
    call = node.this if isinstance(node, exp.Table) else node
    return isinstance(call, exp.Anonymous) and call.name.lower() == "previous"


def _declared_columns(node: exp.Expr) -> dict[str, pl.DataType]:
    """The columns of a text `name TYPE, name TYPE`."""
    try:
        struct = dtype_of(exp.DataType.build(f"STRUCT<{node.name}>", dialect=Penstock))
    except (ParseError, TokenError, ValueError, UserError) as failure:
        raise query_error(
            node, "BAD_PREVIOUS", f"{node.name!r} does not declare columns", _PREVIOUS
        ) from failure
    assert isinstance(struct, pl.Struct)
    return {field.name: as_instance(field.dtype) for field in struct.fields}


def check_event_time(relation: Relation, node: exp.Expr) -> None:
    """Raise unless a name means the event time."""
    column, path = relation.resolve(node)
    times = _event_times(relation.stream.node) & set(relation.stream.columns)
    if path or column not in times:
        known = {field.name for field in relation.fields if field.column in times}
        raise query_error(
            node,
            "BAD_WINDOW",
            f"windows go by the event time, and {node.sql()} is not that",
            f"The event time is {' or '.join(sorted(known))}." if known else "These rows no longer have it.",
        )


def _event_times(node: logical.Node) -> set[str]:
    """The columns with the time by which rows are assigned to windows."""
    if isinstance(node, logical.Source):
        return {node.stream.time} if node.stream.time is not None else set()
    below = [_event_times(part) for part in node.inputs]
    if isinstance(node, logical.Map):
        unchanged = {name for name in below[0] if not node.only and name not in dict(node.columns)}
        copied = {
            name
            for name, expr in node.columns
            if expr.meta.is_column() and expr.meta.root_names()[0] in below[0]
        }
        return unchanged | copied
    if isinstance(node, logical.Union):
        return set.intersection(*below)
    ends = {"window_end", "as_of"} if isinstance(node, logical.Stateful) else set()
    return (set().union(*below) | ends) & set(node.schema)


def rename_columns(right: Relation, taken: set[str], same: Mapping[str, str]) -> Relation:
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
    fields = tuple(replace(field, column=names[field.column]) for field in right.fields)
    return Relation(stream, fields, right.window)


def union_all(node: exp.Expr, parts: Sequence[Stream]) -> Stream:
    """UNION ALL: columns by position, with the names of the first part, numbers in the wider type."""
    names = parts[0].columns
    dtypes = list(parts[0].node.schema.values())
    for part in parts[1:]:
        if len(part.columns) != len(names):
            raise query_error(
                node,
                "SCHEMA_MISMATCH",
                f"one part of the union has {len(names)} columns, another {len(part.columns)}",
                "Select as many in each.",
            )
        dtypes = [
            common_type(node, one, other)
            for one, other in zip(dtypes, part.node.schema.values(), strict=True)
        ]
    wanted = dict(zip(names, dtypes, strict=True))
    first, *others = (part if dict(part.node.schema) == wanted else _cast(part, wanted) for part in parts)
    with errors_at(node):
        return first.union(*others)


def _cast(part: Stream, schema: Mapping[str, pl.DataType]) -> Stream:
    """The columns of a stream by position with other names and types."""
    columns = {
        name: pl.col(column) if part.node.schema[column] == dtype else pl.col(column).cast(dtype)
        for (name, dtype), column in zip(schema.items(), part.columns, strict=True)
    }
    return part.select(**columns)
