"""The expected rows of a query, computed in plain Python over lists, one event at a time, as simply as possible.

`compute_rows` takes a description and the events of every stream in the order of its log. The oracle uses nothing of
the product: no epochs, slices, watermarks or frames.

Where the rows depend on the order of two rows, and the semantics do not define it (results of one instant come "in the
order of their contents"), the oracle decides nothing: it sets `is_ambiguous`.
"""

from __future__ import annotations

from typing import Any

from tests.transparency.oracle.joins import Joins
from tests.transparency.oracle.keyed import Keyed
from tests.transparency.oracle.patterns import Patterns
from tests.transparency.oracle.rows import Log, Values
from tests.transparency.oracle.stateless import Stateless
from tests.transparency.oracle.top import Top
from tests.transparency.oracle.windows import Windows

__all__ = ["Log", "Oracle", "compute_rows"]


def compute_rows(query: Any, logs: dict[str, Log]) -> tuple[list[Values], bool]:
    """Return the rows of a query, and whether they are certain."""
    oracle = Oracle(logs)
    rows = [row.values for flow in oracle.flows(query) for row in flow]
    return rows, not oracle.is_ambiguous


class Oracle(Stateless, Windows, Keyed, Joins, Patterns, Top):
    """Computes every kind of node."""
