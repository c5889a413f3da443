"""Queries that aggregate: their keys, their aggregates, and expressions over both.

Receives the parts of a SELECT; hands the rows of the aggregate, and `Grouped`, which turns expressions over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from penstock.operators import functions
from penstock.query.stream import Stream
from penstock.sql.aggregates import AGGREGATES, Collected, asked_for, is_aggregate
from penstock.sql.expressions import Expressions
from penstock.sql.functions import Argument
from penstock.sql.places import located, refused
from penstock.sql.relation import Relation, parts_of
from penstock.sql.scope import Scope
from penstock.sql.windows import EDGES, WINDOW_COLUMNS, Cut

#: columns that aggregates and rankings make; a key of such a name gets another
_MADE = ("window_start", "window_end", "as_of", "rank")


class Grouping:
    """Collects what a query groups by and aggregates, then makes the rows of it."""

    def __init__(self, before: Expressions) -> None:
        self.before = before
        self.found = Collected(before.relation.stream.node.schema)
        self.by_look: dict[str, str] = {}
        self.answers: dict[str, pl.Expr] = {}

    def add_key(self, node: exp.Expr) -> str:
        """Group by an expression; hands the column that holds it."""
        with located(node):
            made = self.before.of(node)
            column = self.found.column(made.expr, taken=_MADE)
            self.by_look[self.look(node)] = column
            return column

    def add_aggregates(self, node: exp.Expr) -> None:
        """Compute the aggregates in an expression."""
        if not is_aggregate(node):
            for child in node.iter_expressions():
                self.add_aggregates(child)
        elif (look := self.look(node)) not in self.answers:
            asked = asked_for(node, self.before.of, self.before.condition)
            with located(node):
                self.answers[look] = AGGREGATES[asked.name][2](self.found, asked)

    def rows(self, cut: Cut, node: exp.Expr, keys: Sequence[str]) -> Stream:
        """The rows of the aggregates, in windows."""
        stream = self.before.relation.stream
        with located(node):
            if self.found.columns:
                stream = stream.map(**self.found.columns)
            if not self.found.functions:
                self.found.base(functions.count, None)
            windowed = cut.windowed(stream.key_by(*keys))
            return windowed.aggregate(*self.found.functions.values())

    def look(self, node: exp.Expr) -> str:
        """How an expression looks: equal for expressions that mean the same column by different names."""
        if isinstance(node, exp.Paren):
            return self.look(node.this)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            if (name := parts_of(node)[-1].lower()) in _MADE and not self.before.relation.has(name):
                return f"@{name}"
            column, path = self.before.relation.find(node)
            return "/".join([column, *path])
        parts = []
        for name, part in node.args.items():
            several = part if isinstance(part, list) else [part]
            parts += [self._looks(node, name, one) for one in several if one is not None and one is not False]
        return f"{type(node).__name__}({','.join(parts)})"

    def _looks(self, node: exp.Expr, name: str, part: object) -> str:
        if isinstance(part, exp.Expr):
            return self.look(part)
        is_name = name == "this" and isinstance(node, exp.Anonymous | exp.Var)
        return str(part).lower() if is_name else repr(part)


class Grouped(Expressions):
    """Turns expressions over the rows of an aggregate."""

    def __init__(self, rows: Stream, grouping: Grouping, cut: Cut, scope: Scope) -> None:
        super().__init__(Relation.of(rows, None), scope)
        self.grouping = grouping
        self.cut = cut

    def of(self, node: exp.Expr) -> Argument:
        if is_aggregate(node):
            return self.typed(node, self.grouping.answers[self.grouping.look(node)])
        if isinstance(node, exp.Anonymous) and node.name.lower() in EDGES:
            return self._made(node, EDGES[node.name.lower()])
        if isinstance(node, exp.Column):
            return self.column(node)
        if self.grouping.by_look and (column := self._key(node)) is not None:
            return self._made(node, column)
        return super().of(node)

    def column(self, node: exp.Expr) -> Argument:
        column, name = self._key(node), parts_of(node)[-1].lower()
        if column is not None:
            return self._made(node, column)
        if name in self.cut.columns and len(parts_of(node)) <= 2:
            return self._made(node, name)
        if name in (*WINDOW_COLUMNS, "as_of") and not self.grouping.before.relation.has(name):
            raise refused(
                node,
                "UNKNOWN_COLUMN",
                f"there is no {name} here",
                f"These rows have {' and '.join(self.cut.columns)}; windows come with WINDOWING 30 SECONDS.",
            )
        for look, column in self.grouping.by_look.items():  # a field of a key
            if (whole := self.grouping.look(node)).startswith(f"{look}/"):
                return self.fields(node, self._made(node, column), whole[len(look) + 1 :].split("/"))
        raise refused(
            node,
            "NOT_GROUPED",
            f"{'.'.join(parts_of(node))!r} is neither grouped by nor aggregated",
            "Add it to GROUP BY, or aggregate it, as in MAX(...) or LAST(...).",
        )

    def _key(self, node: exp.Expr) -> str | None:
        return self.grouping.by_look.get(self.grouping.look(node))

    def _made(self, node: exp.Expr, column: str) -> Argument:
        return self.typed(node, pl.col(column))
