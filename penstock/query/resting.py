"""Outputs that rest: a plan in which they get no events, while everything others depend on goes on. Pure.

Receives a plan for life and some of its outputs; hands the same plan, in the same shape, in which the sub-queries that
only these need are sent nothing, and what they come to is not told.

Invariant: state that any other output depends on is what it would be without this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import polars as pl

from penstock.origin import Origin
from penstock.query.edges import Edge
from penstock.query.physical import Plan
from penstock.query.steps import FilterStep

#: before an edge's own steps, so that its rows still have their columns
_NOTHING = FilterStep(pl.lit(False), Origin("", 0))


def owned(plan: Plan, outputs: Collection[str]) -> dict[str, frozenset[str]]:
    """The sub-queries whose rows lead to none but these outputs: to which they do."""
    told = _reached(plan)
    return {sub: found for sub, found in told.items() if found and found <= set(outputs)}


def resting(plan: Plan, outputs: Collection[str]) -> Plan:
    """The plan while these outputs rest. Where such an output is fed by what does not rest, its rows are made all the
    same: whoever delivers leaves them out, and can tell how many there were."""
    own = owned(plan, outputs)
    if not own:
        return plan
    return replace(
        plan,
        rested=frozenset[str]().union(*own.values()),
        edges=tuple(
            replace(edge, steps=(_NOTHING, *edge.steps)) if _rests(edge, own) else edge for edge in plan.edges
        ),
    )


def _rests(edge: Edge, own: Collection[str]) -> bool:
    if edge.target.stage is None:
        return edge.source.stage in own
    return edge.target.stage in own and edge.source.stage not in own


def _reached(plan: Plan) -> dict[str, frozenset[str]]:
    """The outputs to which each sub-query's rows lead, however far away."""
    found: dict[str, frozenset[str]] = dict.fromkeys(plan.stages, frozenset())
    for _ in plan.stages:  # each turn takes it one sub-query further
        for edge in plan.edges:
            if edge.source.stage is not None:
                output = edge.target.output
                leads = frozenset({output}) if output is not None else found[edge.target.name]
                found[edge.source.stage] |= leads
    return found
