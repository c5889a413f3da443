"""Merge adjacent stateless steps: filters become one pass over the rows, and so do maps that do not need each other."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.physical import Plan
from penstock.query.steps import FilterStep, MapStep, MergedStep, Step


def merge_steps(plan: Plan) -> Plan:
    """Every edge with as few passes over its rows as can be."""
    return replace(plan, edges=tuple(replace(edge, steps=merged(edge.steps)) for edge in plan.edges))


def merged(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Neighbours that can be done in one go, in one step each."""
    groups: list[list[FilterStep | MapStep]] = []
    found: list[Step | list[FilterStep | MapStep]] = []
    for step in steps:
        group = groups[-1] if groups and found and found[-1] is groups[-1] else None
        if isinstance(step, FilterStep | MapStep):
            if group is not None and _together(group, step):
                group.append(step)
                continue
            groups.append([step])
            found.append(groups[-1])
        else:
            found.append(step)
    return tuple(
        (MergedStep(tuple(part)) if len(part) > 1 else part[0]) if isinstance(part, list) else part
        for part in found
    )


def _together(group: list[FilterStep | MapStep], step: FilterStep | MapStep) -> bool:
    if isinstance(step, FilterStep):
        return isinstance(group[0], FilterStep)
    made = {name for before in group if isinstance(before, MapStep) for name, _ in before.columns}
    used = {root for _, expr in step.columns for root in expr.meta.root_names()}
    return isinstance(group[0], MapStep) and not made & (used | {name for name, _ in step.columns})
