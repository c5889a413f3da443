"""Products of streams: every pair of events near each other. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from penstock.duration import Duration
from penstock.errors import UserError
from penstock.operators.join_columns import JoinCondition
from penstock.operators.pair_filter import split_conjuncts
from penstock.operators.product import Product
from penstock.operators.product_last import LastProduct
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.rows import Rows, stateful, stream_given

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Products(Rows):
    """What can be said of a stream and another one, pair by pair."""

    def product(
        self,
        right: Stream,
        where: pl.Expr | None = None,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        events: int | None = None,
        suffix: str = "_right",
        distinct_pairs: bool = False,
    ) -> Stream:
        """Every pair of an event here and one of `right`, near each other, for which `where` holds.

        Near is: `within` a time of each other; or the right one at most `before` earlier and `after` later; or,
        with `events`, each with the last so many events of the other side before it, in the total order of all
        events. Where both are given, both must hold. A right column whose name is taken gets `suffix`; `where`
        may name all columns of both. With `distinct_pairs`, for a stream and itself: every two different events
        once, the earlier one left.
        """
        origin = here()
        bounds = _bounds(origin, within, before, after, events, distinct_pairs)
        other = stream_given(right, origin, "a product").node
        renamed = {name: name + suffix if name in self.node.schema else name for name in other.schema}
        check.names_free(renamed.values(), origin)
        check.names_differ([*self.node.schema, *renamed.values()], origin)
        sides = [self.node, _renamed(other, renamed, origin)]
        schema = {**sides[0].schema, **sides[1].schema}
        if where is not None:
            check.condition(schema, where, origin, "the product's where")
        condition = JoinCondition.of(where)
        columns = tuple(sides[0].schema), tuple(sides[1].schema)
        if events is not None:
            last = LastProduct(*columns, events, *bounds, condition, distinct_pairs)
            return stateful(origin, schema, last, *sides)
        product = Product(*columns, bounds[0] or 0, bounds[1] or 0, condition, distinct_pairs)
        if where is not None:
            sides = [_filtered(side, where, origin) for side in sides]
        return stateful(origin, schema, product, *sides)


def _renamed(node: logical.Node, names: dict[str, str], origin: Origin) -> logical.Node:
    """The rows with other names for some of their columns."""
    if list(names) == list(names.values()):
        return node
    schema = {names[name]: dtype for name, dtype in node.schema.items()}
    columns = tuple((new, pl.col(old)) for old, new in names.items())
    return logical.Map(origin, schema, node, columns, True)


def _filtered(node: logical.Node, where: pl.Expr, origin: Origin) -> logical.Node:
    """The rows for which the conditions hold that ask about this side alone."""
    for part in split_conjuncts(where):
        asked = set(part.meta.root_names())
        if asked and asked <= set(node.schema):
            node = logical.Filter(origin, node.schema, node, part)
    return node


def _bounds(
    origin: Origin,
    within: Duration | None,
    before: Duration | None,
    after: Duration | None,
    events: int | None,
    distinct: bool,
) -> tuple[int | None, int | None]:
    """How far the right event may lie before and after the left one."""
    if within is None and before is None and after is None and events is None:
        raise UserError(
            "JOIN_UNBOUNDED",
            "without a bound every event would have to be kept for ever",
            where=str(origin),
            hint='Say how near the two must be: within="10s", before= and after=, or events=100.',
        )
    if events is not None and events < 1:
        raise _bad(origin, f"a window of {events} events has none", "Ask for at least 1.")
    if within is not None and (before is not None or after is not None):
        raise _bad(origin, "within says both directions already", "Give within, or before and after.")
    if distinct and before is not None:
        raise _bad(
            origin, "of distinct pairs the left event is the earlier one", "Give within or after, not before."
        )
    if within is None and before is None and after is None:
        return None, None
    given = (before, after) if within is None else (within, within)
    told = [
        0 if span is None else check.duration(span, origin, "BAD_PRODUCT", "near cannot be", least=0)
        for span in given
    ]
    return told[0], told[1]


def _bad(origin: Origin, primary: str, hint: str) -> UserError:
    return UserError("BAD_PRODUCT", primary, where=str(origin), hint=hint)
