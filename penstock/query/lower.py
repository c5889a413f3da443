"""Lowers the logical plan of an application to stages and the edges between them.

The cuts are StreamCloud's operator-set-cloud: every stateful node starts a stage, and the stateless nodes after it ride
on the edges that leave it, so they run where their input is. The stateless start of a query rides on the scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.errors import UserError
from penstock.operators.group_top import GroupTop, columns_of
from penstock.operators.identity import Json, digest_of, encode, encode_custom, kind_of
from penstock.operators.routes import Partitioner
from penstock.query import logical
from penstock.query.format_1 import former_fingerprint, former_id
from penstock.query.physical import OutputPlan, Plan, ScanPlan, Stage
from penstock.query.steps import (
    Edge,
    EdgeSource,
    EdgeTarget,
    ExplodeStep,
    FilterStep,
    FunctionStep,
    KeepStep,
    MapStep,
    Step,
    is_renumbering,
)

#: an input's number is a byte
MAX_INPUTS = 256


@dataclass(frozen=True)
class _Flow:
    """Rows that leave a source by an output and pass through steps."""

    source: EdgeSource
    steps: tuple[Step, ...] = ()
    output: str = ""

    def through(self, step: Step) -> _Flow:
        return replace(self, steps=(*self.steps, step))

    def through_renumbering(self, step: FunctionStep | ExplodeStep) -> _Flow:
        """Through a step that makes several rows of one. Only the last such step numbers them."""
        earlier = (replace(s, renumber=False) if is_renumbering(s) else s for s in self.steps)
        return replace(self, steps=(*earlier, step))


def lower_app(app: logical.App, prefix: str = "") -> Plan:
    """The physical plan of an application, straight from its nodes. `prefix` is put before the ids of stages."""
    return _Lowering(app, prefix).plan()


class _Lowering:
    def __init__(self, app: logical.App, prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self._jobs: dict[EdgeSource, logical.FromJob] = {}
        self._previous: dict[EdgeSource, logical.Previous] = {}
        self._streams: dict[str, logical.Source] = {}
        self._stages: dict[str, Stage] = {}
        #: the columns that each stage reads of its inputs, with their types
        self._columns: dict[str, dict[str, pl.DataType]] = {}
        self._flows: dict[logical.Node, list[_Flow]] = {}
        self._edges: list[Edge] = []
        self._outputs: dict[str, OutputPlan] = {}

    def plan(self) -> Plan:
        for output in self._app.outputs:
            self._add_output(output)
        scans = {
            name: ScanPlan(source.stream, tuple(source.stream.decoder.schema()), source.origin)
            for name, source in self._streams.items()
        }
        summary = "; ".join(f"{o.name}: {_path(o.node)}" for o in self._app.outputs)
        plan = Plan(
            self._app.name,
            scans,
            self._stages,
            tuple(self._edges),
            self._outputs,
            summary=summary,
            levels=max((stage.level for stage in self._stages.values()), default=0),
            job_levels={source: node.level for source, node in self._jobs.items()},
        )
        return _add_identity(plan, self._columns, self._prefix)

    # -- nodes to flows --------------------------------------------------------------------------

    def _flow(self, node: logical.Node) -> list[_Flow]:
        if node not in self._flows:
            self._flows[node] = self._lower(node)
        return self._flows[node]

    def _lower(self, node: logical.Node) -> list[_Flow]:
        match node:
            case logical.Source():
                return [self._scan(node)]
            case logical.Map():
                step: Step = MapStep(node.columns, node.origin)
                flows = [flow.through(step) for flow in self._flow(node.input)]
                keep = KeepStep(tuple(name for name, _ in node.columns), node.origin)
                return [flow.through(keep) for flow in flows] if node.only else flows
            case logical.Filter():
                return [
                    flow.through(FilterStep(node.predicate, node.origin)) for flow in self._flow(node.input)
                ]
            case logical.FlatMap():
                many = FunctionStep(node.function, node.schema, node.origin, renumber=True)
                return [flow.through_renumbering(many) for flow in self._flow(node.input)]
            case logical.Explode():
                explode = ExplodeStep(node.columns, node.origin)
                return [flow.through_renumbering(explode) for flow in self._flow(node.input)]
            case logical.MapBatches():
                function = FunctionStep(node.function, node.schema, node.origin)
                return [flow.through(function) for flow in self._flow(node.input)]
            case logical.Union():
                return [flow for part in node.parts for flow in self._flow(part)]
            case logical.Late():
                self._scan(node.source)
                return [_Flow(EdgeSource("late", node.source.stream.name))]
            case logical.FromJob():
                job = EdgeSource("job", node.job)
                self._jobs[job] = node
                return [_Flow(job)]
            case logical.Previous():
                previous = EdgeSource("previous", node.job)
                self._previous[previous] = node
                return [_Flow(previous)]
            case logical.Stateful():
                return [self._add_stage(node)]
            case logical.PartitionBy():
                return self._flow(node.input)
            case logical.Branch():
                return [replace(flow, output=node.output) for flow in self._flow(node.input)]
            case logical.Top():
                # something follows it, so the gather cannot do it
                ranking = GroupTop((), node.top, columns_of(node.input.schema))
                return [self._add_stage(logical.Stateful(node.origin, node.schema, (node.input,), ranking))]
        raise AssertionError(f"no rule for {node}")

    def _scan(self, node: logical.Source) -> _Flow:
        known = self._streams.setdefault(node.stream.name, node)
        if known.stream is not node.stream:
            raise UserError(
                "NAME_TAKEN",
                f"two streams are called {node.stream.name!r}",
                where=str(node.origin),
                hint="Give each stream its own name, or use one stream object for both.",
            )
        return _Flow(EdgeSource("scan", node.stream.name))

    def _add_stage(self, node: logical.Stateful) -> _Flow:
        operator = node.operator
        ports = [self._flow(part) for part in node.parts]
        flows = [flow for port in ports for flow in port]
        level = 1 + max(self._level(flow.source) for flow in flows)
        name = f"{self._prefix}{len(self._stages) + 1}-{operator.kind}"
        streams = tuple(dict.fromkeys(s for flow in flows for s in self._streams_of(flow.source)))
        if not streams:
            raise UserError(
                "NO_STREAM",
                "the rows of the epoch before have no time of their own",
                where=str(node.origin),
                hint="Read a stream beside it, as in FROM clicks JOIN LATEST(PREVIOUS(job, '...')) ON ....",
            )
        self._columns[name] = {
            column if not port else f"{port}.{column}": part.schema[column]
            for port, part in enumerate(node.parts)
            for column in sorted(operator.needs(port))
        }
        self._stages[name] = Stage(name, level, operator, streams, node.origin, _partitioners(node))
        if any(len(arriving) > MAX_INPUTS for arriving in ports) and operator.order == "strict":
            raise UserError(
                "TOO_MANY_INPUTS",
                f"an operator that keeps strict order can read at most {MAX_INPUTS} united streams",
                where=str(node.origin),
                hint="Unite fewer streams, or let their logs be one (a glob reads many files).",
            )
        for port, arriving in enumerate(ports):
            for place, flow in enumerate(arriving):
                positioned = len(arriving) > 1 and operator.needs_position
                needed, position = frozenset(operator.needs(port)), place if positioned else None
                self._add_edge(flow, EdgeTarget("stage", name), needed, port, position)
        return _Flow(EdgeSource("stage", name))

    def _add_output(self, output: logical.Output) -> None:
        after: list[Step] = []
        node = output.node
        while isinstance(node, logical.Map) and _has_top(node):
            if node.only:
                after.insert(0, KeepStep(tuple(name for name, _ in node.columns), node.origin))
            after.insert(0, MapStep(node.columns, node.origin))
            node = node.input
        top = None
        if isinstance(node, logical.Top):
            top, node = node.top, node.input
        needed = frozenset(node.schema)
        flows = self._flow(node)
        streams = dict.fromkeys(stream for flow in flows for stream in self._streams_of(flow.source))
        self._outputs[output.name] = OutputPlan(
            output.name,
            dict(output.node.schema),
            output.sinks,
            top,
            tuple(after),
            streams=tuple(streams),
            recovery=output.recovery,
        )
        for flow in flows:
            self._add_edge(flow, EdgeTarget("output", output.name), needed)

    def _add_edge(
        self, flow: _Flow, target: EdgeTarget, needed: frozenset[str], port: int = 0, place: int | None = None
    ) -> None:
        number = len(self._edges)
        self._edges.append(
            Edge(number, flow.source, flow.steps, target, port, flow.output, place, needed=needed)
        )

    # -- sources ---------------------------------------------------------------------------------

    def _level(self, source: EdgeSource) -> int:
        if source in self._jobs:
            return self._jobs[source].level
        return 0 if source.stage is None else self._stages[source.stage].level

    def _streams_of(self, source: EdgeSource) -> tuple[str, ...]:
        if source in self._jobs:
            return self._jobs[source].streams
        if source in self._previous:
            return self._previous[source].streams
        return (source.name,) if source.stage is None else self._stages[source.stage].streams


def _partitioners(node: logical.Stateful) -> tuple[Partitioner, ...]:
    """The user's own partitioners of an operator's inputs: all must have one, with as many parts, or none."""
    partitioners: list[Partitioner | None] = []
    for part in node.parts:
        while isinstance(part, logical.Map | logical.Filter):
            part = part.input
        partitioners.append(part.partitioner if isinstance(part, logical.PartitionBy) else None)
    if len({None if one is None else one.parts for one in partitioners}) > 1:
        raise UserError(
            "BAD_PARTITION",
            "rows that are to meet must be partitioned in the same way on both sides",
            where=str(node.origin),
            hint="Give both key_by a partition=... of as many parts, or neither.",
        )
    return tuple(one for one in partitioners if one is not None)


def _has_top(node: logical.Node) -> bool:
    while isinstance(node, logical.Map):
        node = node.input
    return isinstance(node, logical.Top)


def _path(node: logical.Node) -> str:
    before = " + ".join(_path(part) for part in node.inputs)
    return f"{before} -> {node.describe()}" if before else node.describe().split(":")[0]


def _add_identity(plan: Plan, columns: Mapping[str, Mapping[str, pl.DataType]], prefix: str) -> Plan:
    """Add the identity of the plan's state, and what it was in a state directory of format 1.

    It depends on the stateful operators, the types of the columns they read, and what feeds them. Prefixes are left
    out, since the state of a job is not identified by ids.
    """
    sources = {id_: sorted(str(edge.source) for edge in plan.edges_to(id_)) for id_ in plan.stages}
    former = {id_: former_id(id_, stage.operator) for id_, stage in plan.stages.items()}
    stages = {}
    for id_, stage in plan.stages.items():
        encoded = _encode(stage, [source.removeprefix(prefix) for source in sources[id_]], columns[id_])
        stages[id_] = replace(stage, identity=digest_of(encoded), former_id=former[id_])
    outputs = [(output.name, output.top) for output in plan.outputs.values()]
    shape: Json = {
        "app": plan.name,
        "streams": [*sorted(plan.scans)],
        "operators": {id_: stage.identity for id_, stage in stages.items()},
        "outputs": {name: encode(top) for name, top in outputs},
    }
    former_stages = [
        (
            former[id_],
            stage.operator,
            [former.get(source, source) for source in sources[id_]],
            {name: str(dtype) for name, dtype in columns[id_].items()},
            stage.partitioners,
        )
        for id_, stage in plan.stages.items()
    ]
    return replace(
        plan,
        stages=stages,
        fingerprint=digest_of(shape),
        former_fingerprint=former_fingerprint(plan.name, plan.scans, former_stages, outputs),
    )


def _encode(stage: Stage, sources: list[str], columns: Mapping[str, pl.DataType]) -> Json:
    """Everything that the state of a stage depends on."""
    partitioners = [encode(one) if kind_of(one) else encode_custom(one) for one in stage.partitioners]
    return {
        "operator": encode(stage.operator),
        "sources": [*sources],
        "columns": {name: encode(dtype) for name, dtype in columns.items()},
        "partitioners": [*partitioners],
    }
