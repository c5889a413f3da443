"""Outputs that rest: a plan in which they get no events, while everything others depend on goes on. Pure.

Receives a plan for life and some of its outputs; hands the same plan, in the same shape, in which the sub-queries that
only these need are sent nothing, and what they come to is not told.

Invariant: state that any other output depends on is what it would be without this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import polars as pl

from penstock.query.origin import Origin
from penstock.query.physical import Edge, FilterStep, Plan

_OUT = "out:"
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
    if edge.target.startswith(_OUT):
        return edge.source in own
    return edge.target in own and edge.source not in own


def _reached(plan: Plan) -> dict[str, frozenset[str]]:
    """The outputs to which each sub-query's rows lead, however far away."""
    found: dict[str, frozenset[str]] = dict.fromkeys(plan.subqueries, frozenset())
    for _ in plan.subqueries:  # each turn takes it one sub-query further
        for edge in plan.edges:
            if edge.source in found:
                out = edge.target.startswith(_OUT)
                leads = frozenset({edge.target[len(_OUT) :]}) if out else found[edge.target]
                found[edge.source] |= leads
    return found
