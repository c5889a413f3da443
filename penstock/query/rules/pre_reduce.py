"""Pre-reduce: where an operator can merge rows, their senders do so before the rows travel."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.physical import Plan


def pre_reduce(plan: Plan) -> Plan:
    """Edges to operators whose input can be merged say so."""

    def reduces(target: str) -> bool:
        return target in plan.subqueries and plan.subqueries[target].operator.reduces

    return replace(plan, edges=tuple(replace(edge, reduce=reduces(edge.target)) for edge in plan.edges))
