"""Share equal sub-plans: steps that say the same of the same rows become one, so they are computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import polars as pl

from penstock.query.logical import App, Node, Source, rewrite_app


def share_equal(app: App) -> App:
    """One node for all that are equal in kind, parameters and inputs."""
    known: dict[Hashable, Node] = {}

    def shared(node: Node) -> Node:
        return known.setdefault(meaning(node), node)

    return rewrite_app(app, shared)


def meaning(node: Node) -> Hashable:
    """What tells a node from others: its kind, what it says, its columns and the very nodes it reads."""
    if isinstance(node, Source):
        return node
    said = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    del said["origin"]
    return (type(node), *((name, form(value)) for name, value in said.items()))


def form(value: Any) -> Hashable:
    """A value as something that is equal for equal values. What cannot be compared is equal to itself alone."""
    if isinstance(value, Node):
        return id(value)
    if isinstance(value, pl.Expr):
        try:
            return ("expr", value.meta.serialize())
        except pl.exceptions.PolarsError:
            return id(value)
    if isinstance(value, tuple | list):
        return tuple(form(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((key, form(item)) for key, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value), *((field.name, form(getattr(value, field.name))) for field in fields))
    if isinstance(value, str | int | float | bool | bytes | None | pl.DataType):
        return (type(value), value)
    return id(value)
