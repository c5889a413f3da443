"""Push filters towards the scan: fewer rows are computed, kept and sent.

A filter passes a map that does not make the columns it asks for, a union (into every part), and an operator
that works key by key, if it asks for keys alone. It never passes a node that others read too: they want the
rows it would take away, and two operators would cost more than one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl

from penstock.query.logical import App, Filter, Map, Node, Stateful, Union, count_readers, rewrite_app


def push_filters(app: App) -> App:
    """Filters as near to their sources as they can be."""
    while True:
        pushed = _once(app)
        if pushed is app:
            return app
        app = pushed


def _once(app: App) -> App:
    counted, moved = count_readers(app), False

    def pushed(node: Node) -> Node:
        nonlocal moved
        if not isinstance(node, Filter) or moved:
            return node
        made = _below(node, counted)
        moved = made is not None
        return node if made is None else made

    changed = rewrite_app(app, pushed)
    return changed if moved else app


def _below(node: Filter, counted: Counter[Node]) -> Node | None:
    """The filter put below its input, or None where it must stay."""
    under, asked = node.input, set(node.predicate.meta.root_names())
    if counted[under] > 1:
        return None
    match under:
        case Map() if not asked & _made(under):
            return replace(under, input=replace(node, schema=under.input.schema, input=under.input))
        case Union():
            return replace(under, parts=tuple(replace(node, input=part) for part in under.parts))
        case Stateful() if len(under.parts) == 1 and asked and asked <= set(under.operator.pushdown_keys):
            below = replace(node, schema=under.parts[0].schema, input=under.parts[0])
            return replace(under, parts=(below,))
    return None


def _made(node: Map) -> set[str]:
    """The columns a map makes, without those it only passes on."""
    return {name for name, expr in node.columns if not expr.meta.eq(pl.col(name))}
