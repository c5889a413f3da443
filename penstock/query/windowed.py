"""A windowed stream: what to compute in each window. Every call returns something new and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.operators import functions
from penstock.operators.aggregate import Aggregation
from penstock.operators.functions import Aggregate
from penstock.query import check
from penstock.query.origin import here
from penstock.query.rows import KeyedRows, ordered, stateful
from penstock.words.errors import UserError

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Windowed(KeyedRows):
    """A keyed stream cut into windows; says what to compute in each."""

    size: int
    running: bool

    def count(self, alias: str = "count") -> Stream:
        """How many events."""
        return self.aggregate(functions.count(alias))

    def sum(self, column: str, alias: str | None = None) -> Stream:
        """The sum of a column."""
        return self.aggregate(functions.sum_(column, alias))

    def aggregate(self, *aggregates: Aggregate) -> Stream:
        """Several aggregates at once: `count()`, `sum_("bytes")`, `min_`, `max_`, `avg`."""
        origin = here()
        schema = self.node.schema
        check.columns_exist([a.column for a in aggregates if a.column], schema, origin, "the aggregate")
        check.names_free([a.alias for a in aggregates], origin)
        try:
            resolved = tuple(aggregate.resolved(schema) for aggregate in aggregates)
        except UserError as error:
            raise UserError(
                error.condition, error.primary, detail=error.detail, hint=error.hint, where=str(origin)
            ) from None
        when = ["as_of"] if self.running else ["window_start", "window_end"]
        check.names_differ([*when, *self.keys, *(a.alias for a in aggregates)], origin)
        operator = Aggregation(self.keys, self.size, resolved, self.running)
        events = ordered(origin, self, [a.column for a in aggregates if a.column])
        return stateful(origin, operator.schema(schema), operator, events)
