"""Queries as plain values: what they mean, not how they are executed.

A description is made of these nodes; `queries.built` makes a stream of it, `oracle.answers` works it out by hand.
Columns are named; times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Names = tuple[str, ...]


@dataclass(frozen=True)
class Compare:
    """A condition on a row: `op` is one of > <= == !=, null, true. `other` is a value, or a column (as `Other`)."""

    column: str
    op: str
    other: Any = None


@dataclass(frozen=True)
class Other:
    """Another column; `step`: of the event that an earlier step of a pattern took."""

    column: str
    step: str | None = None


@dataclass(frozen=True)
class Formula:
    """How a column is computed: `what` is plus, times, mod, steps, upper, constant, copy or holds."""

    what: str
    column: str = ""
    by: Any = None


# -- stateless operators -------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    stream: str


@dataclass(frozen=True)
class Late:
    stream: str


@dataclass(frozen=True)
class Filter:
    input: Any
    condition: Compare


@dataclass(frozen=True)
class Map:
    input: Any
    columns: tuple[tuple[str, Formula], ...]
    only: bool = False


@dataclass(frozen=True)
class Explode:
    input: Any
    column: str


@dataclass(frozen=True)
class FlatMap:
    """Each row as often as its column says: not at all, once or twice; `turn` counts the copies from 1."""

    input: Any
    column: str
    turn: str
    kept: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Demux:
    """One of the streams that a stream is dealt out to: the `chosen`-th, the last being what is left."""

    input: Any
    conditions: tuple[Compare, ...]
    chosen: int
    every_match: bool


@dataclass(frozen=True)
class Union:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Rebalance:
    input: Any


# -- windows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InTime:
    """`emit` is close, change, or a number of microseconds."""

    size: int
    every: int | None = None
    offset: int = 0
    emit: Any = "close"


@dataclass(frozen=True)
class Running:
    """`emit` is change, or a number of microseconds."""

    emit: Any


@dataclass(frozen=True)
class ByCount:
    size: int
    every: int | None = None
    partial: bool = False
    forget_after: int | None = None


@dataclass(frozen=True)
class LastEvents:
    size: int
    whole: bool = False
    forget_after: int | None = None


@dataclass(frozen=True)
class Sessions:
    gap: int
    longest: int | None = None


@dataclass(frozen=True)
class Landmarks:
    opens: Compare
    closes: Compare
    longest: int | None = None


@dataclass(frozen=True)
class Aggregate:
    function: str
    column: str | None
    alias: str
    share: float = 0.5


@dataclass(frozen=True)
class Windows:
    """`order` is None or strict."""

    input: Any
    keys: Names
    window: Any
    aggregates: tuple[Aggregate, ...]
    order: str | None = None


# -- other stateful operators -----------------------------------------------------------------


@dataclass(frozen=True)
class Last:
    input: Any
    keys: Names
    size: int
    values: Names
    partial: bool


@dataclass(frozen=True)
class Join:
    """`last` is the number of rows of a join over the last rows; None: within time."""

    left: Any
    keys: Names
    right: Any
    right_keys: Names
    before: int = 0
    after: int = 0
    where: Compare | None = None
    how: str = "inner"
    order: str | None = None
    last: int | None = None
    suffix: str = "_right"


@dataclass(frozen=True)
class Pairs:
    """A stream with itself, every two different rows once; within time or over the last rows."""

    input: Any
    keys: Names
    within: int | None
    last: int | None
    where: Compare | None = None
    order: str | None = None
    suffix: str = "_right"


@dataclass(frozen=True)
class Lookup:
    left: Any
    keys: Names
    table: Any
    table_keys: Names
    how: str
    deleted: str | None = None
    broadcast: bool = False
    suffix: str = "_right"


@dataclass(frozen=True)
class Product:
    """Pairs by any condition, near in time, or each with the last rows of the other side, or both.

    `distinct`: of a stream and itself, every two different rows once.
    """

    left: Any
    right: Any
    before: int | None
    after: int | None
    last: int | None = None
    where: Compare | None = None
    distinct: bool = False
    suffix: str = "_right"


@dataclass(frozen=True)
class Step:
    name: str
    condition: Compare
    absent: bool = False


@dataclass(frozen=True)
class Pattern:
    input: Any
    keys: Names
    steps: tuple[Step, ...]
    within: int
    contiguous: bool
    skip: bool
    timeouts: bool
    columns: Names


@dataclass(frozen=True)
class Distinct:
    """`within` None: for ever."""

    input: Any
    columns: Names
    within: int | None


@dataclass(frozen=True)
class Fold:
    """The user's function, row by row: each value with the key's value before it; great ones twice."""

    input: Any
    key: str
    value: str
    types: tuple[Any, Any]
    forget_after: int | None = None


@dataclass(frozen=True)
class Before:
    """The user's own operator: each value with the key's value before it, batch by batch."""

    input: Any
    key: str
    value: str
    types: tuple[Any, Any]


@dataclass(frozen=True)
class Ticks:
    """The user's own operator: how many rows a key had in each stretch of `every`; `merges`: it adds up states."""

    input: Any
    key: str
    type: Any
    every: int
    merges: bool
    order: str | None = None


@dataclass(frozen=True)
class Top:
    """Of the rows of `Windows`, perhaps filtered; `per`: of each group of these keys."""

    input: Any
    k: int
    by: str
    least: bool
    changes_only: bool
    per: Names = ()
