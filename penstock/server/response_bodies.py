"""The bodies of answers, as the API declares them and the client reads them. Those of requests are in `requests`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


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
    #: rows a second it told of late
    rows_per_second: float
    #: which coordinator carries its master, where there are several
    coordinator: str | None = None
    #: what it may lose or repeat when the engine comes back (None: as the engine), and what it did the last time
    recovery: str | None = None
    last_recovery: dict[str, Any] | None = None
    #: its query is Python's and not SQL
    of_python: bool = False


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
    #: how often a silent partition, or the beginning of one, was passed over
    leaped: int
    dead: int
    latency_seconds: Seconds | None
    last_epoch_seconds: float | None
    #: the least of all streams', and that of each
    watermark: str | None
    watermarks: dict[str, str | None]
    backlog: dict[str, int]
    state_bytes: int
    streams: int
    jobs: dict[str, int]
    subscribers: int
    subscribers_dropped: dict[str, int]


class Coordinator(BaseModel):
    """A coordinator, and for how many jobs it carries the master. `engine`: it runs the epochs too."""

    name: str
    url: str
    engine: bool
    jobs: int


class EpochPoint(BaseModel):
    """An epoch: when it was committed (seconds since 1970), its events and their ages, how long it took."""

    epoch: int
    at: float
    events: int
    seconds: float
    newest_age_seconds: float | None
    oldest_age_seconds: float | None
    late: int
    dead: int
    backlog: int
    state_bytes: int


class SubQueryFacts(BaseModel):
    """What a sub-query does: the latest measurement. Utilisation is of one core; figures by bucket are in order. How
    long what waits takes is not known before the first epochs that are warm."""

    utilisation: float
    rows_per_second: float
    backlog_seconds: float | None
    imbalance: float
    exchange_bytes: float
    state_bytes: float
    bucket_seconds: list[float]
    bucket_bytes: list[float]
    bucket_map: list[int]


class ExecutorFacts(BaseModel):
    """An executor; what it uses of its cores is not known before its first task."""

    cores: int
    cpu: float | None


class Decided(BaseModel):
    """A decision of the elastic loop: what, why, and what came of it. `at` is its clock's, in seconds."""

    number: int
    at: float
    decision: str
    reason: str
    outcome: str
    why: str | None = None


class ElasticFacts(BaseModel):
    """The elastic loop: why it rests, what it sees through, which executors failed, what it decided last."""

    resting: str | None
    orders: list[str]
    deaths: list[str] = []
    decisions: list[Decided]


class EngineFacts(BaseModel):
    """The engine inside. Without measurements before the first epochs."""

    name: str
    master: str
    pid: int
    epoch: int
    maps_version: int | None
    measured: bool
    epoch_seconds: float | None = None
    epoch_target_seconds: float | None = None
    #: events of the whole engine that arrived in the logs, and that were executed, a second
    input_rate: float | None = None
    processing_rate: float | None = None
    backlog_seconds: float | None = None
    sub_queries: dict[str, SubQueryFacts] = {}
    executors: dict[str, ExecutorFacts] = {}
    spare: list[str] = []
    elastic: ElasticFacts | None = None


class Restart(BaseModel):
    """A start after one that did not end by itself. Instants are seconds since 1970."""

    last_epoch: int
    last_result_at: float | None
    started_at: float
    first_epoch: int | None
    first_result_at: float | None
    #: from the last result before to the first one after
    gap_seconds: float | None


class RecoveryFacts(BaseModel):
    """How this engine is protected, its restarts, and the HA unit that the service was told to watch."""

    scheme: str
    started_at: float
    starts: int
    restarts: list[Restart]
    unit: dict[str, Any] | None
    #: what this start of the engine lost or repeated, in all and by job
    last: dict[str, Any] | None = None


class LogLine(BaseModel):
    """A line of the log, with what it said beside the event."""

    at: str
    level: str
    source: str
    event: str
    facts: dict[str, Any]


class GraphNode(BaseModel):
    """A stream, what remembers, another job, or what is told. `jobs`: how many share it."""

    id: str
    kind: Literal["stream", "state", "job", "output"]
    title: str
    about: list[str]
    jobs: int = 1
    units_per_second: float | None = None
    rows_per_second: float | None = None
    state_bytes: float | None = None
    utilisation: float | None = None


class GraphEdge(BaseModel):
    source: str
    target: str
    label: str
    rows_per_second: float | None


class Graph(BaseModel):
    """How a job's rows are made, and what passes at present."""

    job: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class JobVersion(BaseModel):
    """What was done to a job, and what it was from then on. `at`: seconds since 1970, where that is known."""

    command: int
    at: float | None
    did: str
    version: int
    life: str
    query: str
    parameters: dict[str, Any]
    state: str | None
    error: str | None


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
