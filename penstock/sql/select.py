"""Plan a query: from the tree of a SELECT to the calls of the stream API.

The order is SQL's: FROM and JOIN, WHERE (a filter for every condition that AND joins), GROUP BY, HAVING, ORDER BY
and LIMIT (the best rows of every window), the select list. Aggregates without a window are running totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.origin import here
from penstock.query import check
from penstock.query.limits import PlanSizes, check_time
from penstock.query.purity import expressions_of_sql
from penstock.query.stream import Stream
from penstock.sql.aggregates import is_aggregate
from penstock.sql.errors import check_clauses, errors_at, query_error
from penstock.sql.expressions import ExpressionCompiler, split_conjunction
from penstock.sql.grouping import GroupedCompiler, Grouping
from penstock.sql.joins import join_streams
from penstock.sql.order import Aliases, SelectItem, item_at, order_keys, rank_rows
from penstock.sql.relation import Relation, column_reference
from penstock.sql.scope import Scope
from penstock.sql.sources import Sources, check_event_time, union_all
from penstock.sql.statements import Select
from penstock.sql.windows import (
    RUNNING,
    WINDOW_COLUMNS,
    WindowSpec,
    is_window,
    read_windowing,
    window_of_call,
)

#: conditions of one WHERE: each is a step of the plan
MOST_CONDITIONS = 200
#: columns that a select list names; each is checked beside all others
MOST_COLUMNS = 2_000
_CLAUSES = (
    *("expressions", "from_", "joins", "where", "group", "having", "order", "sort", "limit", "windowing"),
    *("distinct", "with_"),
)


def plan_select(select: Select, scope: Scope) -> Stream:
    """The stream of a query's rows, with exactly the columns of its select list."""
    try:
        with expressions_of_sql(alone=not scope.functions):
            return _QueryPlanner(scope, {}, PlanSizes()).plan(select.tree)
    except RecursionError:
        raise UserError(
            "QUERY_TOO_DEEP", "the query is nested too deeply", hint="Make several jobs of it."
        ) from None


class _QueryPlanner:
    """Plans a SELECT, a UNION, or one in parentheses; `parts` are the queries that WITH names."""

    def __init__(self, scope: Scope, parts: Mapping[str, Stream], sizes: PlanSizes) -> None:
        self.scope = scope
        self.parts = parts
        self.sizes = sizes

    def plan(self, node: exp.Expr) -> Stream:
        """The rows of a query; raises PLAN_TOO_LARGE."""
        planned = self._plan(node)
        self.sizes.check(planned.node)
        return planned

    def _plan(self, node: exp.Expr) -> Stream:
        check_time()
        planner = self._with_parts(node)
        if isinstance(node, exp.Subquery):
            check_clauses(node, ("this", "with_"))
            return planner.plan(node.this)
        if isinstance(node, exp.Union):
            return planner._union(node)
        if isinstance(node, exp.Select):
            return _SelectPlanner(planner, node).plan()
        raise query_error(
            node, "UNSUPPORTED_SQL", f"{type(node).__name__.upper()} is not known", "Use SELECT."
        )

    def _with_parts(self, node: exp.Expr) -> _QueryPlanner:
        """A planner that knows the queries of this WITH too."""
        clause = node.args.get("with_")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise query_error(clause, "UNSUPPORTED_SQL", "WITH RECURSIVE is not known")
        planner = self
        for part in clause.expressions:
            with errors_at(part):
                planner = _QueryPlanner(
                    self.scope, {**planner.parts, part.alias: planner.plan(part.this)}, self.sizes
                )
        return planner

    def _union(self, node: exp.Union) -> Stream:
        check_clauses(node, ("this", "expression", "distinct", "with_"))
        parts: list[exp.Expr] = []
        rest: exp.Expr = node
        while isinstance(rest, exp.Union):
            if rest.args.get("distinct"):
                raise query_error(
                    rest.expression,
                    "UNSUPPORTED_SQL",
                    "UNION would compare all rows there ever were",
                    "UNION ALL.",
                )
            parts.insert(0, rest.expression)
            rest = rest.this
        return union_all(node, [self.plan(part) for part in (rest, *parts)])


