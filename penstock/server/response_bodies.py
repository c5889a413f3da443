"""Declares the bodies of responses, for the API and the client. Those of requests are in `request_bodies`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class StatementReply(BaseModel):
    """The reply to a statement. `command` is its number in the command log; it takes effect with the next epoch."""

    says: str
    name: str
    state: Literal["kept", "anew", "rebuilt"] | None
    command: int | None
    rows: list[dict[str, Any]]


class StatementReplies(BaseModel):
    """The reply to each statement."""

    answers: list[StatementReply]


class Column(BaseModel):
    name: str
    type: str


class StreamFacts(BaseModel):
    """A stream. `said` is the text of its definition."""

    name: str
    said: str
    log: str
    columns: list[Column]
    time: str | None
    lateness_seconds: float
    backlog: int | None
    backlog_unit: Literal["bytes", "records"]
    takes_events: bool


class SinkLag(BaseModel):
    """A sink that is behind: the epoch up to which it has all rows of a job, how many epochs with rows it lacks, how
    long the first of them has waited, and the last error while it is away."""

    job: str
    sink: str
    cursor: int
    epochs: int
    seconds: float
    failures: int
    error: str
    #: how long it has not returned from a call, where that is long
    silent_seconds: float = 0.0


class JobFacts(BaseModel):
    """A job and its state of life."""

    name: str
    life: str
    query: str
    parameters: dict[str, Any]
    into: list[str]
    error: str | None
    version: int
    #: the last epoch in which it emitted rows
    epoch: int | None
    #: rows emitted, and epochs with rows, since the service was started
    rows: int
    epochs: int
    #: rows emitted a second, recently
    rows_per_second: float
    #: the coordinator that manages it, if there are several
    coordinator: str | None = None
    #: its recovery semantics (None: those of the engine), and what it lost or repeated in the last recovery
    recovery: str | None = None
    last_recovery: dict[str, Any] | None = None
    #: whether its query is written in Python
    of_python: bool = False
    #: its sinks that are behind
    behind: list[SinkLag] = []


class JobDetails(JobFacts):
    """A job, with its columns and its plan."""

    columns: list[Column]
    streams: list[str]
    reads: list[str]
    plan: str


class Result(BaseModel):
    """The rows that a job emitted in one epoch; the epoch is null before the first result."""

    job: str
    epoch: int | None
    columns: list[Column]
    rows: list[dict[str, Any]]


class Results(BaseModel):
    """A page of results from an epoch on. `next`: the epoch where the next page starts; `more`: whether there is one
    already."""

    job: str
    results: list[Result]
    next: int
    more: bool


class SideOutput(BaseModel):
    """Dead letters, late events or skipped partitions of a stream, the latest first."""

    stream: str
    rows: list[dict[str, Any]]


class Pushed(BaseModel):
    """How many events a request had, and how many of them were new."""

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
    #: how often a partition, or the start of one, was skipped
    leaped: int
    dead: int
    latency_seconds: Seconds | None
    last_epoch_seconds: float | None
    #: the lowest of all streams, and that of each
    watermark: str | None
    watermarks: dict[str, str | None]
    backlog: dict[str, int]
    state_bytes: int
    streams: int
    jobs: dict[str, int]
    subscribers: int
    subscribers_dropped: dict[str, int]


class Coordinator(BaseModel):
    """A coordinator, and how many jobs it manages. `engine`: whether it runs the epochs too."""

    name: str
    url: str
    engine: bool
    jobs: int


class EpochPoint(BaseModel):
    """An epoch: when it was committed (seconds since 1970), its events and their ages, its duration."""

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


class StageFacts(BaseModel):
    """The latest measurement of a stage. Utilisation is of one core; values by bucket are in order of the buckets. The
    backlog in seconds is unknown before the first warm epochs."""

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
    """An executor; its CPU usage is unknown before its first task."""

    cores: int
    cpu: float | None


class Decision(BaseModel):
    """A decision of the elastic loop, its reason and its outcome. `at` is by the clock of the loop, in seconds."""

    number: int
    at: float
    decision: str
    reason: str
    outcome: str
    why: str | None = None


class ElasticFacts(BaseModel):
    """The elastic loop: why it changes nothing, the changes under way, executors that failed, its last decisions."""

    resting: str | None
    orders: list[str]
    deaths: list[str] = []
    decisions: list[Decision]


class EngineFacts(BaseModel):
    """The engine with its stages and executors; without measurements before the first epochs."""

    name: str
    master: str
    pid: int
    epoch: int
    maps_version: int | None
    measured: bool
    epoch_seconds: float | None = None
    epoch_target_seconds: float | None = None
    #: events a second that arrived in the logs, and that the engine processed
    input_rate: float | None = None
    processing_rate: float | None = None
    backlog_seconds: float | None = None
    sub_queries: dict[str, StageFacts] = {}
    executors: dict[str, ExecutorFacts] = {}
    spare: list[str] = []
    elastic: ElasticFacts | None = None
    #: the sinks that are behind, and the size of the results that are kept for sinks and questions
    deliveries: list[SinkLag] = []
    result_log_bytes: int = 0


class Restart(BaseModel):
    """A start after a crash. Instants are seconds since 1970."""

    last_epoch: int
    last_result_at: float | None
    started_at: float
    first_epoch: int | None
    first_result_at: float | None
    #: from the last result before to the first one after
    gap_seconds: float | None


class RecoveryFacts(BaseModel):
    """The scheme of this engine, its restarts, and the HA unit that the service runs or watches."""

    scheme: str
    started_at: float
    starts: int
    restarts: list[Restart]
    unit: dict[str, Any] | None
    #: what the last recovery lost or repeated, in total and by job
    last: dict[str, Any] | None = None


class LogLine(BaseModel):
    """A line of the log: an event and its facts."""

    at: str
    level: str
    source: str
    event: str
    facts: dict[str, Any]


class AuditLine(BaseModel):
    """What somebody did: the name and the role of the token, the address, and what it was about."""

    at: str
    who: str | None
    role: str | None
    address: str | None
    did: str
    facts: dict[str, Any]


class GraphNode(BaseModel):
    """A stream, a stateful stage, another job, or the output. `jobs`: how many share it."""

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
    """The graph of a job's plan, with current rates."""

    job: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class JobVersion(BaseModel):
    """A change of a job, and the job from then on. `at`: seconds since 1970, if known."""

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
    """Whether the engine runs."""

    status: Literal["ok", "starting", "ending"]
    phase: str


class Problem(BaseModel):
    """A problem document (RFC 9457); in SQL with the place of the mistake."""

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
