"""Pre-reduce: where an operator can merge rows, their senders do so before the rows travel."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.edges import Edge
from penstock.query.physical import Plan


def pre_reduce(plan: Plan) -> Plan:
    """Edges to operators whose input can be merged say so."""

    def reduces(edge: Edge) -> bool:
        sub = plan.stage_of(edge.target)
        return sub is not None and sub.operator.can_pre_reduce

    return replace(plan, edges=tuple(replace(edge, reduce=reduces(edge)) for edge in plan.edges))
