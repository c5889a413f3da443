"""Rewriting a logical plan: every node once, inputs first, shared nodes stay shared. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from penstock.query.logical import App, Late, Node, Source, Stateful, Step, Union, nodes_of


def rewritten(app: App, change: Callable[[Node], Node]) -> App:
    """The app with every node replaced by what `change` makes of it, its inputs having been replaced before."""
    made: dict[Node, Node] = {}
    for node in nodes_of(app):
        inputs = tuple(made[before] for before in node.inputs)
        made[node] = change(node if inputs == node.inputs else with_inputs(node, inputs))
    return replace(app, outputs=tuple(replace(out, node=made[out.node]) for out in app.outputs))


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same step over other inputs."""
    match node:
        case Step():
            return replace(node, input=inputs[0])
        case Union() | Stateful():
            return replace(node, parts=inputs)
        case Late():
            assert isinstance(inputs[0], Source)
            return replace(node, source=inputs[0])
    return node


def readers(app: App) -> Counter[Node]:
    """How many nodes and outputs read each node."""
    counted = Counter(before for node in nodes_of(app) for before in node.inputs)
    counted.update(out.node for out in app.outputs)
    return counted
