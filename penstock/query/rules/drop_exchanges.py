"""Drop exchanges between operators with the same keys: the rows stay in their slice.

An operator's rows are partitioned by its keys. If the next one has the same keys, computed by no step in between, and
nothing else delays it to a later level, it runs in the same level, and the edge between them is a forward edge.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from penstock.operators.routes import ByKey
from penstock.query.physical import Plan, Stage
from penstock.query.steps import Edge, ExplodeStep, FunctionStep, KeepStep, MapStep, MergedStep, Step


def drop_exchanges(plan: Plan) -> Plan:
    """Give each stage the lowest possible level, and mark the edges that need no exchange."""
    stages: dict[str, Stage] = {}
    for stage in plan.stages.values():  # sources come before their readers
        level = 1
        for edge in plan.edges_to(stage.id):
            if edge.source.stage is not None:
                step = 0 if _keeps_partitioning(plan, edge.source.stage, edge) else 1
                level = max(level, stages[edge.source.stage].level + step)
            level = max(level, plan.job_levels.get(edge.source, 0) + 1)
        stages[stage.id] = replace(stage, level=level)

    def is_forward(edge: Edge) -> bool:
        source, target = edge.source.stage, edge.target.stage
        return source is not None and target is not None and stages[source].level == stages[target].level

    edges = tuple(replace(edge, forward=is_forward(edge)) for edge in plan.edges)
    levels = max((stage.level for stage in stages.values()), default=0)
    return replace(plan, stages=stages, edges=edges, levels=levels)


def _keeps_partitioning(plan: Plan, source_id: str, edge: Edge) -> bool:
    """Whether the rows of an edge are partitioned as its target needs them."""
    source, target = plan.stages[source_id], plan.stages[edge.target.name]
    keys, route = source.operator.partitioning, target.route(edge.port)
    if not keys or not isinstance(route, ByKey) or source.route() != route:
        return False
    return keys == route.keys and not any(_changes(step, keys) for step in edge.steps)


def _changes(step: Step, keys: tuple[str, ...]) -> bool:
    """Whether a step may change the values of these columns."""
    match step:
        case MergedStep():
            return any(_changes(part, keys) for part in step.parts)
        case MapStep():
            return any(name in keys and not expr.meta.eq(pl.col(name)) for name, expr in step.columns)
        case FunctionStep():
            return True
        case ExplodeStep():
            return bool(set(keys) & set(step.columns))
        case KeepStep():
            return not set(keys) <= set(step.names)
    return False
