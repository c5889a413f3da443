"""Queries to streams: from the tree of a SELECT to the calls of the stream API.

Receives a `Select` and the names around it; hands the `Stream` whose columns are exactly those of the select list.

The order is SQL's: FROM and JOIN, WHERE (a filter for every condition that AND joins), GROUP BY, HAVING, ORDER BY
and LIMIT (the best of every window), the select list. Aggregates without a window are totals since the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.origin import here
from penstock.query import check
from penstock.query.stream import Stream
from penstock.sql.aggregates import is_aggregate
from penstock.sql.expressions import Expressions, split
from penstock.sql.grouped import Grouped, Grouping
from penstock.sql.joins import joined
from penstock.sql.order import Aliases, Item, at_place, keys_in_order, ranked
from penstock.sql.places import located, refused
from penstock.sql.relation import Relation, named
from penstock.sql.scope import Scope
from penstock.sql.sources import Sources, check_time, united
from penstock.sql.statements import Select
from penstock.sql.windows import RUNNING, WINDOW_COLUMNS, Cut, cut_of, cut_of_call, is_window

#: conditions of one WHERE: each is a step of the plan
MOST_CONDITIONS = 200
_KNOWN = {
    *("expressions", "from_", "joins", "where", "group", "having", "order", "sort", "limit", "windowing"),
    *("distinct", "with_"),
}


def planned(select: Select, scope: Scope) -> Stream:
    """The rows of a query."""
    try:
        return _Planner(scope, {}).query(select.tree)
    except RecursionError:
        raise UserError(
            "QUERY_TOO_DEEP", "the query is nested too deeply", hint="Make several jobs of it."
        ) from None


class _Planner:
    def __init__(self, scope: Scope, parts: Mapping[str, Stream]) -> None:
        self.scope = scope
        self.parts = parts

    def query(self, node: exp.Expr) -> Stream:
        """The rows of a SELECT, a union, or one in parentheses."""
        inner = self._with(node)
        if isinstance(node, exp.Subquery):
            _only(node, {"this", "with_"})
            return inner.query(node.this)
        if isinstance(node, exp.Union):
            return inner._union(node)
        if isinstance(node, exp.Select):
            return _Selecting(inner, node).rows()
        raise refused(node, "UNSUPPORTED_SQL", f"{type(node).__name__.upper()} is not known", "Use SELECT.")

    def _with(self, node: exp.Expr) -> _Planner:
        """Where the parts that a WITH names are known."""
        given = node.args.get("with_")
        if given is None:
            return self
        if given.args.get("recursive"):
            raise refused(given, "UNSUPPORTED_SQL", "WITH RECURSIVE is not known")
        planner = self
        for part in given.expressions:
            with located(part):
                planner = _Planner(self.scope, {**planner.parts, part.alias: planner.query(part.this)})
        return planner

    def _union(self, node: exp.Union) -> Stream:
        _only(node, {"this", "expression", "distinct", "with_"})
        parts: list[exp.Expr] = []
        rest: exp.Expr = node
        while isinstance(rest, exp.Union):
            if rest.args.get("distinct"):
                raise refused(
                    rest.expression,
                    "UNSUPPORTED_SQL",
                    "UNION would compare all rows there ever were",
                    "UNION ALL.",
                )
            parts.insert(0, rest.expression)
            rest = rest.this
        return united(node, [self.query(part) for part in (rest, *parts)])


class _Selecting:
    """One SELECT on its way."""

    def __init__(self, planner: _Planner, node: exp.Select) -> None:
        self.planner = planner
        self.scope = planner.scope
        self.node = node
        self.sources = Sources(planner.scope, planner.query, planner.parts)

    def rows(self) -> Stream:
        _only(self.node, _KNOWN)
        relation = self._read()
        before = Expressions(relation, self.scope)
        items = list(self._items(before))
        if not items:
            raise refused(
                self.node, "BAD_SQL", "nothing is selected", "As in SELECT path, COUNT(*) FROM ...."
            )
        order = [*self._clause("order"), *self._clause("sort")]
        group = self.node.args.get("group")
        having = self.node.args.get("having")
        everything = [item.node for item in items] + order + ([having.this] if having is not None else [])
        distinct = self.node.args.get("distinct") is not None
        if group is not None or having is not None or distinct or any(map(_aggregates, everything)):
            return self._grouped(before, items, order)
        if self.node.args.get("windowing") is not None or relation.cut is not None:
            raise refused(
                self.node.args.get("windowing") or self.node,
                "BAD_WINDOW",
                "a window needs something that is computed in it",
                "Aggregate, as in COUNT(*) ... GROUP BY path, or SELECT DISTINCT.",
            )
        if order or self.node.args.get("limit") is not None:
            raise refused(
                self.node.args.get("limit") or order[0],
                "UNSUPPORTED_SQL",
                "a stream of events has no end, so it has no first rows",
                "ORDER BY and LIMIT go with windows or totals: GROUP BY path ... WINDOWING 30 SECONDS.",
            )
        return _selected(before, items, relation.stream)

    # -- FROM and WHERE --------------------------------------------------------------------------

    def _read(self) -> Relation:
        source = self.node.args.get("from_")
        if source is None:
            raise refused(self.node, "BAD_SQL", "FROM is missing", "As in SELECT COUNT(*) FROM clicks.")
        relation = self.sources.table(source.this)
        for join in (*(source.this.args.get("joins") or ()), *(self.node.args.get("joins") or ())):
            relation = joined(self.sources, relation, join)
        where = self.node.args.get("where")
        if where is not None:
            relation = self._filtered(relation, where.this)
        return relation

    def _filtered(self, relation: Relation, condition: exp.Expr) -> Relation:
        expressions = Expressions(relation, self.scope)
        conjuncts = list(split(condition))
        if len(conjuncts) > MOST_CONDITIONS:
            raise refused(
                condition, "QUERY_TOO_DEEP", f"there are {len(conjuncts)} conditions", "IN takes many values."
            )
        stream = relation.stream
        for part in conjuncts:
            with located(part):
                stream = stream.filter(expressions.condition(part))
        return Relation(stream, relation.fields, relation.cut)

    # -- the select list -------------------------------------------------------------------------

    def _items(self, before: Expressions) -> Iterator[Item]:
        for node in self.node.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                yield from self._all_columns(before.relation, node)
            elif isinstance(node, exp.Alias):
                yield Item(node.alias, node.this)
            elif isinstance(node, exp.Column | exp.Dot):
                yield Item(node.name if isinstance(node, exp.Column) else node.expression.name, node)
            else:
                yield Item(_title(node), node)

    def _all_columns(self, relation: Relation, node: exp.Expr) -> Iterator[Item]:
        if any(node.args.get(name) for name in ("except_", "replace", "rename")):
            raise refused(node, "UNSUPPORTED_SQL", "* stands for all columns", "Name those you want.")
        qualifier = node.text("table") if isinstance(node, exp.Column) else None
        fields = relation.fields if not qualifier else tuple(relation.of_qualifier(qualifier))
        if not fields:
            raise refused(node, "UNKNOWN_STREAM", f"{qualifier!r} is not in FROM")
        if self.node.args.get("group") is not None:
            raise refused(node, "NOT_GROUPED", "* cannot be grouped", "Name the columns you group by.")
        for column in dict.fromkeys(field.column for field in fields):
            yield Item(column, named(column))

    def _clause(self, name: str) -> list[exp.Expr]:
        found = self.node.args.get(name)
        return [] if found is None else list(found.expressions)

    # -- aggregates ------------------------------------------------------------------------------

    def _grouped(self, before: Expressions, items: Sequence[Item], order: Sequence[exp.Expr]) -> Stream:
        grouping, cut = Grouping(before), self._cut(before)
        group = self.node.args.get("group")
        if group is not None:
            _only(group, {"expressions"})
        for node in self._clause("group"):
            self._add_key(grouping, node, items)
        if self.node.args.get("distinct") is not None:
            self._distinct(grouping, items, grouped=group is not None)
        aliases = Aliases(before.relation, items, self.node.expressions)
        ordered = [aliases.ordered(node) for node in order]
        having = self.node.args.get("having")
        conditions = [] if having is None else [aliases.within(part) for part in split(having.this)]
        for node in (*(item.node for item in items), *ordered, *conditions):
            grouping.add_aggregates(node)
        keys = keys_in_order(grouping, ordered)
        stream = grouping.rows(cut or RUNNING, group or self.node, keys)
        after = Grouped(stream, grouping, cut or RUNNING, self.scope)
        for part in conditions:
            with located(part):
                stream = stream.filter(after.condition(part))
        stream = ranked(stream, after, keys, ordered, self.node.args.get("limit"))
        return _selected(after, items, stream)

    def _cut(self, before: Expressions) -> Cut | None:
        """How the query is cut into windows; it may say so in one way."""
        found: list[tuple[exp.Expr, Cut]] = []
        if (windowing := self.node.args.get("windowing")) is not None:
            found.append((windowing, cut_of(windowing, before.value)))
        if before.relation.cut is not None:
            found.append((self.node.args["from_"], before.relation.cut))
        for node in self._clause("group"):
            if is_window(node):
                if not node.expressions:
                    raise refused(node, "BAD_WINDOW", f"{node.name} needs a time and a length")
                check_time(before.relation, node.expressions[0])
                found.append((node, cut_of_call(node, node.expressions[1:], before.value)))
        if len(found) > 1:
            raise refused(
                found[0][0], "BAD_WINDOW", "a query has one kind of window", "Leave one of them out."
            )
        return found[0][1] if found else None

    def _add_key(self, grouping: Grouping, node: exp.Expr, items: Sequence[Item]) -> None:
        relation = grouping.before.relation
        if is_window(node):
            return
        if isinstance(node, exp.Column) and len(node.parts) <= 2:
            own = relation.cut is None and relation.has(node.name)
            if node.name.lower() in WINDOW_COLUMNS and not own:
                return
            chosen = [item.node for item in items if item.name.lower() == node.name.lower()]
            if len(node.parts) == 1 and not relation.has(node.name) and len(chosen) == 1:
                node = chosen[0]
        elif isinstance(node, exp.Literal):
            node = at_place(node, items)
        grouping.add_key(node)

    def _distinct(self, grouping: Grouping, items: Sequence[Item], *, grouped: bool) -> None:
        """Equal rows of a window once: by grouping by all of the select list."""
        windowed = self.node.args.get("windowing") is not None or grouping.before.relation.cut is not None
        if grouped:
            looks = {grouping.look(item.node) for item in items}
            if set(grouping.by_look) <= looks:
                return
        elif windowed and not any(_aggregates(item.node) for item in items):
            for item in items:
                if item.name.lower() not in WINDOW_COLUMNS:
                    grouping.add_key(item.node)
            return
        raise refused(
            self.node.args["distinct"],
            "WINDOW_UNBOUNDED",
            "different rows must be those of a window: all there ever were cannot be remembered",
            "As in SELECT DISTINCT path FROM clicks WINDOWING 30 SECONDS.",
        )


def _selected(expressions: Expressions, items: Sequence[Item], stream: Stream) -> Stream:
    """The columns of the select list, and no others."""
    columns: dict[str, pl.Expr] = {}
    for item in items:
        made = expressions.of(item.node)
        with located(item.node):
            if item.name in columns:
                raise UserError(
                    "NAME_TAKEN",
                    f"two columns would be called {item.name!r}",
                    hint=f"Give one of them another name, as in {item.name} AS other.",
                )
            check.names_free([item.name], here())
        if made.dtype == pl.Null:
            raise refused(item.node, "TYPE_MISMATCH", "NULL has no type", "As in CAST(NULL AS STRING).")
        columns[item.name] = made.expr
    with located(items[0].node):
        if list(columns) == stream.columns and all(_is_column(expr, name) for name, expr in columns.items()):
            return stream
        return stream.select(**columns)


def _is_column(expr: pl.Expr, name: str) -> bool:
    return expr.meta.is_column() and expr.meta.root_names() == [name]


def _aggregates(node: exp.Expr) -> bool:
    """Whether there is an aggregate in an expression."""
    return any(is_aggregate(part) for part in node.walk())


def _title(node: exp.Expr) -> str:
    """What a column is called that has no name: the way it is written."""
    return node.sql("spark", normalize_functions="lower", comments=False)


def _only(node: exp.Expr, known: set[str]) -> None:
    """Raise for clauses that are not known."""
    for name, part in node.args.items():
        if part and name not in known:
            hint = "The best of every window: ORDER BY n DESC LIMIT 10." if name == "offset" else None
            clause = name.rstrip("_").upper()
            place = part if isinstance(part, exp.Expr) else node
            raise refused(place, "UNSUPPORTED_SQL", f"{clause} is not part of the language here", hint)
