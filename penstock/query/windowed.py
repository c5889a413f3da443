"""A windowed stream: what to compute in each window. Every call returns a new object and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from penstock.duration import Duration
from penstock.errors import UserError
from penstock.operators import functions
from penstock.operators.functions import AggregateFunction
from penstock.operators.functions.user import User
from penstock.origin import here
from penstock.query import check
from penstock.query.purity import check_repeatable
from penstock.query.rows import KeyedRows, order_strictly, stateful
from penstock.query.windows import Emission, Window

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Windowed(KeyedRows):
    """A keyed stream cut into windows."""

    window: Window

    def emit(self, when: str | None = None, *, every: Duration | None = None) -> Windowed:
        """Choose when results are emitted; they get the column `as_of` beside those of the window.

        `"close"`: once, when a window closes. This is the default, without `as_of`.

        `every="10s"`: also while a window is open, at each multiple of ten seconds of event time, the result so far of
        every key and window that had events since the last emission; and once more when the window closes, if there
        were events since. `as_of` is that multiple, or the window's end: the result covers all events of the window
        before it.

        `"change"`: after every event that changes the result of its window, in strict order; if windows overlap, of
        every such window. `as_of` is the event's time.
        """
        origin = here()
        if (when is None) == (every is None) or when not in (None, "close", "change"):
            raise UserError(
                "BAD_EMIT",
                f"results cannot be emitted at {when!r}" if when else "emit needs to know when",
                where=str(origin),
                hint='Use .emit("close"), .emit("change") or .emit(every="10s").',
            )
        emission: Emission
        if every is not None:
            emission = check.duration(every, origin, "BAD_EMIT", "results are emitted")
        else:
            emission = "change" if when == "change" else "close"
        return replace(self, window=self.window.with_emission(emission, origin))

    def count(self, alias: str = "count") -> Stream:
        """How many events."""
        return self.aggregate(functions.count(alias))

    def sum(self, column: str, alias: str | None = None) -> Stream:
        """The sum of a column."""
        return self.aggregate(functions.sum_(column, alias))

    def aggregate(self, *aggregates: AggregateFunction) -> Stream:
        """Several aggregates at once, as in `.aggregate(count(), sum_("bytes"), median("bytes"))`."""
        origin = here()
        schema = self.node.schema
        if not aggregates:
            raise UserError(
                "MISSING_AGGREGATE",
                "aggregate needs to know what to compute",
                where=str(origin),
                hint='As in .aggregate(ps.count(), ps.sum_("bytes")); .count() counts the events.',
            )
        for one in aggregates:
            if not isinstance(one, AggregateFunction):
                raise UserError(
                    "NOT_AN_AGGREGATE",
                    f"{one if isinstance(one, pl.Expr) else repr(one)} is no aggregate function",
                    where=str(origin),
                    hint=f"Use Penstock's own, as in .aggregate(ps.sum_({_guess_column(one)!r}), ps.count()); one of "
                    "your own is made with ps.aggregate_function(...).",
                )
            if isinstance(one, User):
                for function in one.function.functions:
                    check_repeatable(function, origin)
        check.columns_exist([a.column for a in aggregates if a.column], schema, origin, "the aggregate")
        check.names_free([a.alias for a in aggregates], origin)
        try:
            resolved = tuple(aggregate.resolve(schema) for aggregate in aggregates)
        except UserError as error:
            raise UserError(
                error.condition, error.primary, detail=error.detail, hint=error.hint, where=str(origin)
            ) from None
        check.names_differ([*self.window.columns, *self.keys, *(a.alias for a in aggregates)], origin)
        columns = self.window.columns | {key: schema[key] for key in self.keys}
        columns |= {aggregate.alias: aggregate.dtype(schema) for aggregate in resolved}
        operator = self.window.operator(self.keys, resolved)
        return stateful(origin, columns, operator, order_strictly(origin, self, operator))


def _guess_column(thing: object) -> str:
    """The column that was probably meant."""
    if isinstance(thing, pl.Expr):
        return next(iter(thing.meta.root_names()), "n")
    return thing if isinstance(thing, str) else "n"
