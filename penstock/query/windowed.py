"""A windowed stream: what to compute in each window. Every call returns something new and runs nothing.

A window is a description of its own kind (of time, of counts, ...): it says which columns its rows begin with
and which operator computes aggregates over it. Whatever can do that can stand here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from penstock.operators import functions
from penstock.operators.contract import Operator
from penstock.operators.functions import AggregateFunction
from penstock.query import check
from penstock.query.origin import here
from penstock.query.rows import KeyedRows, stateful
from penstock.words.errors import UserError

if TYPE_CHECKING:
    from penstock.query.stream import Stream


class Window(ABC):
    """A way to cut a keyed stream into windows."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, pl.DataType]:
        """What stands in a row before the keys and the aggregates."""

    @abstractmethod
    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        """What computes these aggregates, whose types are known, over the windows of every key."""


@dataclass(frozen=True, eq=False)
class Windowed(KeyedRows):
    """A keyed stream cut into windows; says what to compute in each."""

    window: Window

    def count(self, alias: str = "count") -> Stream:
        """How many events."""
        return self.aggregate(functions.count(alias))

    def sum(self, column: str, alias: str | None = None) -> Stream:
        """The sum of a column."""
        return self.aggregate(functions.sum_(column, alias))

    def aggregate(self, *aggregates: AggregateFunction) -> Stream:
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
        check.names_differ([*self.window.columns, *self.keys, *(a.alias for a in aggregates)], origin)
        made = self.window.columns | {key: schema[key] for key in self.keys}
        made |= {aggregate.alias: aggregate.dtype(schema) for aggregate in resolved}
        return stateful(origin, made, self.window.operator(self.keys, resolved), self.node)