class _SelectPlanner:
    """Plans one SELECT."""

    def __init__(self, planner: _QueryPlanner, node: exp.Select) -> None:
        self.scope = planner.scope
        self.node = node
        self.sources = Sources(planner.scope, planner.plan, planner.parts)

    def plan(self) -> Stream:
        check_clauses(self.node, _CLAUSES)
        relation = self._read()
        before = ExpressionCompiler(relation, self.scope)
        if (count := len(self.node.expressions)) > MOST_COLUMNS:
            raise query_error(
                self.node,
                "QUERY_TOO_LONG",
                f"there are {count:,} columns, and the limit is {MOST_COLUMNS:,}",
                "Make several jobs of it; * counts as one.",
            )
        items = list(self._items(relation))
        if not items:
            raise query_error(
                self.node, "BAD_SQL", "nothing is selected", "As in SELECT path, COUNT(*) FROM ...."
            )
        order = [*self._expressions_of("order"), *self._expressions_of("sort")]
        having, windowing, limit = (self.node.args.get(name) for name in ("having", "windowing", "limit"))
        expressions = [*(item.node for item in items), *order, *([having.this] if having else [])]
        clauses = (self.node.args.get(name) for name in ("group", "having", "distinct"))
        if any(clause is not None for clause in clauses) or any(map(_has_aggregate, expressions)):
            return self._plan_grouped(before, items, order)
        if windowing is not None or relation.window is not None:
            raise query_error(
                windowing or self.node,
                "BAD_WINDOW",
                "a window needs something that is computed in it",
                "Aggregate, as in COUNT(*) ... GROUP BY path, or SELECT DISTINCT.",
            )
        if order or limit is not None:
            raise query_error(
                limit or order[0],
                "UNSUPPORTED_SQL",
                "a stream of events has no end, so it has no first rows",
                "ORDER BY and LIMIT go with windows or totals: GROUP BY path ... WINDOWING 30 SECONDS.",
            )
        return _select_columns(before, items, relation.stream)

    # -- FROM and WHERE --------------------------------------------------------------------------

    def _read(self) -> Relation:
        source = self.node.args.get("from_")
        if source is None:
            raise query_error(self.node, "BAD_SQL", "FROM is missing", "As in SELECT COUNT(*) FROM clicks.")
        relation = self.sources.relation(source.this)
        for join in (*(source.this.args.get("joins") or ()), *(self.node.args.get("joins") or ())):
            relation = join_streams(self.sources, relation, join)
        where = self.node.args.get("where")
        return relation if where is None else self._filter(relation, where.this)

    def _filter(self, relation: Relation, condition: exp.Expr) -> Relation:
        compiler = ExpressionCompiler(relation, self.scope)
        conditions = list(split_conjunction(condition))
        if len(conditions) > MOST_CONDITIONS:
            raise query_error(
                condition,
                "QUERY_TOO_DEEP",
                f"there are {len(conditions)} conditions",
                "IN takes many values.",
            )
        stream = relation.stream
        for part in conditions:
            with errors_at(part):
                stream = stream.filter(compiler.condition(part))
        return replace(relation, stream=stream)

    # -- the select list -------------------------------------------------------------------------

    def _items(self, relation: Relation) -> Iterator[SelectItem]:
        for node in self.node.expressions:
            if isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star):
                yield from self._all_columns(relation, node)
            elif isinstance(node, exp.Alias):
                yield SelectItem(node.alias, node.this)
            elif isinstance(node, exp.Column | exp.Dot):
                yield SelectItem(node.output_name, node)
            else:
                yield SelectItem(_column_title(node), node)

    def _all_columns(self, relation: Relation, node: exp.Expr) -> Iterator[SelectItem]:
        if any(node.args.get(name) for name in ("except_", "replace", "rename")):
            raise query_error(node, "UNSUPPORTED_SQL", "* stands for all columns", "Name those you want.")
        qualifier = node.text("table") if isinstance(node, exp.Column) else None
        fields = relation.fields_of(qualifier) if qualifier else relation.fields
        if not fields:
            raise query_error(node, "UNKNOWN_STREAM", f"{qualifier!r} is not in FROM")
        if self.node.args.get("group") is not None:
            raise query_error(node, "NOT_GROUPED", "* cannot be grouped", "Name the columns you group by.")
        for column in dict.fromkeys(field.column for field in fields):
            yield SelectItem(column, column_reference(column))

    def _expressions_of(self, clause: str) -> list[exp.Expr]:
        node = self.node.args.get(clause)
        return [] if node is None else list(node.expressions)

    # -- aggregates ------------------------------------------------------------------------------

    def _plan_grouped(
        self, before: ExpressionCompiler, items: Sequence[SelectItem], order: Sequence[exp.Expr]
    ) -> Stream:
        grouping, window = Grouping(before), self._window(before) or RUNNING
        group = self.node.args.get("group")
        if group is not None:
            check_clauses(group, ("expressions",))
        for node in self._expressions_of("group"):
            self._add_key(grouping, node, items)
        if self.node.args.get("distinct") is not None:
            self._add_distinct(grouping, items, grouped=group is not None)
        aliases = Aliases(before.relation, items, self.node.expressions)
        ordered = [aliases.resolve_order(node) for node in order]
        having = self.node.args.get("having")
        conditions = (
            [] if having is None else [aliases.resolve(part) for part in split_conjunction(having.this)]
        )
        for node in (*(item.node for item in items), *ordered, *conditions):
            grouping.add_aggregates(node)
        keys = order_keys(grouping, ordered)
        stream = grouping.build(window, group or self.node, keys)
        after = GroupedCompiler(stream, grouping, window, self.scope)
        for part in conditions:
            with errors_at(part):
                stream = stream.filter(after.condition(part))
        stream = rank_rows(stream, after, keys, ordered, self.node.args.get("limit"))
        return _select_columns(after, items, stream)

    def _window(self, before: ExpressionCompiler) -> WindowSpec | None:
        """The window of the query, which WINDOWING, FROM or GROUP BY declares."""
        windows: list[tuple[exp.Expr, WindowSpec]] = []
        if (windowing := self.node.args.get("windowing")) is not None:
            windows.append((windowing, read_windowing(windowing, before.literal_value)))
        if before.relation.window is not None:
            windows.append((self.node.args["from_"], before.relation.window))
        for node in self._expressions_of("group"):
            if is_window(node):
                if not node.expressions:
                    raise query_error(node, "BAD_WINDOW", f"{node.name} needs a time and a length")
                check_event_time(before.relation, node.expressions[0])
                windows.append((node, window_of_call(node, node.expressions[1:], before.literal_value)))
        if len(windows) > 1:
            raise query_error(
                windows[0][0], "BAD_WINDOW", "a query has one kind of window", "Leave one of them out."
            )
        return windows[0][1] if windows else None

    def _add_key(self, grouping: Grouping, node: exp.Expr, items: Sequence[SelectItem]) -> None:
        """Group by an item of GROUP BY: a column, an alias, a position in the select list or an expression."""
        relation = grouping.before.relation
        if is_window(node):
            return
        if isinstance(node, exp.Column) and len(node.parts) <= 2:
            own = relation.window is None and relation.has(node.name)
            if node.name.lower() in WINDOW_COLUMNS and not own:
                return
            aliased = [item.node for item in items if item.name.lower() == node.name.lower()]
            if len(node.parts) == 1 and not relation.has(node.name) and len(aliased) == 1:
                node = aliased[0]
        elif isinstance(node, exp.Literal):
            node = item_at(node, items)
        grouping.add_key(node)

    def _add_distinct(self, grouping: Grouping, items: Sequence[SelectItem], *, grouped: bool) -> None:
        """SELECT DISTINCT: group the rows of a window by the whole select list."""
        windowed = self.node.args.get("windowing") is not None or grouping.before.relation.window is not None
        if grouped:
            if set(grouping.keys) <= {grouping.canonical(item.node) for item in items}:
                return
        elif windowed and not any(_has_aggregate(item.node) for item in items):
            for item in items:
                if item.name.lower() not in WINDOW_COLUMNS:
                    grouping.add_key(item.node)
            return
        raise query_error(
            self.node.args["distinct"],
            "WINDOW_UNBOUNDED",
            "DISTINCT needs a window: all rows there ever were cannot be remembered",
            "As in SELECT DISTINCT path FROM clicks WINDOWING 30 SECONDS.",
        )


