"""Push projections to the scan: no column is decoded, computed or sent that is not needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import polars as pl

from penstock.query.physical import Plan
from penstock.query.steps import ExplodeStep, FilterStep, FunctionStep, KeepStep, MapStep, Step


def push_projections(plan: Plan) -> Plan:
    edges = tuple(replace(edge, steps=prune(edge.steps, edge.needed)) for edge in plan.edges)
    scans = {}
    for name, scan in plan.scans.items():
        all_columns = set(scan.columns)
        columns = {scan.stream.time} if scan.stream.time is not None else set()
        for edge in plan.edges:
            if edge.source.kind in ("scan", "late") and edge.source.name == name:
                columns |= find_roots(edge.steps, edge.needed, all_columns)
        scans[name] = replace(scan, columns=tuple(column for column in scan.columns if column in columns))
    return replace(plan, edges=edges, scans=scans)


Needed = frozenset[str] | set[str] | None


def prune(steps: tuple[Step, ...], needed: Needed) -> tuple[Step, ...]:
    """The steps without columns that are not needed after them. None: all are needed."""
    pruned: list[Step] = []
    for step in reversed(steps):
        match step:
            case MapStep() if needed is not None:
                columns = tuple((name, expr) for name, expr in step.columns if name in needed)
                needed = _before(step, needed)
                if columns:
                    pruned.append(replace(step, columns=columns))
                continue
            case KeepStep() if needed is not None:
                pruned.append(replace(step, names=tuple(name for name in step.names if name in needed)))
                continue
        needed = _before(step, needed)
        pruned.append(step)
    return tuple(reversed(pruned))


def find_roots(steps: tuple[Step, ...], needed: Needed, all_columns: set[str]) -> set[str]:
    """The columns that are needed before the first step."""
    for step in reversed(prune(steps, needed)):
        needed = _before(step, needed)
    return all_columns if needed is None else set(needed) & all_columns


def _before(step: Step, needed: Needed) -> Needed:
    """The columns needed before a step, given those needed after it."""
    if needed is None or isinstance(step, FunctionStep):
        return None
    match step:
        case MapStep():
            used = [(name, expr) for name, expr in step.columns if name in needed]
            return (set(needed) - {name for name, _ in used}) | _root_names(expr for _, expr in used)
        case FilterStep():
            return set(needed) | _root_names([step.predicate])
        case ExplodeStep():
            return set(needed) | set(step.columns)
    return needed


def _root_names(exprs: Iterable[pl.Expr]) -> set[str]:
    return {name for expr in exprs for name in expr.meta.root_names()}
