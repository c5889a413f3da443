"""Queries as plain values: what they mean, not how they are executed.

A description consists of these nodes; `queries.build_stream` builds its stream, `oracle.compute_rows` computes its
rows in plain Python. Columns are named; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
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
    """Another column; with `step`, of the event that an earlier step of a pattern matched."""

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
    """Each row as many times as the value of `column` modulo 3; the column `number` counts the copies from 1."""

    input: Any
    column: str
    number: str
    columns: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Demux:
    """One of the streams that a stream is split into: the `chosen`-th; the last has the rows without a match."""

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
class TimeWindow:
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
class CountWindow:
    size: int
    every: int | None = None
    partial: bool = False
    forget_after: int | None = None


@dataclass(frozen=True)
class LastWindow:
    size: int
    whole: bool = False
    forget_after: int | None = None


@dataclass(frozen=True)
class SessionWindow:
    gap: int
    longest: int | None = None


@dataclass(frozen=True)
class LandmarkWindow:
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
class SelfJoin:
    """A stream joined with itself, every two different rows once; within a time or over the last rows."""

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
    """Pairs by any condition: within a time, or each row with the last rows of the other side, or both.

    `distinct`: a stream with itself, every two different rows once.
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
    """Without `within`: for ever."""

    input: Any
    columns: Names
    within: int | None


@dataclass(frozen=True)
class Fold:
    """A user function, row by row: each value with the key's previous one; values over 2 twice."""

    input: Any
    key: str
    value: str
    types: tuple[Any, Any]
    forget_after: int | None = None


@dataclass(frozen=True)
class Previous:
    """A custom operator: each value with the key's previous one, batch by batch."""

    input: Any
    key: str
    value: str
    types: tuple[Any, Any]


@dataclass(frozen=True)
class TickCounts:
    """A custom operator: the number of rows of a key in each interval of `every`; with `merges` it merges states."""

    input: Any
    key: str
    type: Any
    every: int
    merges: bool
    order: str | None = None


@dataclass(frozen=True)
class Top:
    """The best rows of `Windows`, perhaps filtered; with `per`, of each group of these keys."""

    input: Any
    k: int
    by: str
    least: bool
    changes_only: bool
    per: Names = ()


# -- what a description reads ---------------------------------------------------------------------


def _nodes(node: Any) -> Iterator[Any]:
    """A node and all that is before it."""
    yield node
    for field in fields(node):
        value = getattr(node, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                yield from _nodes(part)


def reads_late_events(node: Any) -> bool:
    """Whether late events of a stream are among what a node reads."""
    return any(isinstance(one, Late) for one in _nodes(node))


def reads_together(*nodes: Any) -> bool:
    """Whether an operator with state, or one that exchanges rows, reads two streams."""
    stateless = (Source, Late, Filter, Map, Explode, FlatMap, Demux, Union)
    streams = [
        {one.stream for one in _nodes(part) if isinstance(one, Source | Late)}
        for node in nodes
        for part in _nodes(node)
        if not isinstance(part, stateless)
    ]
    return any(len(read) > 1 for read in streams)
