"""JOIN: two streams, or a stream and the latest rows of another.

Receives a relation and a join's part of the tree; hands a relation with the columns of both. Conditions that say a
left expression equals a right one are the keys; the others are asked of every pair.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Literal

import polars as pl
from sqlglot import exp

from penstock.duration import spelled
from penstock.query.joins import How
from penstock.query.stream import Stream
from penstock.sql.expressions import Expressions, split
from penstock.sql.literals import alike
from penstock.sql.places import located, refused
from penstock.sql.previous import is_previous
from penstock.sql.relation import Relation
from penstock.sql.sources import Sources, renamed
from penstock.sql.windows import within

_SIDES: dict[str, How] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass
class _Keys:
    """The keys of both sides, with the columns that must be computed for them; what else must hold."""

    left: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    left_made: dict[str, pl.Expr] = field(default_factory=dict)
    right_made: dict[str, pl.Expr] = field(default_factory=dict)
    others: list[pl.Expr] = field(default_factory=list)

    def where(self) -> pl.Expr | None:
        return functools.reduce(lambda one, other: one & other, self.others) if self.others else None


def joined(sources: Sources, left: Relation, node: exp.Join) -> Relation:
    """What a join makes of the rows so far and another stream."""
    side, kind = node.args.get("side") or "", node.args.get("kind") or ""
    if node.args.get("method") or kind not in ("", "INNER", "OUTER", "CROSS") or side not in _SIDES:
        raise refused(
            node, "UNSUPPORTED_SQL", "there is no such join", "Known are JOIN, LEFT, RIGHT and FULL JOIN."
        )
    if left.cut is not None:
        raise refused(node, "BAD_WINDOW", "windows come after joins", "Join first, and say WINDOWING.")
    table, latest = node.this, _latest(node.this)
    right = sources.table(table if latest is None else latest)
    if right.cut is not None:
        raise refused(node, "BAD_WINDOW", "windows come after joins", "Join first, and say WINDOWING.")
    using = [part.name for part in node.args.get("using") or ()]
    same = {right.find(_column(name))[0]: left.find(_column(name))[0] for name in using}
    with located(node):
        right = renamed(right, set(left.stream.columns), same)
    keys = _Keys([*same.values()], [*same.values()])
    pair = Relation(left.stream, (*left.fields, *right.fields))
    schema = {**left.stream.node.schema, **right.stream.node.schema}
    if node.args.get("on") is not None:
        _split(node.args["on"], Expressions(pair, sources.scope, schema), left.stream, right.stream, keys)
    with located(node):
        if latest is not None:
            stream = _looked_up(node, left.stream, right.stream, keys, _SIDES[side])
        else:
            stream = _met(node, sources, left, right, keys, _SIDES[side])
    return Relation(stream, pair.fields)


def _latest(node: exp.Expr) -> exp.Expr | None:
    """The stream in `LATEST(stream)`, under the alias of the whole."""
    call = node.this if isinstance(node, exp.Table) else None
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "latest":
        return None
    if len(call.expressions) == 1 and is_previous(call.expressions[0]):
        return exp.Table(this=call.expressions[0].copy(), alias=node.args.get("alias"))
    if len(call.expressions) != 1 or not isinstance(call.expressions[0], exp.Column | exp.Table):
        raise refused(
            node, "BAD_JOIN", "LATEST takes the name of a stream or job", "As in JOIN LATEST(users) ON ...."
        )
    name = call.expressions[0].this
    return exp.Table(this=name.copy(), alias=node.args.get("alias"))


def _column(name: str) -> exp.Column:
    return exp.column(name)


def _split(condition: exp.Expr, pair: Expressions, left: Stream, right: Stream, keys: _Keys) -> None:
    """What a condition says, as keys and other conditions."""
    mine, theirs = set(left.columns), set(right.columns)
    for part in split(condition):
        if isinstance(part, exp.Boolean) and part.this:
            continue
        if isinstance(part, exp.EQ):
            given = [pair.of(part.this), pair.of(part.expression)]
            roots = [set(one.expr.meta.root_names()) for one in given]
            for first, second in ((0, 1), (1, 0)):
                if roots[first] and roots[second] and roots[first] <= mine and roots[second] <= theirs:
                    exprs, _ = alike(part, given)
                    keys.left.append(_held(exprs[first], keys.left_made, mine | theirs, "left"))
                    keys.right.append(_held(exprs[second], keys.right_made, mine | theirs, "right"))
                    break
            else:
                keys.others.append(pair.condition(part))
        else:
            keys.others.append(pair.condition(part))


def _held(expr: pl.Expr, made: dict[str, pl.Expr], taken: set[str], side: str) -> str:
    """The column that holds a key."""
    if expr.meta.is_column():
        return expr.meta.root_names()[0]
    name = f"{side} key {len(made) + 1}"
    while name in taken:
        name += "'"
    made[name] = expr
    return name


def _keyed(stream: Stream, made: dict[str, pl.Expr]) -> Stream:
    return stream.map(**made) if made else stream


def _looked_up(node: exp.Join, left: Stream, right: Stream, keys: _Keys, how: How) -> Stream:
    if node.args.get("within") is not None:
        raise refused(
            node.args["within"], "BAD_JOIN", "the latest row is found however old it is", "No WITHIN."
        )
    if how not in ("inner", "left") or (keys.others and (how == "left" or not keys.left)):
        raise refused(
            node,
            "BAD_JOIN",
            "the latest row is found by what it is equal in",
            "As in [LEFT] JOIN LATEST(users) u ON clicks.user = u.id; with further conditions not LEFT.",
        )
    kind: Literal["inner", "left"] = "left" if how == "left" else "inner"
    everyone = not keys.left  # ON TRUE: one row, for all
    if everyone:
        keys.left.append(_held(pl.lit(1), keys.left_made, {*left.columns, *right.columns}, "left"))
        keys.right.append(_held(pl.lit(1), keys.right_made, {*left.columns, *right.columns}, "right"))
    mine, theirs = _keyed(left, keys.left_made), _keyed(right, keys.right_made)
    stream = mine.key_by(*keys.left).lookup(theirs.key_by(*keys.right), how=kind, broadcast=everyone)
    for other in keys.others:
        stream = stream.filter(other)
    return stream


def _met(node: exp.Join, sources: Sources, left: Relation, right: Relation, keys: _Keys, how: How) -> Stream:
    bound = node.args.get("within")
    if bound is None:
        raise refused(
            node,
            "JOIN_UNBOUNDED",
            "a join without a bound would have to remember every row for ever",
            "Say how far apart two rows may be: JOIN b ON ... WITHIN 60 SECONDS; for the latest row of b, "
            "JOIN LATEST(b) ON ....",
        )
    value = Expressions(left, sources.scope).value
    given = {name: within(span, value) for name, span in bound.args.items() if span is not None}
    events = next((count for _, count in given.values() if count is not None), None)
    if events is not None and "this" not in given:
        raise refused(bound, "BAD_JOIN", "events are counted on both sides", "As in WITHIN 10 EVENTS.")
    spans = {name: spelled(span) for name, (span, _) in given.items() if span is not None}
    time, before, after = spans.get("this"), spans.get("before"), spans.get("after")
    if keys.left:
        mine, theirs = _keyed(left.stream, keys.left_made), _keyed(right.stream, keys.right_made)
        return mine.key_by(*keys.left).join(
            theirs.key_by(*keys.right),
            within=time,
            before=before,
            after=after,
            events=events,
            where=keys.where(),
            how=how,
        )
    if how != "inner":
        raise refused(
            node,
            "BAD_JOIN",
            "an outer join needs something that is equal on both sides",
            "As in ON a.k = b.k.",
        )
    return left.stream.product(
        right.stream, keys.where(), within=time, before=before, after=after, events=events
    )
