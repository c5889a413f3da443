"""Outputs that give an answer for every instant: what makes them so, and how many rows are of the last one. Pure.

Receives operators, and an output's rows in order of time; hands what they tell and counts.

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


def of_last_instant(rows: pl.DataFrame) -> int:
    """How many rows at the end are of the latest instant; all where that is not to be seen."""
    if TIME not in rows.columns or rows.height < 2:
        return rows.height
    times = rows[TIME].to_numpy()
    earlier = np.flatnonzero(times != times[-1])
    if not len(earlier) or times[-1] != times.max():
        return rows.height
    return rows.height - int(earlier[-1]) - 1


def tells_whole_answers(operator: object) -> bool:
    """Whether the rows of one instant that an operator makes are a whole answer."""
    if isinstance(operator, GroupTop):  # one that tells changes tells of some groups only
        return not operator.top.changes_only
    return isinstance(operator, Aggregation | JobAggregation)
