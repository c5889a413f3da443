"""The bodies of requests and answers, as the API declares them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, StrictStr

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


class Change(Body):
    """ALTER JOB: one of these, and perhaps `rebuild`."""

    query: Query | None = None
    where: Annotated[str | None, Field(examples=["status = 200"])] = None
    limit: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    parameters: dict[Word, Value] = {}
    rebuild: bool = False


class Sql(Body):
    """Statements, separated by semicolons: accepted as a whole or not at all."""

    sql: Annotated[str, Field(examples=["PAUSE JOB popular; SHOW JOBS"])]


class Message(Body):
    """A message to a job."""

    message: Any = None


# -- answers -------------------------------------------------------------------------------------


class Answered(BaseModel):
    """What was answered to a statement. `command` is the number under which it takes effect, with the next epoch."""

    says: str
    name: str
    state: Literal["kept", "anew", "rebuilt"] | None
    command: int | None
    rows: list[dict[str, Any]]


class Said(BaseModel):
    """What was answered to each statement."""

    answers: list[Answered]


class Column(BaseModel):
    name: str
    type: str


class StreamFacts(BaseModel):
    """A stream."""

    name: str
    said: str
    log: str
    columns: list[Column]
    time: str | None
    lateness_seconds: float
    backlog: int | None
    backlog_unit: Literal["bytes", "records"]
    takes_events: bool


class JobFacts(BaseModel):
    """A job, and how it is."""

    name: str
    life: str
    query: str
    parameters: dict[str, Any]
    into: list[str]
    error: str | None
    version: int
    #: the last epoch it told anything in
    epoch: int | None
    #: what it told since the service was started
    rows: int
    epochs: int


class JobPage(JobFacts):
    """A job, with what it tells and how it is carried out."""

    columns: list[Column]
    streams: list[str]
    reads: list[str]
    plan: str


class Told(BaseModel):
    """A job's rows of one epoch; without an epoch before its first."""

    job: str
    epoch: int | None
    columns: list[Column]
    rows: list[dict[str, Any]]


class Results(BaseModel):
    """What a job told from an epoch on. `next`: from where to ask for more; `more`: whether there is some already."""

    job: str
    results: list[Told]
    next: int
    more: bool


class Aside(BaseModel):
    """Records put aside, the latest first, each with its partition, offset and text."""

    stream: str
    rows: list[dict[str, Any]]


class Pushed(BaseModel):
    """How many events came, and how many of them were new."""

    events: int
    taken: int


class Seconds(BaseModel):
    p50: float
    p99: float


class Status(BaseModel):
    """The engine in numbers. Rates and latencies are those of the last ten seconds."""

    name: str
    version: str
    phase: str
    up_seconds: float
    epoch: int
    epochs: int
    events: int
    events_per_second: float
    late: int
    #: how often a silent partition was passed over
    leaped: int
    dead: int
    latency_seconds: Seconds | None
    last_epoch_seconds: float | None
    watermark: str | None
    backlog: dict[str, int]
    state_bytes: int
    streams: int
    jobs: dict[str, int]
    subscribers: int
    subscribers_dropped: dict[str, int]


class Health(BaseModel):
    """Whether the engine is at work."""

    status: Literal["ok", "starting", "ending"]
    phase: str


class Problem(BaseModel):
    """What went wrong (RFC 9457), whose it is to mend and, in SQL, where."""

    type: str
    title: str
    status: int
    condition: str
    primary: str
    detail: str | None = None
    hint: str | None = None
    where: str | None = None
    line: int | None = None
    column: int | None = None
    retry: bool = False
