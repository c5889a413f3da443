"""ORDER BY and LIMIT: the best rows of every window, or of the totals; and the names of the select list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.errors import errors_at, query_error
from penstock.sql.grouping import GroupedCompiler, Grouping
from penstock.sql.relation import Relation
from penstock.sql.statements import parse_number

#: more rows than a window has
_ALL = 2**62
_ORDER_COLUMN = "order"


@dataclass(frozen=True)
class SelectItem:
    """An item of the select list: the name of the column and its expression."""

    name: str
    node: exp.Expr


class Aliases:
    """Resolves the aliases of a select list in other clauses."""

    def __init__(self, relation: Relation, items: Sequence[SelectItem], written: Sequence[exp.Expr]) -> None:
        self.relation = relation
        self.items = items
        given = {node.alias.lower() for node in written if isinstance(node, exp.Alias)}
        self.known = {item.name.lower(): item.node for item in items if item.name.lower() in given}

    def resolve_order(self, node: exp.Expr) -> exp.Expr:
        """An item of ORDER BY, which is a position in the select list, an alias or an expression."""
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            inner = item_at(inner, self.items)
        else:
            inner = self.resolve(inner, aliases_first=True)
        resolved = exp.Ordered(**{**node.args, "this": inner.copy()})
        resolved.parent = node.parent
        return resolved

    def resolve(self, node: exp.Expr, *, aliases_first: bool = False) -> exp.Expr:
        """An expression with aliases replaced by what they stand for; columns win unless `aliases_first`."""

        def replace(part: exp.Expr) -> exp.Expr:
            plain = isinstance(part, exp.Column) and len(part.parts) == 1
            if not plain or part.name.lower() not in self.known:
                return part
            is_column = self.relation.has(part.name) and not aliases_first
            return part if is_column else exp.Paren(this=self.known[part.name.lower()].copy())

        return node.transform(replace)


def item_at(node: exp.Literal, items: Sequence[SelectItem]) -> exp.Expr:
    """The expression at a position of the select list."""
    text = str(node.this)
    if node.is_string or not text.isdigit() or not 1 <= parse_number(text) <= len(items):
        raise query_error(
            node,
            "BAD_SQL",
            f"{text} is no position in the select list",
            f"Positions go from 1 to {len(items)}.",
        )
    return items[int(text) - 1].node


def order_keys(grouping: Grouping, ordered: Sequence[exp.Expr]) -> list[str]:
    """The key columns, first those by which ORDER BY breaks ties."""
    ties = [grouping.keys.get(grouping.canonical(node.this)) for node in ordered[1:]]
    for node, key in zip(ordered[1:], ties, strict=True):
        if key is None or node.args.get("desc"):
            raise query_error(
                node,
                "UNSUPPORTED_SQL",
                "rows that are equal by the first expression can be ordered by columns of GROUP BY, ascending",
                "Leave it out, or make one expression of both.",
            )
    return list(dict.fromkeys([*(key for key in ties if key is not None), *grouping.keys.values()]))


def rank_rows(
    stream: Stream,
    after: GroupedCompiler,
    keys: Sequence[str],
    ordered: Sequence[exp.Expr],
    limit: exp.Expr | None,
) -> Stream:
    """The best rows of every window; all of them, in order, if there is no limit."""
    if not ordered and (limit is None or not keys):
        return stream
    clause = limit if limit is not None else ordered[0]
    if after.window.kind in ("count", "session"):
        raise query_error(
            clause,
            "UNSUPPORTED_SQL",
            "windows of events end for every key at another time, so there is nothing to compare them with",
            "ORDER BY and LIMIT go with windows of time, as in WINDOWING 30 SECONDS.",
        )
    if limit is None and after.window.kind == "running":
        raise query_error(
            clause,
            "UNSUPPORTED_SQL",
            "totals that change one by one are in no order",
            "Add LIMIT for the best of them, or a window: WINDOWING 30 SECONDS.",
        )
    k = _ALL if limit is None else _row_count(after, limit)
    by, least = keys[0] if keys else "", True
    if ordered:
        least = not ordered[0].args.get("desc")
        if ordered[0].args.get("nulls_first"):
            raise query_error(ordered[0], "UNSUPPORTED_SQL", "nulls come last", "Leave NULLS FIRST out.")
        rank = after.compile(ordered[0].this).expr
        if rank.meta.is_column():
            by = rank.meta.root_names()[0]
        else:
            by = _ORDER_COLUMN
            while by in stream.columns:
                by += "'"
            with errors_at(ordered[0]):
                stream = stream.map(**{by: rank})
    with errors_at(clause):
        return stream.top(k, by, least=least, changes_only=False)


def _row_count(after: GroupedCompiler, limit: exp.Expr) -> int:
    count = after.literal_value(limit.expression)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise query_error(limit, "BAD_TOP", f"{count!r} is no number of rows", "As in LIMIT 10.")
    return count
