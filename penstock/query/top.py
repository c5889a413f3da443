"""The method `top`: the best rows of a window, or of running totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.count_windows import CountWindows
from penstock.operators.group_top import GroupTop, columns_of
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.top_k import TopK
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.rows import Rows, stateful, stream_of

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class TopRows(Rows):
    """Rows that can be ranked, if they are those of an aggregate."""

    def top(
        self,
        k: int,
        by: str | None = None,
        *,
        per: str | Sequence[str] = (),
        least: bool = False,
        changes_only: bool | None = None,
    ) -> Stream:
        """The k best rows of each window, or of running aggregates; `by` is the last column if not given.

        With `per`, the k best of every value of these columns, which must be keys for running aggregates. Ties go to
        the smaller key. With `changes_only`, a ranking (with `per`: of a group) is emitted only when it differs from
        the one before. That is the default for running aggregates; of windows, every ranking is emitted.
        """
        origin = here()
        aggregated = _find_aggregate(self.node, origin)
        if k < 1:
            raise UserError("BAD_TOP", f"top {k} has no rows", where=str(origin), hint="Request at least 1.")
        by = by or list(self.node.schema)[-1]
        groups = (per,) if isinstance(per, str) else tuple(dict.fromkeys(per))
        schema = self.node.schema
        check.columns_exist([by, *aggregated.keys, *groups], schema, origin, "top")
        check.keys_fit(groups, schema, origin)
        check.names_differ(["rank", *schema], origin)
        running = isinstance(aggregated, RunningAggregation)
        if running and not set(groups) <= set(aggregated.keys):
            raise UserError(
                "BAD_TOP",
                "a running total that moved to another group could not be taken back from the one it was in",
                where=str(origin),
                hint=f"Let per be some of the keys: {', '.join(aggregated.keys) or 'there are none'}.",
            )
        changes = running if changes_only is None else changes_only
        top = TopK(k, by, aggregated.keys, running, not least, changes)
        if groups:
            ranking = GroupTop(groups, top, columns_of(schema))
            return stateful(origin, ranking.schema(), ranking, self.node)
        return stream_of(logical.Top(origin, top.schema(schema), self.node, top))


def _find_aggregate(node: logical.Node, origin: Origin) -> Aggregation | RunningAggregation:
    """The aggregate whose rows these are, with nothing but maps and filters in between. Raises if there is none."""
    filtered, below = False, node
    while isinstance(below, logical.Map | logical.Filter):
        filtered |= isinstance(below, logical.Filter)
        below = below.input
    operator = below.operator if isinstance(below, logical.Stateful) else None
    if isinstance(operator, Aggregation) or (isinstance(operator, RunningAggregation) and not filtered):
        return operator
    primary, hint = _reason(below, operator)
    raise UserError("TOP_WITHOUT_AGGREGATE", primary, where=str(origin), hint=hint)


def _reason(node: logical.Node, operator: object) -> tuple[str, str]:
    if isinstance(node, logical.Top) or isinstance(operator, GroupTop):
        return (
            "these rows have been ranked: top of a top is not an aggregate's",
            'Use one top(k, by, per=...), or put .filter(col("rank") <= ...) after the first.',
        )
    if isinstance(operator, SessionWindows | CountWindows | LandmarkWindows):
        return (
            "top compares the rows of one window, and these windows start and end for each key by itself",
            'Use windows that all keys share, as in .window("30s"), or add such windows and an aggregate after these: '
            '.key_by(...).window("1h").aggregate(ps.max_(...)).top(10).',
        )
    if isinstance(operator, PeriodicAggregation | OnChangeAggregation):
        return (
            "top needs whole windows or running totals, and with emit an aggregate emits parts of windows",
            'Leave emit out; for results while a window is open use .running("10s").',
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
