"""The compiler: from the logical plan to sub-queries, edges and levels.

Receives an `App`; hands a `Plan`. Every stateful node starts a sub-query; the stateless nodes between two
stateful ones ride on the edge, so they run where their input is. Only the columns that somebody needs are
read and sent. Aggregates are reduced before the exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.last_n import LastN
from penstock.operators.top_k import TopK
from penstock.query import logical
from penstock.query.physical import (
    Edge,
    FilterStep,
    FunctionStep,
    KeepStep,
    MapStep,
    OutputPlan,
    Plan,
    ScanPlan,
    Step,
    SubQuery,
)
from penstock.words.errors import UserError


@dataclass(frozen=True)
class _Flow:
    """Rows as they leave a source: where from, through which steps."""

    source: str
    steps: tuple[Step, ...] = ()

    def through(self, step: Step) -> _Flow:
        return replace(self, steps=(*self.steps, step))


def compiled(app: logical.App) -> Plan:
    """The physical plan of an application."""
    return _Compiler(app).plan()


class _Compiler:
    def __init__(self, app: logical.App) -> None:
        self._app = app
        self._streams: dict[str, logical.StreamDefinition] = {}
        self._subqueries: dict[str, SubQuery] = {}
        #: the columns each sub-query keeps of its input, with their types
        self._kept: dict[str, dict[str, str]] = {}
        self._flows: dict[logical.Node, list[_Flow]] = {}
        self._edges: list[tuple[_Flow, str, set[str] | None]] = []
        self._outputs: dict[str, OutputPlan] = {}

    def plan(self) -> Plan:
        for output in self._app.outputs:
            self._add_output(output)
        edges = [
            Edge(number, flow.source, pruned(flow.steps, needed), target)
            for number, (flow, target, needed) in enumerate(self._edges)
        ]
        scans = {name: ScanPlan(stream, self._columns(name)) for name, stream in self._streams.items()}
        summary = "; ".join(f"{o.name}: {_path(o.node)}" for o in self._app.outputs)
        levels = max((sub.level for sub in self._subqueries.values()), default=0)
        plan = Plan(self._app.name, scans, self._subqueries, tuple(edges), self._outputs, "", summary, levels)
        return replace(plan, fingerprint=_fingerprint(plan, self._kept))

    # -- nodes to flows --------------------------------------------------------------------------

    def _flow(self, node: logical.Node) -> list[_Flow]:
        if node not in self._flows:
            self._flows[node] = self._lowered(node)
        return self._flows[node]

    def _lowered(self, node: logical.Node) -> list[_Flow]:
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
            case logical.MapBatches():
                function = FunctionStep(node.function, node.schema, node.origin)
                return [flow.through(function) for flow in self._flow(node.input)]
            case logical.Union():
                return [flow for part in node.parts for flow in self._flow(part)]
            case logical.Last():
                return [self._stateful(node, LastN(node.keys, node.n, node.values, node.partial))]
            case logical.Aggregated():
                made = Aggregation(node.keys, node.size, node.aggregates, node.running)
                return [self._stateful(node, made)]
            case logical.Top():
                raise UserError(
                    "TOP_NOT_LAST",
                    "a top-k can be followed by map and select only",
                    where=str(node.origin),
                    hint="Put the filter, key_by or union before the top, or make it another output.",
                )
        raise AssertionError(f"no rule for {node}")

    def _scan(self, node: logical.Source) -> _Flow:
        known = self._streams.setdefault(node.stream.name, node.stream)
        if known is not node.stream:
            raise UserError(
                "NAME_TAKEN",
                f"two streams are called {node.stream.name!r}",
                where=str(node.origin),
                hint="Give each stream its own name, or use one stream object for both.",
            )
        return _Flow(f"scan:{node.stream.name}")

    def _stateful(self, node: logical.Step, operator: Operator) -> _Flow:
        flows = self._flow(node.input)
        level = 1 + max(self._level(flow.source) for flow in flows)
        name = f"{len(self._subqueries) + 1}-{type(operator).__name__.lower()}"
        streams = tuple(dict.fromkeys(s for flow in flows for s in self._streams_of(flow.source)))
        self._kept[name] = {column: str(node.input.schema[column]) for column in sorted(operator.needs())}
        self._subqueries[name] = SubQuery(name, level, operator, streams, node.origin)
        self._edges += [(flow, name, operator.needs()) for flow in flows]
        return _Flow(name)

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
            under = node.input
            while isinstance(under, logical.Step) and not isinstance(under, logical.Aggregated):
                under = under.input
            assert isinstance(under, logical.Aggregated)
            top = TopK(node.k, node.by, under.keys, under.running, node.descending, node.changes_only)
            node = node.input
        needed = set(node.schema)
        self._outputs[output.name] = OutputPlan(
            output.name, dict(output.node.schema), output.sinks, top, tuple(after)
        )
        self._edges += [(flow, f"out:{output.name}", needed) for flow in self._flow(node)]

    # -- facts -----------------------------------------------------------------------------------

    def _level(self, source: str) -> int:
        return 0 if source.startswith("scan:") else self._subqueries[source].level

    def _streams_of(self, source: str) -> tuple[str, ...]:
        return (source[5:],) if source.startswith("scan:") else self._subqueries[source].streams

    def _columns(self, stream: str) -> tuple[str, ...]:
        """The columns of a stream that some edge needs."""
        everything = self._streams[stream].decoder.schema()
        wanted: set[str] = {self._streams[stream].time}
        for flow, _, needed in self._edges:
            if flow.source == f"scan:{stream}":
                wanted |= roots(flow.steps, needed, set(everything))
        return tuple(name for name in everything if name in wanted)


def pruned(steps: tuple[Step, ...], needed: set[str] | None) -> tuple[Step, ...]:
    """The steps without the columns that nobody after them needs."""
    kept: list[Step] = []
    for step in reversed(steps):
        if needed is not None and isinstance(step, MapStep):
            columns = tuple((name, expr) for name, expr in step.columns if name in needed)
            needed = (needed - {name for name, _ in columns}) | _roots(expr for _, expr in columns)
            if columns:
                kept.append(replace(step, columns=columns))
            continue
        if needed is not None and isinstance(step, KeepStep):
            kept.append(replace(step, names=tuple(name for name in step.names if name in needed)))
            continue
        if needed is not None and isinstance(step, FilterStep):
            needed = needed | _roots([step.predicate])
        if isinstance(step, FunctionStep):
            needed = None
        kept.append(step)
    return tuple(reversed(kept))


def roots(steps: tuple[Step, ...], needed: set[str] | None, everything: set[str]) -> set[str]:
    """The columns that must be there before the first step."""
    for step in reversed(pruned(steps, needed)):
        if needed is not None and isinstance(step, MapStep):
            needed = (needed - {n for n, _ in step.columns}) | _roots(expr for _, expr in step.columns)
        elif needed is not None and isinstance(step, FilterStep):
            needed = needed | _roots([step.predicate])
        elif isinstance(step, FunctionStep):
            needed = None
    return everything if needed is None else needed & everything


def _roots(exprs: Iterable[pl.Expr]) -> set[str]:
    return {name for expr in exprs for name in expr.meta.root_names()}


def _has_top(node: logical.Node) -> bool:
    while isinstance(node, logical.Map):
        node = node.input
    return isinstance(node, logical.Top)


def _path(node: logical.Node) -> str:
    before = " + ".join(_path(part) for part in node.inputs)
    return f"{before} -> {node.describe()}" if before else node.describe().split(":")[0]


def _fingerprint(plan: Plan, kept: Mapping[str, Mapping[str, str]]) -> str:
    """What the state's shape depends on: the stateful operators, the types they keep, and what feeds them."""
    parts = [plan.name, *sorted(plan.scans)]
    for sub in plan.subqueries.values():
        sources = sorted(edge.source for edge in plan.edges if edge.target == sub.id)
        parts.append(f"{sub.id}|{sub.operator!r}|{sources}|{kept[sub.id]}")
    parts += [f"{out.name}|{out.top!r}" for out in plan.outputs.values()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
