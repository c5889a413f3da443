"""The logical plan: what the user said, as frozen nodes from sources to outputs. Building it runs nothing.

Receives calls of the stream API; hands the compiler a graph in which every node knows its columns and
the user's line it came from.

Invariant: a node that exists has passed its checks (columns exist, types fit).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from penstock.decode.contract import Decoder
from penstock.ha.schemes import Semantics
from penstock.logs.contract import Log
from penstock.operators.contract import Operator
from penstock.operators.routing import Partitioner
from penstock.operators.top_k import TopK
from penstock.origin import Origin
from penstock.sinks.contract import Sink

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, eq=False)
class StreamDefinition:
    """A named log with a decoder and an event-time column; how late an event may be, and how far ahead of the
    wall clock, in microseconds."""

    name: str
    log: Log
    decoder: Decoder
    time: str | None
    lateness: int
    idle_after: int | None
    ahead: int | None


@dataclass(frozen=True, eq=False)
class Node:
    """One step of the plan. Nodes are told apart by identity, so a shared input is one node."""

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
    """The events of a stream that came too late, or were dated too far ahead to be believed."""

    source: Source

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    def describe(self) -> str:
        return f"late events of {self.source.stream.name}"


@dataclass(frozen=True, eq=False)
class FromJob(Node):
    """The rows another job tells, as a stream: `level` is where they are made, `streams` those they come from."""

    job: str
    level: int
    streams: tuple[str, ...]

    def describe(self) -> str:
        return f"job {self.job}"


@dataclass(frozen=True, eq=False)
class Previous(Node):
    """What a job told in the epoch before, as a stream: so it may be read by those it reads, or by itself."""

    job: str
    streams: tuple[str, ...]

    def describe(self) -> str:
        return f"job {self.job}, an epoch before"


@dataclass(frozen=True, eq=False)
class Step(Node):
    """A stateless node: one input, no memory."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Map(Step):
    """Columns computed from columns; with `only`, these and no others are left."""

    columns: tuple[tuple[str, pl.Expr], ...]
    only: bool

    def describe(self) -> str:
        what = ", ".join(f"{name} = {expr}" for name, expr in self.columns)
        return f"{'select' if self.only else 'map'} {what}"


@dataclass(frozen=True, eq=False)
class Filter(Step):
    predicate: pl.Expr

    def describe(self) -> str:
        return f"filter {self.predicate}"


@dataclass(frozen=True, eq=False)
class Part(Filter):
    """What a demux deals out under a name."""

    name: str

    def describe(self) -> str:
        return f"demux part {self.name!r} where {self.predicate}"


@dataclass(frozen=True, eq=False)
class MapBatches(Step):
    """A user function from frame to frame, row for row or not, without memory."""

    function: Callable[[pl.DataFrame], pl.DataFrame]

    def describe(self) -> str:
        return f"map batches with {getattr(self.function, '__name__', 'a function')}"


@dataclass(frozen=True, eq=False)
class FlatMap(MapBatches):
    """A user function from frame to frame that makes any number of rows of an event."""

    def describe(self) -> str:
        return f"flat map with {getattr(self.function, '__name__', 'a function')}"


@dataclass(frozen=True, eq=False)
class Explode(Step):
    """One row for every value of list columns."""

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
    """An operator with memory over its inputs, one a port. Its schema is that of its output named ""."""

    parts: tuple[Node, ...]
    operator: Operator

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def describe(self) -> str:
        return self.operator.describe()


@dataclass(frozen=True, eq=False)
class Partitioned(Step):
    """What follows keeps keys together as a partitioner of the user's own says."""

    partitioner: Partitioner

    def describe(self) -> str:
        return f"partition by {self.partitioner}"


@dataclass(frozen=True, eq=False)
class Branch(Step):
    """Another output of an operator."""

    output: str

    def describe(self) -> str:
        return f"output {self.output!r} of it"


@dataclass(frozen=True, eq=False)
class Top(Step):
    """The best rows; `top` ranks the rows of all slices in the gather."""

    top: TopK

    def describe(self) -> str:
        return self.top.describe()


@dataclass(frozen=True, eq=False)
class Output:
    """A named result and the sinks it goes to: one job. `recovery`: what it may lose or repeat; None: as the engine."""

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
    """Every node of an application once, inputs before those who read them."""
    seen: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in seen:
            for before in node.inputs:
                visit(before)
            seen[node] = None

    for output in app.outputs:
        visit(output.node)
    return list(seen)
