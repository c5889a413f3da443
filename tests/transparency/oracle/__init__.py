"""Queries worked out by hand: plain Python over lists, one event at a time, as simply as it can be said.

Receives a description and the events of every stream as they were logged; hands the rows. It knows nothing of the
product: no epochs, slices, watermarks or frames.

What is not said of a query is not decided here: where the order of two rows makes a difference and nothing says which
is first (answers of one instant come "in the order of their contents"), `unsure` is set.
"""

from __future__ import annotations

from typing import Any

from tests.transparency.oracle.best import Best
from tests.transparency.oracle.keyed import Keyed
from tests.transparency.oracle.meetings import Meetings
from tests.transparency.oracle.patterns import Patterns
from tests.transparency.oracle.rows import Log, Values
from tests.transparency.oracle.stateless import Stateless
from tests.transparency.oracle.windows import Windows

__all__ = ["Log", "Oracle", "answers"]


def answers(query: Any, logs: dict[str, Log]) -> tuple[list[Values], bool]:
    """The rows of a query, and whether they are sure."""
    oracle = Oracle(logs)
    rows = [row.values for flow in oracle.flows(query) for row in flow]
    return rows, not oracle.unsure


class Oracle(Stateless, Windows, Keyed, Meetings, Patterns, Best):
    """Works out every kind of node."""
