"""Draws the plan of a job as a graph of streams, stages and the output, with current rates. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.planner import template_group_id
from penstock.engine.status import StageStatus
from penstock.query.explain import describe_step
from penstock.query.physical import Plan
from penstock.query.steps import Edge, EdgeSource, EdgeTarget
from penstock.server.response_bodies import Graph, GraphEdge, GraphNode

#: the longest text of a node or an edge
_MAX_CHARACTERS = 160


@dataclass(frozen=True)
class Rates:
    """Current rates a second: events of all streams, bytes or records of each stream, rows that each job emits; and the
    measurements of each stage."""

    events: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict)
    emitted: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, StageStatus] = field(default_factory=dict)

    @property
    def has_one_stream(self) -> bool:
        """Whether all events are of one stream; the engine counts those of all streams together."""
        return len(self.units) <= 1


def job_graph(job: CompiledJob, rates: Rates, sharing: Mapping[str, int]) -> Graph:
    """The graph of a job. `sharing`: how many jobs share each stage."""
    if job.plan is not None:
        return plan_graph(job.plan, job.name, rates)
    template = job.template
    assert template is not None
    stream = template.source.stream.name
    where = [f"where {_plain(condition)}" for condition in template.conditions]
    where += [f"where {_plain(operand)} = {value!r}" for operand, value in template.equalities]
    nodes, edges = [_scan(stream, template.source.stream.log.describe(), rates)], []
    last = str(EdgeSource("scan", stream))
    if template.aggregation is not None:
        group = template_group_id(template)
        what = ", ".join(aggregate.describe() for aggregate in template.aggregation.aggregates)
        about = [what, f"over {template.aggregation.window.describe()}"]
        nodes.append(_stage(group, "aggregate", about, rates, sharing.get(group, 1)))
        edges.append(
            _edge(
                last, group, "; ".join([*where, "reduced before it travels"]), _rows_per_second(rates, group)
            )
        )
        last, where = group, []
    ranked = [] if template.top is None else [template.top.describe()]
    output = str(EdgeTarget("output", job.name))
    nodes.append(GraphNode(id=output, kind="output", title=job.name, about=ranked))
    edges.append(_edge(last, output, "; ".join(where), rates.emitted.get(job.name, 0.0)))
    return Graph(job=job.name, nodes=nodes, edges=edges)


def plan_graph(plan: Plan, output: str, rates: Rates) -> Graph:
    """The graph of the part of a plan that an output needs."""
    wanted, edges, sources = {EdgeTarget("output", output)}, list[Edge](), dict[EdgeSource, None]()
    while True:
        new = [edge for edge in plan.edges if edge.target in wanted and edge not in edges]
        if not new:
            break
        edges += new
        sources |= dict.fromkeys(edge.source for edge in new)
        wanted |= {EdgeTarget("stage", edge.source.stage) for edge in new if edge.source.stage is not None}
    arriving = Counter(edge.target for edge in edges)
    return Graph(
        job=output,
        nodes=list(_nodes(plan, sources, output, rates)),
        edges=[_plan_edge(edge, arriving[edge.target], output, rates) for edge in edges],
    )


def _nodes(plan: Plan, sources: Collection[EdgeSource], output: str, rates: Rates) -> Iterator[GraphNode]:
    for source in sorted(sources, key=str):
        name = source.name
        if source.kind in ("scan", "late"):
            title = name if source.kind == "scan" else f"late events of {name}"
            yield _scan(name, plan.scans[name].stream.log.describe(), rates, str(source), title)
        elif source.kind == "job":
            yield GraphNode(id=str(source), kind="job", title=name, about=["what this job emits"])
    for sub in plan.stages.values():
        if EdgeSource("stage", sub.id) in sources:
            yield _stage(sub.id, type(sub.operator).__name__, [sub.operator.describe()], rates, 1)
    top = plan.outputs[output].top
    yield GraphNode(
        id=str(EdgeTarget("output", output)),
        kind="output",
        title=output,
        about=[] if top is None else [top.describe()],
    )


def _plan_edge(edge: Edge, arriving: int, output: str, rates: Rates) -> GraphEdge:
    label = "; ".join(describe_step(step) for step in edge.steps)
    if edge.target.output is not None:
        rate: float | None = rates.emitted.get(output, 0.0)
    elif arriving == 1:
        rate = _rows_per_second(rates, edge.target.name)
    else:
        rate = None  # of several edges with one target, only the sum is known
    return _edge(str(edge.source), str(edge.target), label, rate)


def _scan(stream: str, log: str, rates: Rates, name: str = "", title: str = "") -> GraphNode:
    return GraphNode(
        id=name or str(EdgeSource("scan", stream)),
        kind="stream",
        title=title or stream,
        about=[_cut(log)],
        units_per_second=rates.units.get(stream),
        rows_per_second=rates.events if rates.has_one_stream else None,
    )


def _stage(name: str, title: str, about: list[str], rates: Rates, jobs: int) -> GraphNode:
    measured = rates.stages.get(name)
    return GraphNode(
        id=name,
        kind="state",
        title=title,
        about=[_cut(line) for line in about],
        jobs=jobs,
        state_bytes=None if measured is None else measured.state_bytes,
        utilisation=None if measured is None else measured.utilisation,
        rows_per_second=_rows_per_second(rates, name),
    )


def _rows_per_second(rates: Rates, stage: str) -> float | None:
    measured = rates.stages.get(stage)
    return None if measured is None else measured.rows_per_second


def _edge(source: str, target: str, label: str, rate: float | None) -> GraphEdge:
    return GraphEdge(source=source, target=target, label=_cut(label), rows_per_second=rate)


def _plain(expression: object) -> str:
    return str(expression).removeprefix("[").removesuffix("]")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
