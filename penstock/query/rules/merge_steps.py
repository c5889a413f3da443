"""Merge adjacent filters into one pass over the rows, and adjacent maps that do not read each other's columns."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.physical import Plan
from penstock.query.steps import FilterStep, MapStep, MergedStep, Step


def merge_steps(plan: Plan) -> Plan:
    return replace(plan, edges=tuple(replace(edge, steps=merge(edge.steps)) for edge in plan.edges))


def merge(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, with neighbours merged where possible."""
    groups: list[list[Step]] = []
    for step in steps:
        if groups and _can_merge(groups[-1], step):
            groups[-1].append(step)
        else:
            groups.append([step])
    return tuple(group[0] if len(group) == 1 else MergedStep(_mergeable(group)) for group in groups)


def _can_merge(group: list[Step], step: Step) -> bool:
    if isinstance(step, FilterStep):
        return isinstance(group[0], FilterStep)
    if not isinstance(step, MapStep) or not isinstance(group[0], MapStep):
        return False
    computed = {name for before in group if isinstance(before, MapStep) for name, _ in before.columns}
    read = {root for _, expr in step.columns for root in expr.meta.root_names()}
    return not computed & (read | {name for name, _ in step.columns})


def _mergeable(group: list[Step]) -> tuple[FilterStep | MapStep, ...]:
    return tuple(step for step in group if isinstance(step, FilterStep | MapStep))