def _select_columns(compiler: ExpressionCompiler, items: Sequence[SelectItem], stream: Stream) -> Stream:
    """The columns of the select list, and no others."""
    columns: dict[str, pl.Expr] = {}
    for item in items:
        compiled = compiler.compile(item.node)
        with errors_at(item.node):
            if item.name in columns:
                raise UserError(
                    "NAME_TAKEN",
                    f"two columns would be called {item.name!r}",
                    hint=f"Give one of them another name, as in {item.name} AS other.",
                )
            check.names_free([item.name], here())
        if compiled.dtype == pl.Null:
            raise query_error(item.node, "TYPE_MISMATCH", "NULL has no type", "As in CAST(NULL AS STRING).")
        columns[item.name] = compiled.expr
    with errors_at(items[0].node):
        if list(columns) == stream.columns and all(_is_column(expr, name) for name, expr in columns.items()):
            return stream
        return stream.select(**columns)


def _is_column(expr: pl.Expr, name: str) -> bool:
    return expr.meta.is_column() and expr.meta.root_names() == [name]


def _has_aggregate(node: exp.Expr) -> bool:
    return any(is_aggregate(part) for part in node.walk())


def _column_title(node: exp.Expr) -> str:
    """The name of a column without an alias: its expression as written."""
    return node.sql("spark", normalize_functions="lower", comments=False)
