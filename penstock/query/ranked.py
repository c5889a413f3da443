"""Which rows can be ranked: those of an aggregate over windows that all keys share, or since the beginning. Runs
nothing.
"""

from __future__ import annotations

from penstock.errors import UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.count_windows import CountWindows
from penstock.operators.group_top import GroupTop
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.origin import Origin
from penstock.query import logical


def aggregate_under(node: logical.Node, origin: Origin) -> Aggregation | RunningAggregation:
    """The aggregate whose rows these are, with nothing but maps and filters in between; raises if there is none."""
    filtered, below = False, node
    while isinstance(below, logical.Map | logical.Filter):
        filtered |= isinstance(below, logical.Filter)
        below = below.input
    found = below.operator if isinstance(below, logical.Stateful) else None
    if isinstance(found, Aggregation) or (isinstance(found, RunningAggregation) and not filtered):
        return found
    primary, hint = _reason(below, found)
    raise UserError("TOP_WITHOUT_AGGREGATE", primary, where=str(origin), hint=hint)


def _reason(node: logical.Node, operator: object) -> tuple[str, str]:
    if isinstance(node, logical.Top) or isinstance(operator, GroupTop):
        return (
            "these rows have been ranked: top of a top is not an aggregate's",
            'Say in one top(k, by, per=...) what is wanted, or put .filter(col("rank") <= ...) after the first.',
        )
    if isinstance(operator, SessionWindows | CountWindows | LandmarkWindows):
        return (
            "top compares the rows of one window, and these windows begin and end for each key by itself",
            'Take windows all keys share, as in .window("30s"), or put such windows and an aggregate on top of these: '
            '.key_by(...).window("1h").aggregate(ps.max_(...)).top(10).',
        )
    if isinstance(operator, PeriodicAggregation | OnChangeAggregation):
        return (
            "top needs whole windows or running totals, and with emit an aggregate tells parts of windows",
            'Leave emit out; for answers while a window is open use .running("10s").',
        )
    if isinstance(operator, RunningAggregation):
        return (
            "a filter after a running aggregate could not take back a row that top has seen",
            "Put the filter before the aggregate, or after top.",
        )
    return (
        "top needs the rows of an aggregate",
        'Aggregate first, as in .key_by("page").window("30s").count().top(10).',
    )
