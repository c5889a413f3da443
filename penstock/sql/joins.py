"""JOIN: two streams, or a stream and the latest rows of another.

Conditions that equate a left and a right expression are the keys; the others are evaluated for every pair.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field
from typing import Literal

import polars as pl
from sqlglot import exp

from penstock.duration import spelled
from penstock.query.joins import How
from penstock.query.stream import Stream
from penstock.sql.coercion import coerce
from penstock.sql.errors import errors_at, query_error
from penstock.sql.expressions import ExpressionCompiler, split_conjunction
from penstock.sql.relation import Relation
from penstock.sql.sources import Sources, is_previous, rename_columns
from penstock.sql.windows import LiteralValue, read_within

_SIDES: dict[str, How] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass
class _Side:
    """A joined stream, its key columns, and those that must be computed for them."""

    name: str
    stream: Stream
    keys: list[str]
    computed: dict[str, pl.Expr] = field(default_factory=dict)

    def add_key(self, expr: pl.Expr, taken: set[str]) -> None:
        """Add a key; the names of computed columns are in state on disk."""
        if expr.meta.is_column():
            self.keys.append(expr.meta.root_names()[0])
            return
        name = f"{self.name} key {len(self.computed) + 1}"
        while name in taken:
            name += "'"
        self.computed[name] = expr
        self.keys.append(name)

    def with_keys(self) -> Stream:
        """The stream with the computed columns."""
        return self.stream.map(**self.computed) if self.computed else self.stream


@dataclass
class _Pair:
    """Both sides of a join, and the conditions that are no keys."""

    left: _Side
    right: _Side
    others: list[pl.Expr] = field(default_factory=list)

    def columns(self) -> set[str]:
        return {*self.left.stream.columns, *self.right.stream.columns}

    def where(self) -> pl.Expr | None:
        return functools.reduce(operator.and_, self.others) if self.others else None


def join_streams(sources: Sources, left: Relation, node: exp.Join) -> Relation:
    """The rows so far, joined with another stream."""
    side, kind = node.args.get("side") or "", node.args.get("kind") or ""
    if node.args.get("method") or kind not in ("", "INNER", "OUTER", "CROSS") or side not in _SIDES:
        raise query_error(
            node, "UNSUPPORTED_SQL", "there is no such join", "Known are JOIN, LEFT, RIGHT and FULL JOIN."
        )
    latest = _latest(node.this)
    right = sources.relation(node.this if latest is None else latest)
    if left.window is not None or right.window is not None:
        raise query_error(node, "BAD_WINDOW", "windows come after joins", "Join first, and use WINDOWING.")
    using = [exp.column(part.name) for part in node.args.get("using") or ()]
    same = {right.resolve(column)[0]: left.resolve(column)[0] for column in using}
    with errors_at(node):
        right = rename_columns(right, set(left.stream.columns), same)
    keys = list(same.values())
    pair = _Pair(_Side("left", left.stream, [*keys]), _Side("right", right.stream, keys))
    both = Relation(left.stream, (*left.fields, *right.fields))
    schema = {**left.stream.node.schema, **right.stream.node.schema}
    if node.args.get("on") is not None:
        _add_conditions(pair, node.args["on"], ExpressionCompiler(both, sources.scope, schema))
    with errors_at(node):
        if latest is not None:
            stream = _lookup_join(node, pair, _SIDES[side])
        else:
            value_of = ExpressionCompiler(left, sources.scope).literal_value
            stream = _interval_join(node, pair, value_of, _SIDES[side])
    return Relation(stream, both.fields)


def _latest(node: exp.Expr) -> exp.Expr | None:
    """The stream in `LATEST(stream)`, under the alias of the whole."""
    call = node.this if isinstance(node, exp.Table) else None
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "latest":
        return None
    alias = node.args.get("alias")
    if len(call.expressions) == 1:
        (named,) = call.expressions
        if is_previous(named):
            return exp.Table(this=named.copy(), alias=alias)
        if isinstance(named, exp.Column | exp.Table):
            return exp.Table(this=named.this.copy(), alias=alias)
    raise query_error(
        node, "BAD_JOIN", "LATEST takes the name of a stream or job", "As in JOIN LATEST(users) ON ...."
    )


def _add_conditions(pair: _Pair, condition: exp.Expr, compiler: ExpressionCompiler) -> None:
    """Split a condition into keys and other conditions."""
    for part in split_conjunction(condition):
        if isinstance(part, exp.Boolean) and part.this:
            continue
        if not (isinstance(part, exp.EQ) and _add_key(pair, part, compiler)):
            pair.others.append(compiler.condition(part))


def _add_key(pair: _Pair, node: exp.EQ, compiler: ExpressionCompiler) -> bool:
    """Add an equation as a key if one of its sides is of the left stream and the other of the right one."""
    operands = [compiler.compile(node.this), compiler.compile(node.expression)]
    roots = [set(one.expr.meta.root_names()) for one in operands]
    left, right = set(pair.left.stream.columns), set(pair.right.stream.columns)
    for first, second in ((0, 1), (1, 0)):
        if roots[first] and roots[second] and roots[first] <= left and roots[second] <= right:
            exprs, _ = coerce(node, operands)
            pair.left.add_key(exprs[first], left | right)
            pair.right.add_key(exprs[second], left | right)
            return True
    return False


def _lookup_join(node: exp.Join, pair: _Pair, how: How) -> Stream:
    """Join each row with the latest row of the other stream by key."""
    if node.args.get("within") is not None:
        raise query_error(
            node.args["within"], "BAD_JOIN", "the latest row is found however old it is", "No WITHIN."
        )
    if how not in ("inner", "left") or (pair.others and (how == "left" or not pair.left.keys)):
        raise query_error(
            node,
            "BAD_JOIN",
            "the latest row is found by what it is equal in",
            "As in [LEFT] JOIN LATEST(users) u ON clicks.user = u.id; with further conditions not LEFT.",
        )
    kind: Literal["inner", "left"] = "left" if how == "left" else "inner"
    broadcast = not pair.left.keys  # ON TRUE: one row, for all
    if broadcast:
        for side in (pair.left, pair.right):
            side.add_key(pl.lit(1), pair.columns())
    latest = pair.right.with_keys().key_by(*pair.right.keys)
    stream = pair.left.with_keys().key_by(*pair.left.keys).lookup(latest, how=kind, broadcast=broadcast)
    for condition in pair.others:
        stream = stream.filter(condition)
    return stream


def _interval_join(node: exp.Join, pair: _Pair, value_of: LiteralValue, how: How) -> Stream:
    """Join rows that are no further apart than WITHIN allows."""
    bound = node.args.get("within")
    if bound is None:
        raise query_error(
            node,
            "JOIN_UNBOUNDED",
            "a join without a bound would have to remember every row for ever",
            "Bound the time between two rows: JOIN b ON ... WITHIN 60 SECONDS; for the latest row of b, "
            "JOIN LATEST(b) ON ....",
        )
    bounds = {name: read_within(span, value_of) for name, span in bound.args.items() if span is not None}
    events = next((count for _, count in bounds.values() if count is not None), None)
    if events is not None and "this" not in bounds:
        raise query_error(bound, "BAD_JOIN", "events are counted on both sides", "As in WITHIN 10 EVENTS.")
    spans = {name: spelled(span) for name, (span, _) in bounds.items() if span is not None}
    within, before, after = spans.get("this"), spans.get("before"), spans.get("after")
    if pair.left.keys:
        return (
            pair.left.with_keys()
            .key_by(*pair.left.keys)
            .join(
                pair.right.with_keys().key_by(*pair.right.keys),
                within=within,
                before=before,
                after=after,
                events=events,
                where=pair.where(),
                how=how,
            )
        )
    if how != "inner":
        raise query_error(
            node,
            "BAD_JOIN",
            "an outer join needs something that is equal on both sides",
            "As in ON a.k = b.k.",
        )
    return pair.left.stream.product(
        pair.right.stream, pair.where(), within=within, before=before, after=after, events=events
    )
