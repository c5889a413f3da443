"""Declares the bodies of requests. Those of responses are in `response_bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
)

from penstock.ha.schemes import Semantics


def _check_whole_number(value: object) -> object:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number has 64 bits")
    return value


#: a value in SQL
Value = Annotated[
    StrictBool | StrictInt | FiniteFloat | StrictStr | None, BeforeValidator(_check_whole_number)
]
Name = Annotated[str, Field(max_length=100, examples=["popular"])]
Identifier = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_]\w*$")]
Query = Annotated[
    str, Field(examples=["SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 5 SECONDS"])
]


class Body(BaseModel):
    """A body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Connector(Body):
    """A log, a format or a sink: its name with arguments, as in `jsonl('out/top')`."""

    kind: Identifier
    arguments: list[Value] = []
    options: dict[Identifier, Value] = {}


class Format(Body):
    """How the records of a log are decoded."""

    kind: Identifier = "json"
    #: for json and csv: columns and their SQL types
    columns: dict[Name, Annotated[str, Field(max_length=200)]] = {}
    options: dict[Identifier, Value] = {}


class NewStream(Body):
    """CREATE STREAM."""

    name: Name
    log: Connector
    format: Format
    time: Name | None = None
    lateness: Annotated[str | None, Field(max_length=40, examples=["5s"])] = None
    idle_after: Annotated[str | None, Field(max_length=40)] = None


class NewJob(Body):
    """CREATE JOB."""

    name: Name
    query: Query
    into: list[Connector] = []
    parameters: dict[Identifier, Value] = {}
    recovery: Semantics | None = None


class JobChange(Body):
    """ALTER JOB: one of these fields, and `rebuild` if wanted."""

    query: Query | None = None
    where: Annotated[str | None, Field(examples=["status = 200"])] = None
    limit: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    parameters: dict[Identifier, Value] = {}
    recovery: Semantics | Literal["default"] | None = None
    rebuild: bool = False


class Sql(Body):
    """Statements, separated by semicolons: all of them are executed, or none."""

    sql: Annotated[str, Field(examples=["PAUSE JOB popular; SHOW JOBS"])]


class Message(Body):
    """A message to a job."""

    message: Any = None
