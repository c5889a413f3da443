"""Push projections to the scan: no column is decoded, computed or sent that nobody needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import polars as pl

from penstock.query.physical import Plan
from penstock.query.steps import ExplodeStep, FilterStep, FunctionStep, KeepStep, MapStep, Step


def push_projections(plan: Plan) -> Plan:
    """Edges and scans with the needed columns only."""
    edges = tuple(replace(edge, steps=pruned(edge.steps, edge.needed)) for edge in plan.edges)
    scans = {}
    for name, scan in plan.scans.items():
        everything = set(scan.columns)
        wanted = {scan.stream.time} if scan.stream.time is not None else set()
        for edge in plan.edges:
            if edge.source.kind in ("scan", "late") and edge.source.name == name:
                wanted |= roots(edge.steps, edge.needed, everything)
        scans[name] = replace(scan, columns=tuple(column for column in scan.columns if column in wanted))
    return replace(plan, edges=edges, scans=scans)


Needed = frozenset[str] | set[str] | None


def pruned(steps: tuple[Step, ...], needed: Needed) -> tuple[Step, ...]:
    """The steps without the columns that nobody after them needs. None: all are needed."""
    kept: list[Step] = []
    for step in reversed(steps):
        match step:
            case MapStep() if needed is not None:
                columns = tuple((name, expr) for name, expr in step.columns if name in needed)
                needed = _before(step, needed)
                if columns:
                    kept.append(replace(step, columns=columns))
                continue
            case KeepStep() if needed is not None:
                kept.append(replace(step, names=tuple(name for name in step.names if name in needed)))
                continue
        needed = _before(step, needed)
        kept.append(step)
    return tuple(reversed(kept))


def roots(steps: tuple[Step, ...], needed: Needed, everything: set[str]) -> set[str]:
    """The columns that must be there before the first step."""
    for step in reversed(pruned(steps, needed)):
        needed = _before(step, needed)
    return everything if needed is None else set(needed) & everything


def _before(step: Step, needed: Needed) -> Needed:
    """The columns needed before a step, given those needed after it."""
    if needed is None or isinstance(step, FunctionStep):
        return None
    match step:
        case MapStep():
            used = [(name, expr) for name, expr in step.columns if name in needed]
            return (set(needed) - {name for name, _ in used}) | _named(expr for _, expr in used)
        case FilterStep():
            return set(needed) | _named([step.predicate])
        case ExplodeStep():
            return set(needed) | set(step.columns)
    return needed


def _named(exprs: Iterable[pl.Expr]) -> set[str]:
    return {name for expr in exprs for name in expr.meta.root_names()}
