"""A query that is being drawn: its description and the types of its columns, so that only valid queries are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
from hypothesis import strategies as st

SECOND = 1_000_000
#: types of columns; "approx" is a number whose last digits depend on the order of computation
Types = dict[str, Any]
EVENT: Types = {"time": "time", "user": "str", "page": "str", "n": "int", "x": "float"}
STREAMS = ("one", "other")

POLARS: dict[Any, pl.DataType] = {
    "time": pl.Datetime("us", "UTC"),
    "str": pl.String(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "approx": pl.Float64(),
    "bool": pl.Boolean(),
    "small": pl.Int32(),
}
KEYS = ("str", "int", "bool", "time")
COMPARED = ("int", "float", "str")

SPANS = [1, 250_000, SECOND, 2 * SECOND, 3 * SECOND, 7 * SECOND, 60 * SECOND]
spans = st.sampled_from(SPANS)


@dataclass(frozen=True)
class Query:
    """A description and the columns of its rows."""

    node: Any
    types: Types

    def names_of(self, *kinds: Any) -> list[str]:
        return [name for name, kind in self.types.items() if kind in kinds]


def unused_name(query: Query, stem: str) -> str:
    """Return a column name that the query does not have."""
    number = 1
    while any(f"{stem}{number}" in name for name in query.types):
        number += 1
    return f"{stem}{number}"
