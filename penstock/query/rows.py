"""The base of the classes of the stream API: the rows of a logical node, and how an operator is put on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import UserError
from penstock.operators.strict import Ordering
from penstock.query import logical
from penstock.query.method_hints import no_such_method

if TYPE_CHECKING:
    from penstock.operators.contract import Operator
    from penstock.origin import Origin
    from penstock.query.stream import Stream

Order = Literal["strict", "epoch", "none"]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a node emits."""

    node: logical.Node

    if not TYPE_CHECKING:  # or a type checker would no longer find wrong names

        def __getattr__(self, name: str) -> Any:
            raise no_such_method(self, name)


@dataclass(frozen=True, eq=False)
class KeyedRows(Rows):
    """The rows that a node emits, partitioned by these columns.

    `order` is the order that the user requests, where an operator leaves a choice; None: what the operator needs.
    """

    keys: tuple[str, ...]
    order: Order | None = field(default=None, kw_only=True)


def order_strictly(origin: Origin, rows: KeyedRows, operator: Operator) -> logical.Node:
    """The rows that an operator reads: in strict order, if that is requested and it does not order them itself."""
    if rows.order != "strict" or operator.order == "strict":
        return rows.node
    columns = tuple(name for name in rows.node.schema if name in operator.needs())
    schema = {name: rows.node.schema[name] for name in columns}
    return logical.Stateful(origin, schema, (rows.node,), Ordering(rows.keys, columns))


def stateful(origin: Origin, schema: logical.Schema, operator: Operator, *parts: logical.Node) -> Stream:
    """The stream that an operator makes of its inputs, one a port."""
    for node in parts:
        _check_event_time(node, origin)
    return stream_of(logical.Stateful(origin, schema, parts, operator))


def _check_event_time(node: logical.Node, origin: Origin) -> None:
    if isinstance(node, logical.Source) and node.stream.time is None:
        raise UserError(
            "MISSING_EVENT_TIME",
            f"this reads several events together, but the stream {node.stream.name!r} has no event time",
            where=str(origin),
            hint='Declare its column: ps.stream(..., time="time").',
        )
    for before in node.inputs:
        _check_event_time(before, origin)


def require_stream(thing: object, origin: Origin, what: str) -> Stream:
    """Return the object if it is a stream; raise if it is not, or not yet."""
    from penstock.query.stream import Stream  # the stream's own methods come back here
    from penstock.query.windowed import Windowed

    if isinstance(thing, Stream):
        return thing
    if isinstance(thing, KeyedRows):
        cut = isinstance(thing, Windowed)
        raise UserError(
            "MISSING_AGGREGATE",
            f"{what} has {'windows' if cut else 'keys'}, but nothing is computed of them",
            where=str(origin),
            hint="Compute something, as in .count() or .aggregate(ps.sum_(...))."
            if cut
            else 'Compute something, as in .window("1m").count() or .last(3, "page"); to pass the rows on as they are, '
            "leave key_by out.",
        )
    raise UserError(
        "NOT_A_STREAM",
        f"{what} needs a stream, but this is a {type(thing).__name__}",
        where=str(origin),
        hint="Pass what ps.stream(...) or a method of a stream returned.",
    )


def stream_of(node: logical.Node) -> Stream:
    """A node as a stream."""
    from penstock.query.stream import Stream  # the stream's own methods come back here

    return Stream(node)
