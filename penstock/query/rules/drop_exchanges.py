"""Drop exchanges: rows that lie where the next operator wants them already stay in their slice.

An operator's rows lie by its keys. If the next one takes the same columns as its keys, untouched in between, and
nothing else keeps it from running in the same stage, it does, and the edge between them is a hand-over.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from penstock.operators.routing import ByKey
from penstock.query.edges import Edge
from penstock.query.physical import Plan, Stage
from penstock.query.steps import ExplodeStep, FunctionStep, KeepStep, MapStep, MergedStep, Step


def drop_exchanges(plan: Plan) -> Plan:
    """Levels as low as they can be, and the edges that need no exchange marked."""
    stages: dict[str, Stage] = {}
    for sub in plan.stages.values():  # those read come before those who read
        level = 1
        for edge in plan.edges_to(sub.id):
            if edge.source.stage is not None:
                step = 0 if _stays(plan, edge.source.stage, edge) else 1
                level = max(level, stages[edge.source.stage].level + step)
            level = max(level, plan.job_levels.get(edge.source, 0) + 1)
        stages[sub.id] = replace(sub, level=level)

    def forward(edge: Edge) -> bool:
        source, target = edge.source.stage, edge.target.stage
        if source is None or target is None:
            return False
        return stages[source].level == stages[target].level

    edges = tuple(replace(edge, forward=forward(edge)) for edge in plan.edges)
    levels = max((sub.level for sub in stages.values()), default=0)
    return replace(plan, stages=stages, edges=edges, levels=levels)


def _stays(plan: Plan, before: str, edge: Edge) -> bool:
    """Whether the rows of an edge lie where they are wanted."""
    source, target = plan.stages[before], plan.stages[edge.target.name]
    given, wanted = source.operator.partitioning, target.route(edge.port)
    if not given or not isinstance(wanted, ByKey) or source.route() != wanted:
        return False
    return given == wanted.keys and not any(_touches(step, given) for step in edge.steps)


def _touches(step: Step, keys: tuple[str, ...]) -> bool:
    """Whether a step may change the values of these columns."""
    match step:
        case MergedStep():
            return any(_touches(part, keys) for part in step.parts)
        case MapStep():
            return any(name in keys and not expr.meta.eq(pl.col(name)) for name, expr in step.columns)
        case FunctionStep():
            return True
        case ExplodeStep():
            return bool(set(keys) & set(step.columns))
        case KeepStep():
            return not set(keys) <= set(step.names)
    return False
