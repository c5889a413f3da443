"""The method `product`: every pair of events near each other."""

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
from penstock.query.rows import Rows, require_stream, stateful

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Products(Rows):
    """Rows that can be paired with those of another stream."""

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

        Near means: `within` a time of each other; or the right one at most `before` earlier and `after` later; or,
        with `events`, each with the last so many events of the other side before it, in the total order of all events.
        If both are given, both must hold. A right column whose name is taken gets `suffix`; `where` may name all
        columns of both. `distinct_pairs`, for a stream and itself, emits every two different events once, the earlier
        one left.
        """
        origin = here()
        bounds = _bounds(origin, within, before, after, events, distinct_pairs)
        other = require_stream(right, origin, "a product").node
        renamed = {name: name + suffix if name in self.node.schema else name for name in other.schema}
        check.names_free(renamed.values(), origin)
        check.names_differ([*self.node.schema, *renamed.values()], origin)
        sides = [self.node, _rename(other, renamed, origin)]
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
            sides = [_filter(side, where, origin) for side in sides]
        return stateful(origin, schema, product, *sides)


def _rename(node: logical.Node, names: dict[str, str], origin: Origin) -> logical.Node:
    """The rows with other names for some of their columns."""
    if list(names) == list(names.values()):
        return node
    schema = {names[name]: dtype for name, dtype in node.schema.items()}
    columns = tuple((new, pl.col(old)) for old, new in names.items())
    return logical.Map(origin, schema, node, columns, True)


def _filter(node: logical.Node, where: pl.Expr, origin: Origin) -> logical.Node:
    """The rows for which those conditions hold that read this side alone."""
    for part in split_conjuncts(where):
        names = set(part.meta.root_names())
        if names and names <= set(node.schema):
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
            hint='Declare how near the two must be: within="10s", before= and after=, or events=100.',
        )
    if events is not None and events < 1:
        raise _bad(origin, f"a window of {events} events has none", "Request at least 1.")
    if within is not None and (before is not None or after is not None):
        raise _bad(origin, "within covers both directions already", "Pass within, or before and after.")
    if distinct and before is not None:
        raise _bad(
            origin, "of distinct pairs the left event is the earlier one", "Pass within or after, not before."
        )
    if within is None and before is None and after is None:
        return None, None
    sides = (before, after) if within is None else (within, within)
    spans = [
        0 if span is None else check.duration(span, origin, "BAD_PRODUCT", "near cannot be", least=0)
        for span in sides
    ]
    return spans[0], spans[1]


def _bad(origin: Origin, primary: str, hint: str) -> UserError:
    return UserError("BAD_PRODUCT", primary, where=str(origin), hint=hint)
