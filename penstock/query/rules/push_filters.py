"""Push filters towards the scan: fewer rows are computed, kept and sent.

A filter passes a map that does not compute the columns it reads, a union (into every part), and an operator that works
key by key, if it reads keys alone. It never passes a node that others read too: they need the rows it would drop, and
two operators would cost more than one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl

from penstock.query.logical import App, Filter, Map, Node, Stateful, Union, count_readers, rewrite_app


def push_filters(app: App) -> App:
    while True:
        pushed = _push_one(app)
        if pushed is app:
            return app
        app = pushed


def _push_one(app: App) -> App:
    readers, moved = count_readers(app), False

    def push(node: Node) -> Node:
        nonlocal moved
        if not isinstance(node, Filter) or moved:
            return node
        below = _push_below(node, readers)
        moved = below is not None
        return node if below is None else below

    changed = rewrite_app(app, push)
    return changed if moved else app


def _push_below(node: Filter, readers: Counter[Node]) -> Node | None:
    """The filter below its input, or None if it must stay."""
    under, columns = node.input, set(node.predicate.meta.root_names())
    if readers[under] > 1:
        return None
    match under:
        case Map() if not columns & _computed_columns(under):
            return replace(under, input=replace(node, schema=under.input.schema, input=under.input))
        case Union():
            return replace(under, parts=tuple(replace(node, input=part) for part in under.parts))
        case Stateful() if len(under.parts) == 1 and columns and columns <= set(under.operator.pushdown_keys):
            below = replace(node, schema=under.parts[0].schema, input=under.parts[0])
            return replace(under, parts=(below,))
    return None


def _computed_columns(node: Map) -> set[str]:
    """The columns that a map computes, without those it only passes on."""
    return {name for name, expr in node.columns if not expr.meta.eq(pl.col(name))}
