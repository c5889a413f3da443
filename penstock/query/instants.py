"""Outputs that give an answer for every instant: which they are, and how many of their rows are of the last one. Pure.

Receives a plan, and an output's rows in order of time; hands names and counts.

An output that ranks tells a whole ranking for an instant, one that aggregates over windows of time all groups of a
window. An epoch may bring many of either, above all when it catches up; who asks for the latest answer means the last.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import TIME
from penstock.operators.group_top import GroupTop
from penstock.operators.job_windows import JobAggregation
from penstock.query.physical import Plan


def by_instant(plan: Plan) -> frozenset[str]:
    """The outputs of a plan whose rows of one instant are a whole answer."""
    sources: dict[str, set[str]] = {}
    for edge in plan.edges:
        if edge.target.startswith("out:"):
            sources.setdefault(edge.target[4:], set()).add(edge.source)
    for source, members in {} if plan.jobs is None else plan.jobs.members.items():
        for member in members.values():
            sources.setdefault(member.output, set()).add(source)
    whole = {name for name, sub in plan.subqueries.items() if _tells_whole_answers(sub.operator)}
    return frozenset(
        name
        for name, output in plan.outputs.items()
        if output.top is not None or (name in sources and sources[name] <= whole)
    )


def of_last_instant(rows: pl.DataFrame) -> int:
    """How many rows at the end are of the latest instant; all where that is not to be seen."""
    if TIME not in rows.columns or rows.height < 2:
        return rows.height
    times = rows[TIME].to_numpy()
    earlier = np.flatnonzero(times != times[-1])
    if not len(earlier) or times[-1] != times.max():
        return rows.height
    return rows.height - int(earlier[-1]) - 1


def _tells_whole_answers(operator: object) -> bool:
    if isinstance(operator, GroupTop):  # one that tells changes tells of some groups only
        return not operator.top.changes_only
    return isinstance(operator, Aggregation | JobAggregation)
