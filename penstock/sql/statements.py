"""The statements of SQL as frozen data, each with its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.ha.schemes import Semantics

if TYPE_CHECKING:  # what reads SQL takes a while to load
    from sqlglot import exp

#: the value of a literal or a parameter
Scalar = str | int | float | bool | None
#: IDLE AFTER NEVER: the watermark waits for silent partitions
NEVER = -1
#: what happens to a job as a whole
Verb = Literal["pause", "resume", "flush", "empty", "drop"]


def parse_number(text: str) -> int | float:
    """The value of a number in a text; a double if it has a fraction or more digits than the largest double."""
    return int(text) if text.isdigit() and len(text) <= 300 else float(text)


@dataclass(frozen=True)
class Call:
    """A name with arguments, as in `files('logs/*.log')` or `jsonl('out/top')`.

    `at` is its line and column; without a text, 0 and its number among several.
    """

    name: str
    arguments: tuple[Scalar, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)
    at: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Select:
    """A query: its text as it was written, and its tree. Two are equal when their texts are."""

    text: str
    tree: exp.Expr = field(compare=False, repr=False)


@dataclass(frozen=True)
class CreateStream:
    """`CREATE STREAM clicks FROM files('logs/*.log') FORMAT combined_log EVENT TIME time LATENESS 5 SECONDS`."""

    name: str
    log: Call
    format: Call
    time: str | None
    #: microseconds; None: the default of the Python API
    lateness: int | None
    idle_after: int | None
    text: str
    #: keep a stream of that name
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateJob:
    """`CREATE JOB hot AS SELECT ... INTO jsonl('out/hot') RECOVERY gap`, with the values of its `$parameters`.

    `recovery`: what it may lose or repeat after a crash; None: the engine's setting applies.
    """

    name: str
    select: Select
    sinks: tuple[Call, ...]
    parameters: Mapping[str, Scalar]
    text: str
    recovery: Semantics | None = None
    #: keep a job of that name
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterJob:
    """`ALTER JOB hot AS SELECT ...`, `... SET $threshold = 5`, `... SET WHERE ...`, `... SET LIMIT 5`.

    `select` replaces the query, `where` and `limit` its filter and its limit, `parameters` some values; a new query or
    filter may give values to new ones: `... WITH ($most = 9)`.
    """

    name: str
    select: Select | None
    where: str | None
    limit: int | None
    parameters: Mapping[str, Scalar]
    #: whether to rebuild state that cannot be kept from the log's earliest retained events
    rebuild: bool
    text: str


@dataclass(frozen=True)
class SetRecovery:
    """`ALTER JOB hot SET RECOVERY gap`, or `... SET RECOVERY DEFAULT` (None): the engine's setting applies."""

    name: str
    recovery: Semantics | None
    text: str


@dataclass(frozen=True)
class Change:
    """`PAUSE JOB hot`, `RESUME JOB hot`, `FLUSH JOB hot`, `EMPTY JOB hot`, `DROP JOB hot`."""

    verb: Verb
    name: str
    text: str
    #: DROP JOB IF EXISTS
    if_exists: bool = False


@dataclass(frozen=True)
class DropStream:
    """`DROP STREAM clicks`, or `DROP STREAM IF EXISTS clicks`."""

    name: str
    text: str
    if_exists: bool = False


@dataclass(frozen=True)
class Show:
    """`SHOW JOBS`, `SHOW STREAMS`."""

    what: Literal["jobs", "streams"]
    text: str


@dataclass(frozen=True)
class Explain:
    """`EXPLAIN SELECT ...` or `EXPLAIN JOB hot`."""

    what: Select | str
    text: str


Statement = CreateStream | CreateJob | AlterJob | SetRecovery | Change | DropStream | Show | Explain | Select
