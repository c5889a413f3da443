"""ORDER BY and LIMIT: the best rows of every window, or of the totals. And what short names stand for.

Receives the rows of an aggregate and the parts of a SELECT that order them; hands the rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.grouped import Grouped, Grouping
from penstock.sql.places import located, refused
from penstock.sql.relation import Relation

#: more rows than a window has
_ALL = 2**62
_BY = "order"


@dataclass(frozen=True)
class Item:
    """One of the select list: the name of the column and what is in it."""

    name: str
    node: exp.Expr


class Aliases:
    """What the names that a select list gives stand for."""

    def __init__(self, relation: Relation, items: Sequence[Item], written: Sequence[exp.Expr]) -> None:
        self.relation = relation
        self.items = items
        given = {node.alias.lower() for node in written if isinstance(node, exp.Alias)}
        self.known = {item.name.lower(): item.node for item in items if item.name.lower() in given}

    def ordered(self, node: exp.Expr) -> exp.Expr:
        """What ORDER BY names: a place in the select list, one of its names, or an expression."""
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            inner = at_place(inner, self.items)
        else:
            inner = self.within(inner, first=True)
        made = exp.Ordered(**{**node.args, "this": inner.copy()})
        made.parent = node.parent
        return made

    def within(self, node: exp.Expr, *, first: bool = False) -> exp.Expr:
        """An expression with names replaced by what they stand for; columns go before them unless `first`."""

        def replaced(part: exp.Expr) -> exp.Expr:
            plain = isinstance(part, exp.Column) and len(part.parts) == 1
            if not plain or part.name.lower() not in self.known:
                return part
            stays = self.relation.has(part.name) and not first
            return part if stays else exp.Paren(this=self.known[part.name.lower()].copy())

        return node.transform(replaced)


def at_place(node: exp.Literal, items: Sequence[Item]) -> exp.Expr:
    """What stands at a place of the select list."""
    text = str(node.this)
    if node.is_string or not text.isdigit() or not 1 <= int(text) <= len(items):
        raise refused(
            node, "BAD_SQL", f"{text} is no place in the select list", f"Places go from 1 to {len(items)}."
        )
    return items[int(text) - 1].node


def keys_in_order(grouping: Grouping, ordered: Sequence[exp.Expr]) -> list[str]:
    """The keys, those first by which ties are to be ordered."""
    ties = [grouping.by_look.get(grouping.look(node.this)) for node in ordered[1:]]
    for node, key in zip(ordered[1:], ties, strict=True):
        if key is None or node.args.get("desc"):
            raise refused(
                node,
                "UNSUPPORTED_SQL",
                "rows that are equal by the first expression can be ordered by columns of GROUP BY, ascending",
                "Leave it out, or make one expression of both.",
            )
    return list(dict.fromkeys([*(key for key in ties if key is not None), *grouping.by_look.values()]))


def ranked(
    stream: Stream,
    after: Grouped,
    keys: Sequence[str],
    ordered: Sequence[exp.Expr],
    limit: exp.Expr | None,
) -> Stream:
    """The best rows of every window; all of them, in order, if there is no limit."""
    if not ordered and (limit is None or not keys):
        return stream
    clause = limit if limit is not None else ordered[0]
    if after.cut.kind in ("count", "session"):
        raise refused(
            clause,
            "UNSUPPORTED_SQL",
            "windows of events end for every key at another time, so there is nothing to compare them with",
            "ORDER BY and LIMIT go with windows of time, as in WINDOWING 30 SECONDS.",
        )
    if limit is None and after.cut.kind == "running":
        raise refused(
            clause,
            "UNSUPPORTED_SQL",
            "totals that change one by one are in no order",
            "Add LIMIT for the best of them, or a window: WINDOWING 30 SECONDS.",
        )
    k = _ALL if limit is None else _count(after, limit)
    by, least = keys[0] if keys else "", True
    if ordered:
        least = not ordered[0].args.get("desc")
        if ordered[0].args.get("nulls_first"):
            raise refused(ordered[0], "UNSUPPORTED_SQL", "nulls come last", "Leave NULLS FIRST out.")
        made = after.of(ordered[0].this)
        if made.expr.meta.is_column():
            by = made.expr.meta.root_names()[0]
        else:
            by = _BY
            while by in stream.columns:
                by += "'"
            with located(ordered[0]):
                stream = stream.map(**{by: made.expr})
    with located(clause):
        return stream.top(k, by, least=least, changes_only=False)


def _count(after: Grouped, limit: exp.Expr) -> int:
    given = after.value(limit.expression)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise refused(limit, "BAD_TOP", f"{given!r} is no number of rows", "As in LIMIT 10.")
    return given
