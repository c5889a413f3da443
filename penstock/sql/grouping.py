"""GROUP BY: the keys and aggregates of a query, and the compiler of expressions over both."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from penstock.operators import functions
from penstock.query.stream import Stream
from penstock.sql.aggregates import AGGREGATES, AggregateSet, is_aggregate, read_aggregate
from penstock.sql.errors import errors_at, query_error
from penstock.sql.expressions import ExpressionCompiler
from penstock.sql.functions import TypedExpr
from penstock.sql.relation import Relation, name_parts
from penstock.sql.scope import Scope
from penstock.sql.windows import EDGES, WINDOW_COLUMNS, WindowSpec

#: columns that aggregates and rankings add; a key with such a name gets another
_ADDED = ("window_start", "window_end", "as_of", "rank")


class Grouping:
    """Collects the keys and aggregates of a query, then builds the aggregated stream.

    Expressions are compared in canonical form: `path`, `PATH` and `clicks.path` are one key.
    """

    def __init__(self, before: ExpressionCompiler) -> None:
        self.before = before
        self.aggregates = AggregateSet(before.relation.stream.node.schema)
        #: by the canonical form of a key its column, and of an aggregate its result
        self.keys: dict[str, str] = {}
        self.results: dict[str, pl.Expr] = {}

    def add_key(self, node: exp.Expr) -> None:
        """Group by an expression."""
        with errors_at(node):
            key = self.before.compile(node)
            self.keys[self.canonical(node)] = self.aggregates.column(key.expr, taken=_ADDED)

    def add_aggregates(self, node: exp.Expr) -> None:
        """Compute the aggregates in an expression."""
        if not is_aggregate(node):
            for child in node.iter_expressions():
                self.add_aggregates(child)
        elif (form := self.canonical(node)) not in self.results:
            call = read_aggregate(node, self.before.compile, self.before.condition)
            with errors_at(node):
                self.results[form] = AGGREGATES[call.name][2](self.aggregates, call)

    def build(self, window: WindowSpec, node: exp.Expr, keys: Sequence[str]) -> Stream:
        """The stream of aggregates, in windows."""
        stream = self.before.relation.stream
        with errors_at(node):
            if self.aggregates.columns:
                stream = stream.map(**self.aggregates.columns)
            if not self.aggregates.functions:
                self.aggregates.add(functions.count, None)
            return window.apply(stream.key_by(*keys)).aggregate(*self.aggregates.functions.values())

    def canonical(self, node: exp.Expr) -> str:
        """A text that is equal for expressions that mean the same, whatever they call their columns."""
        if isinstance(node, exp.Paren):
            return self.canonical(node.this)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            if (name := name_parts(node)[-1].lower()) in _ADDED and not self.before.relation.has(name):
                return f"@{name}"
            column, path = self.before.relation.resolve(node)
            return "/".join([column, *path])
        parts = []
        for name, part in node.args.items():
            several = part if isinstance(part, list) else [part]
            parts += [
                self._canonical_part(node, name, one)
                for one in several
                if one is not None and one is not False
            ]
        return f"{type(node).__name__}({','.join(parts)})"

    def _canonical_part(self, node: exp.Expr, name: str, part: object) -> str:
        if isinstance(part, exp.Expr):
            return self.canonical(part)
        is_name = name == "this" and isinstance(node, exp.Anonymous | exp.Var)
        return str(part).lower() if is_name else repr(part)


class GroupedCompiler(ExpressionCompiler):
    """Compiles expressions over the rows of an aggregate."""

    def __init__(self, rows: Stream, grouping: Grouping, window: WindowSpec, scope: Scope) -> None:
        super().__init__(Relation.of(rows, None), scope)
        self.grouping = grouping
        self.window = window

    def compile(self, node: exp.Expr) -> TypedExpr:
        if is_aggregate(node):
            return self.with_type(node, self.grouping.results[self.grouping.canonical(node)])
        if isinstance(node, exp.Anonymous) and node.name.lower() in EDGES:
            return self.with_type(node, pl.col(EDGES[node.name.lower()]))
        if isinstance(node, exp.Column):
            return self.column(node)
        if self.grouping.keys and (key := self._key(node)) is not None:
            return key
        return super().compile(node)

    def column(self, node: exp.Expr) -> TypedExpr:
        key, name = self._key(node), name_parts(node)[-1].lower()
        if key is not None:
            return key
        if name in self.window.columns and len(name_parts(node)) <= 2:
            return self.with_type(node, pl.col(name))
        if name in (*WINDOW_COLUMNS, "as_of") and not self.grouping.before.relation.has(name):
            raise query_error(
                node,
                "UNKNOWN_COLUMN",
                f"there is no {name} here",
                f"These rows have {' and '.join(self.window.columns)}; windows come with WINDOWING 30 SECONDS.",
            )
        form = self.grouping.canonical(node)
        for key_form, column in self.grouping.keys.items():  # a field of a key
            if form.startswith(f"{key_form}/"):
                path = form[len(key_form) + 1 :].split("/")
                return self.field(node, self.with_type(node, pl.col(column)), path)
        raise query_error(
            node,
            "NOT_GROUPED",
            f"{'.'.join(name_parts(node))!r} is neither grouped by nor aggregated",
            "Add it to GROUP BY, or aggregate it, as in MAX(...) or LAST(...).",
        )

    def _key(self, node: exp.Expr) -> TypedExpr | None:
        column = self.grouping.keys.get(self.grouping.canonical(node))
        return None if column is None else self.with_type(node, pl.col(column))
