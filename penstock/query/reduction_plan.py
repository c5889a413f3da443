"""Splits an application into what agents do where events are made, and what the engine does with their partial results.

A *cut* is an aggregate over windows of time and the stateless steps between it and the stream. Agents apply the steps
and compute partial results per key and pane (`reducer`). The engine reads those instead of events and computes the same
results.

Refused, with the reason: operators that need the events themselves (patterns, joins, count windows, late events),
functions whose partial results grow with the events or depend on their order, and types that agents cannot send.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.decode.partials import AT, CUT, Partials, is_transferable
from penstock.errors import UserError
from penstock.operators.contract import PARTITION, SEQUENCE, TIME
from penstock.operators.functions import AggregateFunction
from penstock.operators.functions.extremes import Max
from penstock.operators.functions.from_partials import FromPartials
from penstock.operators.functions.user import User
from penstock.operators.panes import PaneOperator, partial_columns
from penstock.query import logical
from penstock.query.lower import lower_app
from penstock.query.steps import EdgeSource, Step

#: the newest event time in a partial result, as a column of events and as one of its parts
EVENT_TIME = "_event_time"
_NEWEST = Max("__newest", EVENT_TIME, pl.Int64())
NEWEST = _NEWEST.parts()[0]


@dataclass(frozen=True, eq=False)
class Cut:
    """An aggregate that agents start and the engine finishes."""

    number: int
    node: logical.Stateful
    operator: PaneOperator
    steps: tuple[Step, ...]
    #: the names of the columns of a partial result on the way
    names: Mapping[str, str]
    types: Mapping[str, pl.DataType]

    @property
    def operator_with_newest(self) -> PaneOperator:
        """The operator, which also computes the newest event time."""
        return replace(self.operator, aggregates=(*self.operator.aggregates, _NEWEST))


@dataclass(frozen=True, eq=False)
class Reduction:
    """How agents reduce a stream for an application. `plan` identifies it in what they send."""

    app: logical.App
    source: logical.Source
    cuts: tuple[Cut, ...]
    plan: str

    @property
    def stream(self) -> logical.StreamDefinition:
        return self.source.stream

    @property
    def needed(self) -> list[str]:
        """The columns of an event that are decoded."""
        return list(self.stream.decoder.schema())

    def engine_app(self) -> logical.App:
        """The application that reads partial results instead of events."""
        columns = {cut.names[name]: dtype for cut in self.cuts for name, dtype in cut.types.items()}
        decoder = Partials(self.plan, columns)
        stream = replace(self.stream, decoder=decoder, time=AT)
        source = logical.Source(self.source.origin, decoder.schema(), stream)
        # rewriting replaces nodes; a cut is recognized by its operator, which stays the same object
        finishing = {id(cut.operator): self._finish(cut, source) for cut in self.cuts}

        def change(node: logical.Node) -> logical.Node:
            return finishing.get(id(node.operator), node) if isinstance(node, logical.Stateful) else node

        return logical.rewrite_app(self.app, change)

    def _finish(self, cut: Cut, source: logical.Source) -> logical.Stateful:
        origin = cut.node.origin
        own = logical.Filter(origin, source.schema, source, pl.col(CUT) == cut.number)
        named = tuple((name, pl.col(cut.names[name])) for name in cut.types)
        parts = logical.Map(origin, dict(cut.types), own, named, only=True)
        merged = tuple(FromPartials.over_parts(function) for function in cut.operator.aggregates)
        return replace(cut.node, parts=(parts,), operator=replace(cut.operator, aggregates=merged))


def plan_reduction(app: logical.App, stream: str, source_text: str = "") -> Reduction:
    """How agents can reduce a stream for an application. Raises if some of it needs the events themselves.

    `source_text` is what agents and engine both read; its hash is the name of the plan.
    """
    nodes = logical.nodes_of(app)
    sources = [node for node in nodes if isinstance(node, logical.Source) and node.stream.name == stream]
    if not sources:
        raise UserError(
            "UNKNOWN_STREAM", f"nothing reads a stream {stream!r}", hint="Name one that jobs read."
        )
    source = sources[0]
    if source.stream.time is None:
        raise _not_reducible("the stream has no event time", source)
    below: set[logical.Node] = set(sources)
    cuts: list[Cut] = []
    for node in nodes:
        if not below.intersection(node.inputs):
            continue
        if isinstance(node, logical.Map | logical.Filter | logical.MapBatches | logical.Explode):
            below.add(node)
        elif isinstance(node, logical.Stateful):
            cuts.append(_plan_cut(len(cuts), node, source, below))
        else:
            raise _not_reducible(f"{node.describe()} needs the events themselves", node)
    for output in app.outputs:
        if output.node in below:
            raise _not_reducible(f"{output.name} emits the events themselves", output.node)
    return Reduction(app, source, tuple(cuts), hashlib.sha256(source_text.encode()).hexdigest()[:12])


def _plan_cut(number: int, node: logical.Stateful, source: logical.Source, below: set[logical.Node]) -> Cut:
    operator = node.operator
    if not isinstance(operator, PaneOperator) or len(node.parts) != 1 or node.parts[0] not in below:
        raise _not_reducible(f"{node.describe()} needs the events themselves", node)
    for function in operator.aggregates:
        if why := _why_not_reducible(function):
            raise _not_reducible(f"{function.describe()} {why}", node)
    alone = lower_app(logical.App("reduction", (logical.Output("rows", node, (), node.origin),)))
    (edge,) = alone.edges_from(EdgeSource("scan", source.stream.name))
    schema = _partial_schema(operator, edge.steps, source)
    for name, dtype in schema.items():
        if not is_transferable(dtype):
            raise _not_reducible(f"{name.lstrip('_')} is {dtype}, which agents do not send", node)
    keys = {key: f"c{number}k{place}" for place, key in enumerate(operator.keys)}
    parts = {part: f"c{number}a{place}" for place, part in enumerate(partial_columns(operator.aggregates))}
    return Cut(number, node, operator, edge.steps, keys | parts, schema)


def _partial_schema(
    operator: PaneOperator, steps: tuple[Step, ...], source: logical.Source
) -> dict[str, pl.DataType]:
    """The columns of partial results with their types."""
    internal = {TIME: pl.Int64(), PARTITION: pl.UInt32(), SEQUENCE: pl.Int64()}
    frame = pl.DataFrame(schema={**source.schema, **internal})
    for step in steps:
        frame = step.apply(frame)
    schema = operator.prepare(frame).schema
    return {name: schema[name] for name in (*operator.keys, *partial_columns(operator.aggregates))}


def _why_not_reducible(function: AggregateFunction) -> str:
    if isinstance(function, User):
        return "is a function of the user's own, which agents do not have"
    if function.sequential:
        return "depends on the order of events, which partial results do not keep"
    if function.grows:
        return "has partial results that grow with the events"
    return ""


def _not_reducible(why: str, node: logical.Node) -> UserError:
    return UserError(
        "NOT_REDUCIBLE",
        f"agents cannot reduce this: {why}",
        where=str(node.origin),
        hint="They reduce counts, sums, averages, least and greatest values over windows of time. Read the events "
        "of the other queries from a stream of their own.",
    )
