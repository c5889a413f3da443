"""Share equal sub-plans: equal steps on the same rows become one node, which is computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import polars as pl

from penstock.query.logical import App, Node, Source, rewrite_app


def share_equal(app: App) -> App:
    nodes: dict[Hashable, Node] = {}
    return rewrite_app(app, lambda node: nodes.setdefault(_node_key(node), node))


def _node_key(node: Node) -> Hashable:
    """Equal for nodes of the same kind with equal settings and columns that read the very same nodes."""
    if isinstance(node, Source):
        return node
    settings = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    del settings["origin"]
    return (type(node), *((name, value_key(value)) for name, value in settings.items()))


def value_key(value: Any) -> Hashable:
    """Equal for equal values. A value that cannot be compared equals itself alone."""
    if isinstance(value, Node):
        return id(value)
    if isinstance(value, pl.Expr):
        try:
            return ("expr", value.meta.serialize())
        except pl.exceptions.PolarsError:
            return id(value)
    if isinstance(value, tuple | list):
        return tuple(value_key(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((key, value_key(item)) for key, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value), *((field.name, value_key(getattr(value, field.name))) for field in fields))
    if isinstance(value, str | int | float | bool | bytes | None | pl.DataType):
        return (type(value), value)
    return id(value)
