"""What can be said in SQL, as frozen data: statements know their text and where they stood in it.

Receives nothing; hands the parser its results and everyone else the words for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.ha.schemes import Semantics

if TYPE_CHECKING:  # what reads SQL takes a while to load
    from sqlglot import exp

#: the value of a literal or a parameter
Scalar = str | int | float | bool | None
#: IDLE AFTER NEVER: silent partitions are waited for
NEVER = -1
#: what is done to a job as a whole
Verb = Literal["pause", "resume", "flush", "empty", "drop"]


@dataclass(frozen=True)
class Call:
    """A name with arguments, as in `files('logs/*.log')` or `jsonl('out/top')`.

    `at` is its line and column; where it stands in no text, 0 and which of several it is.
    """

    name: str
    arguments: tuple[Scalar, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)
    at: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Select:
    """A query: its text as it was written, and what sqlglot made of it. Two are equal when their texts are."""

    text: str
    tree: exp.Expr = field(compare=False, repr=False)


@dataclass(frozen=True)
class CreateStream:
    """`CREATE STREAM clicks FROM files('logs/*.log') FORMAT combined_log EVENT TIME time LATENESS 5 SECONDS`."""

    name: str
    log: Call
    format: Call
    time: str | None
    #: microseconds; None: as the Python API has it
    lateness: int | None
    idle_after: int | None
    text: str
    #: IF NOT EXISTS: one of that name is left as it is
    if_missing: bool = False


@dataclass(frozen=True)
class CreateJob:
    """`CREATE JOB hot AS SELECT ... INTO jsonl('out/hot') RECOVERY gap`, with the values of its `$parameters`.

    `recovery`: what it may lose or repeat when the engine comes back; None: as the engine's settings say.
    """

    name: str
    select: Select
    sinks: tuple[Call, ...]
    parameters: Mapping[str, Scalar]
    text: str
    recovery: Semantics | None = None
    #: IF NOT EXISTS: one of that name is left as it is
    if_missing: bool = False


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
    #: whether a state that cannot be kept is made again from the log's earliest retained events
    rebuild: bool
    text: str


@dataclass(frozen=True)
class SetRecovery:
    """`ALTER JOB hot SET RECOVERY gap`, or `... SET RECOVERY DEFAULT` (None): as the engine's settings say."""

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
    if_there: bool = False


@dataclass(frozen=True)
class DropStream:
    """`DROP STREAM clicks`, or `DROP STREAM IF EXISTS clicks`."""

    name: str
    text: str
    if_there: bool = False


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
