"""The bodies of requests, as the API declares them. Those of answers are in `schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, StrictStr

from penstock.ha.schemes import Semantics

#: a value in SQL
Value = StrictBool | StrictInt | FiniteFloat | StrictStr | None
Name = Annotated[str, Field(max_length=100, examples=["popular"])]
Word = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_]\w*$")]
Query = Annotated[
    str, Field(examples=["SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 5 SECONDS"])
]


class Body(BaseModel):
    """A body: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid")


class Made(Body):
    """A log, a format or a sink: its name with arguments, as in `jsonl('out/top')`."""

    kind: Word
    arguments: list[Value] = []
    options: dict[Word, Value] = {}


class Format(Body):
    """How the records of a log are read."""

    kind: Word = "json"
    #: for json and csv: columns and their SQL types
    columns: dict[Name, Annotated[str, Field(max_length=200)]] = {}
    options: dict[Word, Value] = {}


class NewStream(Body):
    """CREATE STREAM."""

    name: Name
    log: Made
    format: Format
    time: Name | None = None
    lateness: Annotated[str | None, Field(max_length=40, examples=["5s"])] = None
    idle_after: Annotated[str | None, Field(max_length=40)] = None


class NewJob(Body):
    """CREATE JOB."""

    name: Name
    query: Query
    into: list[Made] = []
    parameters: dict[Word, Value] = {}
    recovery: Semantics | None = None


class Change(Body):
    """ALTER JOB: one of these, and perhaps `rebuild`."""

    query: Query | None = None
    where: Annotated[str | None, Field(examples=["status = 200"])] = None
    limit: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    parameters: dict[Word, Value] = {}
    recovery: Semantics | Literal["default"] | None = None
    rebuild: bool = False


class Sql(Body):
    """Statements, separated by semicolons: accepted as a whole or not at all."""

    sql: Annotated[str, Field(examples=["PAUSE JOB popular; SHOW JOBS"])]


class Message(Body):
    """A message to a job."""

    message: Any = None
