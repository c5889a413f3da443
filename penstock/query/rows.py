"""What every part of the stream API stands on: rows of a node, and how a new step is put on top of it. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import UserError
from penstock.operators.ordering import Ordering
from penstock.query import logical
from penstock.query.unknown import unknown

if TYPE_CHECKING:
    from penstock.operators.contract import Operator
    from penstock.origin import Origin
    from penstock.query.stream import Stream

Order = Literal["strict", "epoch", "none"]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows a node puts out."""

    node: logical.Node

    if not TYPE_CHECKING:  # a checker must go on to find wrong names itself

        def __getattr__(self, name: str) -> Any:
            raise unknown(self, name)


@dataclass(frozen=True, eq=False)
class KeyedRows(Rows):
    """The rows a node puts out, taken per value of these columns.

    `order` is what the user asked for, where an operator leaves a choice; None: whatever the operator asks for.
    """

    keys: tuple[str, ...]
    order: Order | None = field(default=None, kw_only=True)


def ordered(origin: Origin, rows: KeyedRows, operator: Operator) -> logical.Node:
    """What an operator reads: in strict order, if that was asked for and it does not wait itself."""
    if rows.order != "strict" or operator.order == "strict":
        return rows.node
    kept = tuple(name for name in rows.node.schema if name in operator.needs())
    schema = {name: rows.node.schema[name] for name in kept}
    return logical.Stateful(origin, schema, (rows.node,), Ordering(rows.keys, kept))


def stateful(origin: Origin, schema: logical.Schema, operator: Operator, *parts: logical.Node) -> Stream:
    """The stream an operator makes of its inputs, one a port."""
    for node in parts:
        _check_timed(node, origin)
    return stream_of(logical.Stateful(origin, schema, parts, operator))


def _check_timed(node: logical.Node, origin: Origin) -> None:
    if isinstance(node, logical.Source) and node.stream.time is None:
        raise UserError(
            "MISSING_EVENT_TIME",
            f"this goes over several events, but the stream {node.stream.name!r} has no event time",
            where=str(origin),
            hint='Say which column it is: ps.stream(..., time="time").',
        )
    for before in node.inputs:
        _check_timed(before, origin)


def stream_given(given: object, origin: Origin, what: str) -> Stream:
    """What the user gave, if it is a stream; raises if it is not, or not yet one."""
    from penstock.query.stream import Stream  # the stream's own methods come back here
    from penstock.query.windowed import Windowed

    if isinstance(given, Stream):
        return given
    if isinstance(given, KeyedRows):
        cut = isinstance(given, Windowed)
        raise UserError(
            "MISSING_AGGREGATE",
            f"{what} has {'windows' if cut else 'keys'}, but nothing is computed of them",
            where=str(origin),
            hint="Say what, as in .count() or .aggregate(ps.sum_(...))."
            if cut
            else 'Say what, as in .window("1m").count() or .last(3, "page"); to hand the rows on as they are, leave '
            "key_by away.",
        )
    raise UserError(
        "NOT_A_STREAM",
        f"{what} needs a stream, but this is a {type(given).__name__}",
        where=str(origin),
        hint="Give it what ps.stream(...) returned, or what was made of that.",
    )


def stream_of(node: logical.Node) -> Stream:
    """A node as a stream."""
    from penstock.query.stream import Stream  # the stream's own methods come back here

    return Stream(node)
