"""The logical plan: a query as frozen nodes from sources to outputs. Building it runs nothing.

Every node knows its columns and the line of the user's program it comes from.

Invariant: a node that exists has passed its checks (columns exist, types fit).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.decode.contract import Decoder
from penstock.ha.schemes import Semantics
from penstock.logs.contract import Log
from penstock.operators.contract import Operator
from penstock.operators.routes import Partitioner
from penstock.operators.top_k import TopK
from penstock.origin import Origin
from penstock.sinks.contract import Sink

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, eq=False)
class StreamDefinition:
    """A named log with a decoder and an event-time column. Durations are in microseconds: how late an event may be, how
    long a partition is silent before it is idle, and how far ahead of the wall clock an event may be."""

    name: str
    log: Log
    decoder: Decoder
    time: str | None
    lateness: int
    idle_after: int | None
    ahead: int | None


@dataclass(frozen=True, eq=False)
class Node:
    """One step of a query. Nodes are compared by identity, so a shared input is one node."""

    origin: Origin
    schema: Schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def describe(self) -> str:
        raise AssertionError("every node describes itself")


@dataclass(frozen=True, eq=False)
class Source(Node):
    stream: StreamDefinition

    def describe(self) -> str:
        return f"stream {self.stream.name}: {self.stream.log.describe()}"


@dataclass(frozen=True, eq=False)
class Late(Node):
    """The late and the future events of a stream."""

    source: Source

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    def describe(self) -> str:
        return f"late events of {self.source.stream.name}"


@dataclass(frozen=True, eq=False)
class FromJob(Node):
    """The rows that another job emits, as a stream. `level` is that of the stage that makes them; `streams` are those
    they come from."""

    job: str
    level: int
    streams: tuple[str, ...]

    def describe(self) -> str:
        return f"job {self.job}"


@dataclass(frozen=True, eq=False)
class Previous(Node):
    """The rows that a job emitted in the epoch before, as a stream. So jobs may read each other, or themselves."""

    job: str
    streams: tuple[str, ...]

    def describe(self) -> str:
        return f"job {self.job}, an epoch before"


@dataclass(frozen=True, eq=False)
class StatelessNode(Node):
    """A node with one input and no state."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Map(StatelessNode):
    """Compute columns from columns. With `only`, drop all others."""

    columns: tuple[tuple[str, pl.Expr], ...]
    only: bool

    def describe(self) -> str:
        what = ", ".join(f"{name} = {expr}" for name, expr in self.columns)
        return f"{'select' if self.only else 'map'} {what}"


@dataclass(frozen=True, eq=False)
class Filter(StatelessNode):
    predicate: pl.Expr

    def describe(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True, eq=False)
class Part(Filter):
    """One of the streams that a demux splits its input into."""

    name: str

    def describe(self) -> str:
        return f"demux part {self.name!r} where {self.predicate}"


@dataclass(frozen=True, eq=False)
class MapBatches(StatelessNode):
    """Call a function of the user's on whole batches; it returns the same rows or some of them."""

    function: Callable[[pl.DataFrame], pl.DataFrame]

    def describe(self) -> str:
        return f"map batches with {getattr(self.function, '__name__', 'a function')}"


@dataclass(frozen=True, eq=False)
class FlatMap(MapBatches):
    """Call a function of the user's on whole batches; it returns any number of rows of an event."""

    def describe(self) -> str:
        return f"flat map with {getattr(self.function, '__name__', 'a function')}"


@dataclass(frozen=True, eq=False)
class Explode(StatelessNode):
    """Make a row for every value of list columns."""

    columns: tuple[str, ...]

    def describe(self) -> str:
        return f"explode {', '.join(self.columns)}"


@dataclass(frozen=True, eq=False)
class Union(Node):
    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def describe(self) -> str:
        return f"union of {len(self.parts)}"


@dataclass(frozen=True, eq=False)
class Stateful(Node):
    """An operator with state over its inputs, one a port. The schema is that of its output named ""."""

    parts: tuple[Node, ...]
    operator: Operator

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def describe(self) -> str:
        return self.operator.describe()


@dataclass(frozen=True, eq=False)
class PartitionBy(StatelessNode):
    """Use the user's own partitioner in the exchange of the next operator."""

    partitioner: Partitioner

    def describe(self) -> str:
        return f"partition by {self.partitioner}"


@dataclass(frozen=True, eq=False)
class Branch(StatelessNode):
    """A further output of an operator."""

    output: str

    def describe(self) -> str:
        return f"output {self.output!r} of it"


@dataclass(frozen=True, eq=False)
class Top(StatelessNode):
    """The best rows. At the end of a query the gather ranks the rows of all slices."""

    top: TopK

    def describe(self) -> str:
        return self.top.describe()


@dataclass(frozen=True, eq=False)
class Output:
    """A named result and its sinks: one job. `recovery`: what it may lose or repeat; None: as the engine's settings
    say."""

    name: str
    node: Node
    sinks: tuple[Sink, ...]
    origin: Origin
    recovery: Semantics | None = None


@dataclass(frozen=True, eq=False)
class App:
    """Everything one engine runs: outputs over streams."""

    name: str
    outputs: tuple[Output, ...]


def nodes_of(app: App) -> list[Node]:
    """Every node of an application once, inputs before their readers."""
    seen: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in seen:
            for before in node.inputs:
                visit(before)
            seen[node] = None

    for output in app.outputs:
        visit(output.node)
    return list(seen)


def rewrite_app(app: App, change: Callable[[Node], Node]) -> App:
    """Replace every node by the result of `change`, inputs first. Shared nodes stay shared."""
    changed: dict[Node, Node] = {}
    for node in nodes_of(app):
        inputs = tuple(changed[before] for before in node.inputs)
        changed[node] = change(node if inputs == node.inputs else _replace_inputs(node, inputs))
    return replace(app, outputs=tuple(replace(out, node=changed[out.node]) for out in app.outputs))


def _replace_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    match node:
        case StatelessNode():
            return replace(node, input=inputs[0])
        case Union() | Stateful():
            return replace(node, parts=inputs)
        case Late():
            assert isinstance(inputs[0], Source)
            return replace(node, source=inputs[0])
    return node


def count_readers(app: App) -> Counter[Node]:
    """How many nodes and outputs read each node."""
    readers = Counter(before for node in nodes_of(app) for before in node.inputs)
    readers.update(out.node for out in app.outputs)
    return readers
