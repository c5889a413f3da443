"""A job as a graph: from its streams through what remembers to what it tells, with what passes at present. Pure.

Receives a compiled job, or an app's plan, and what the engine measures; hands nodes and edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.catalogue.compiled_job import Compiled
from penstock.catalogue.planner import group_of
from penstock.query.edges import Edge, EdgeSource, EdgeTarget
from penstock.query.explain import describe_step
from penstock.query.physical import Plan
from penstock.server.response_bodies import Graph, GraphEdge, GraphNode

#: a node or an edge says at most so much
_MOST_CHARACTERS = 160


@dataclass(frozen=True)
class Flow:
    """What passes at present: events and units a second of streams, rows a second a job tells, and what the engine
    measured of each sub-query."""

    events: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    sub_queries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def one_stream(self) -> bool:
        """Whether all events are of one stream: the engine counts those of all together."""
        return len(self.units) <= 1


def of_job(job: Compiled, flow: Flow, sharing: Mapping[str, int]) -> Graph:
    """A job's graph. `sharing`: how many jobs each sub-query works for."""
    if job.plan is not None:
        return of_plan(job.plan, job.name, flow)
    said = job.standard
    assert said is not None
    stream = said.source.stream.name
    where = [f"where {_plain(condition)}" for condition in said.conditions]
    where += [f"where {_plain(operand)} = {value!r}" for operand, value in said.equal]
    nodes, edges = [_scan(stream, said.source.stream.log.describe(), flow)], []
    last = str(EdgeSource("scan", stream))
    if said.aggregated is not None:
        group = group_of(said)
        what = ", ".join(aggregate.describe() for aggregate in said.aggregated.aggregates)
        about = [what, f"over {said.aggregated.window.describe()}"]
        nodes.append(_sub_query(group, "aggregate", about, flow, sharing.get(group, 1)))
        edges.append(_edge(last, group, "; ".join([*where, "reduced before it travels"]), _came(flow, group)))
        last, where = group, []
    ranked = [] if said.top is None else [said.top.describe()]
    output = str(EdgeTarget("output", job.name))
    nodes.append(GraphNode(id=output, kind="output", title=job.name, about=ranked))
    edges.append(_edge(last, output, "; ".join(where), flow.told.get(job.name, 0.0)))
    return Graph(job=job.name, nodes=nodes, edges=edges)


def of_plan(plan: Plan, output: str, flow: Flow) -> Graph:
    """The part of a plan that makes an output."""
    wanted, edges, sources = {EdgeTarget("output", output)}, list[Edge](), dict[EdgeSource, None]()
    while True:
        found = [edge for edge in plan.edges if edge.target in wanted and edge not in edges]
        if not found:
            break
        edges += found
        sources |= dict.fromkeys(edge.source for edge in found)
        wanted |= {EdgeTarget("stage", edge.source.stage) for edge in found if edge.source.stage is not None}
    arriving = Counter(edge.target for edge in edges)
    return Graph(
        job=output,
        nodes=list(_nodes(plan, sources, output, flow)),
        edges=[_of_edge(edge, arriving[edge.target], output, flow) for edge in edges],
    )


def _nodes(plan: Plan, sources: Collection[EdgeSource], output: str, flow: Flow) -> Iterator[GraphNode]:
    for source in sorted(sources, key=str):
        name = source.name
        if source.kind in ("scan", "late"):
            title = name if source.kind == "scan" else f"late events of {name}"
            yield _scan(name, plan.scans[name].stream.log.describe(), flow, str(source), title)
        elif source.kind == "job":
            yield GraphNode(id=str(source), kind="job", title=name, about=["what this job tells"])
    for sub in plan.stages.values():
        if EdgeSource("stage", sub.id) in sources:
            yield _sub_query(sub.id, type(sub.operator).__name__, [sub.operator.describe()], flow, 1)
    top = plan.outputs[output].top
    yield GraphNode(
        id=str(EdgeTarget("output", output)),
        kind="output",
        title=output,
        about=[] if top is None else [top.describe()],
    )


def _of_edge(edge: Edge, arriving: int, output: str, flow: Flow) -> GraphEdge:
    label = "; ".join(describe_step(step) for step in edge.steps)
    if edge.target.output is not None:
        rate: float | None = flow.told.get(output, 0.0)
    elif arriving == 1:
        rate = _came(flow, edge.target.name)
    else:
        rate = None  # of several that lead to one place, only the sum is known
    return _edge(str(edge.source), str(edge.target), label, rate)


def _scan(stream: str, log: str, flow: Flow, name: str = "", title: str = "") -> GraphNode:
    return GraphNode(
        id=name or str(EdgeSource("scan", stream)),
        kind="stream",
        title=title or stream,
        about=[_cut(log)],
        units_per_second=flow.units.get(stream),
        rows_per_second=flow.events if flow.one_stream else None,
    )


def _sub_query(name: str, title: str, about: list[str], flow: Flow, jobs: int) -> GraphNode:
    measured = flow.sub_queries.get(name, {})
    return GraphNode(
        id=name,
        kind="state",
        title=title,
        about=[_cut(line) for line in about],
        jobs=jobs,
        state_bytes=measured.get("state_bytes"),
        utilisation=measured.get("utilisation"),
        rows_per_second=measured.get("rows_per_second"),
    )


def _came(flow: Flow, sub: str) -> float | None:
    return flow.sub_queries.get(sub, {}).get("rows_per_second")


def _edge(source: str, target: str, label: str, rate: float | None) -> GraphEdge:
    return GraphEdge(source=source, target=target, label=_cut(label), rows_per_second=rate)


def _plain(expression: object) -> str:
    return str(expression).removeprefix("[").removesuffix("]")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
