"""Pre-reduce: if an operator can merge rows, their senders merge them before the exchange."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.physical import Plan
from penstock.query.steps import Edge


def pre_reduce(plan: Plan) -> Plan:
    def reduces(edge: Edge) -> bool:
        stage = plan.stage_of(edge.target)
        return stage is not None and stage.operator.can_pre_reduce

    return replace(plan, edges=tuple(replace(edge, reduce=reduces(edge)) for edge in plan.edges))
