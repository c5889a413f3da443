"""Declares every metric of Penstock, each once. The table of docs/metrics.md is this module's, which a test compares.

Units: `seconds`, `bytes`, `ratio` (1 is all of it), and plain nouns for what is counted. A name ends in its unit, a
counter's in `_total`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metrics.registry import Kind, Metric

#: upper bounds of latencies, in seconds
_LATENCIES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: the same where there is a histogram for each of many
_FEW_LATENCIES = (0.25, 1.0, 5.0, 30.0, 300.0)

_declared: list[Metric] = []


def _declare(
    name: str,
    kind: Kind,
    unit: str,
    help: str,
    labels: tuple[str, ...] = (),
    *,
    was: tuple[str, ...] = (),
    labels_were: Mapping[str, str] | None = None,
    bounds: tuple[float, ...] = (),
) -> Metric:
    metric = Metric(f"penstock_{name}", kind, unit, help, labels, was, labels_were or {}, bounds)
    _declared.append(metric)
    return metric


_FORMER_STAGE = {"stage": "sub_query"}
_STAGE, _JOB, _STREAM, _EXECUTOR, _ENGINE = ("stage",), ("job",), ("stream",), ("executor",), ("engine",)

# ---------------------------------------------------------------- epochs

EPOCH = _declare("epoch", "gauge", "epoch", "The last committed epoch.")
DURABLE_EPOCH = _declare("durable_epoch", "gauge", "epoch", "The last epoch whose state is durable.")
EPOCHS = _declare("epochs_total", "counter", "epochs", "Epochs that were executed.")
EPOCHS_REPLAYED = _declare(
    "epochs_replayed_total", "counter", "epochs", "Epochs that were executed from an earlier record."
)
EPOCH_DURATION = _declare(
    "epoch_duration_seconds", "histogram", "seconds", "How long an epoch took.", bounds=_LATENCIES
)
LAST_EPOCH_SECONDS = _declare("last_epoch_seconds", "gauge", "seconds", "How long the last epoch took.")
EPOCH_SECONDS = _declare(
    "epoch_seconds", "gauge", "seconds", "How long an epoch took, mean of the last period."
)
EPOCH_TARGET_SECONDS = _declare("epoch_target_seconds", "gauge", "seconds", "How long an epoch should take.")
PHASE_SECONDS = _declare(
    "epoch_phase_seconds_total", "counter", "seconds", "Time that epochs spent in a phase.", ("phase",)
)
EVENTS = _declare("events_total", "counter", "events", "Events that were read and decoded.")
INPUT_BYTES = _declare("input_bytes_total", "counter", "bytes", "Bytes of input that were read.")
EXTERNAL_RETRIES = _declare(
    "external_retries_total",
    "counter",
    "attempts",
    "Attempts that failed because something outside was away, and that the engine repeated.",
)
OUTAGE_SECONDS = _declare(
    "outage_seconds",
    "gauge",
    "seconds",
    "How long something outside has been away, or silent, that the engine, or the rows of a job, wait for.",
)
DELIVERY_LAG = _declare(
    "delivery_lag_epochs",
    "gauge",
    "epochs",
    "How many epochs with rows of a job a sink lacks; only for sinks that are behind.",
    ("job", "sink"),
)
DELIVERY_LAG_SECONDS = _declare(
    "delivery_lag_seconds",
    "gauge",
    "seconds",
    "How long the first rows that a sink lacks have waited for it.",
    ("job", "sink"),
)
RESULT_LOG_BYTES = _declare(
    "result_log_bytes", "gauge", "bytes", "The size of the results that are kept for sinks and questions."
)
LATE_EVENTS = _declare("late_events_total", "counter", "events", "Events that came too late.")
DEAD_LETTERS = _declare("dead_letters_total", "counter", "records", "Records that could not be decoded.")
SKIPPED_PARTITIONS = _declare(
    "skipped_partitions_total",
    "counter",
    "partitions",
    "Times that a silent partition, or the start of one, no longer held the watermark back.",
    was=("penstock_leaped_total",),
)
LATENCY = _declare(
    "event_latency_seconds",
    "histogram",
    "seconds",
    "From an event's time to the commit of its epoch. Events older than an hour are a replay and not counted.",
    bounds=_LATENCIES,
)
LATENCY_QUANTILES = _declare(
    "latency_seconds",
    "gauge",
    "seconds",
    "From an event's time to the commit of its epoch, quantiles of the last ten seconds.",
    ("quantile",),
)
EVENTS_PER_SECOND = _declare(
    "events_per_second", "gauge", "events/second", "Events a second, of the last ten seconds."
)
WATERMARK = _declare(
    "watermark_timestamp_seconds", "gauge", "seconds", "Watermark of a stream, since 1970.", _STREAM
)
READ = _declare(
    "stream_read_total", "counter", "offsets", "Offsets of a stream's log that were read.", _STREAM
)
CLOCK_BEHIND = _declare(
    "clock_behind_seconds",
    "gauge",
    "seconds",
    "How far the wall clock is behind a stream whose own time bounds future events; absent where the clock fits.",
    _STREAM,
)
LOG_DOUBTS = _declare(
    "log_doubts_total",
    "counter",
    "decisions",
    "Decisions by a rule of what a stream's files do not tell, such as whether one is a copy; warnings name the files.",
    _STREAM,
)
BACKLOG = _declare("backlog", "gauge", "offsets", "Offsets of a stream's log that wait to be read.", _STREAM)

# ---------------------------------------------------------------- state and checkpoints

STATE_BYTES = _declare("state_bytes", "gauge", "bytes", "State on disk.")
RUN_BYTES = _declare("run_bytes_total", "counter", "bytes", "State changes that were written as runs.")
CHECKPOINT_BYTES = _declare(
    "checkpoint_bytes_total", "counter", "bytes", "Runs that were made durable later than their epoch."
)
MANIFEST_CPU_SECONDS = _declare(
    "manifest_cpu_seconds", "gauge", "seconds", "CPU time that the last durable manifest took."
)

# ---------------------------------------------------------------- load, as the elastic loop measures it

INPUT_RATE = _declare(
    "input_events_per_second",
    "gauge",
    "events/second",
    "Events that arrived in the logs, a second.",
    was=("penstock_input_rate_events_per_second",),
)
PROCESSED_RATE = _declare(
    "processed_events_per_second", "gauge", "events/second", "Events that the engine executed, a second."
)
BACKLOG_SECONDS = _declare(
    "backlog_seconds",
    "gauge",
    "seconds",
    "How long the waiting events take, at the speed of the largest recent epochs.",
)
EXECUTORS = _declare("executors", "gauge", "executors", "Executors that work.")
SPARE_EXECUTORS = _declare("spare_executors", "gauge", "executors", "Executors kept warm, without slices.")
EXECUTOR_CORES = _declare("executor_cores", "gauge", "cores", "Cores of an executor.", _EXECUTOR)
EXECUTOR_CPU = _declare("executor_cpu_ratio", "gauge", "ratio", "Share of its cores in use.", _EXECUTOR)
EXECUTOR_MEMORY = _declare(
    "executor_memory_bytes",
    "gauge",
    "bytes",
    "Resident memory of an executor's Java process and Python workers.",
    _EXECUTOR,
)
EXECUTOR_BUSY = _declare(
    "executor_busy_seconds_total", "counter", "seconds", "Task time on an executor.", _EXECUTOR
)
EXECUTOR_CPU_SECONDS = _declare(
    "executor_cpu_seconds_total", "counter", "seconds", "CPU time of tasks on an executor.", _EXECUTOR
)

# ---------------------------------------------------------------- stages and buckets

STAGE_ROWS = _declare(
    "stage_rows_total", "counter", "rows", "Rows that a stage received; events, for the scan.", _STAGE
)
STAGE_BUSY = _declare("stage_busy_seconds_total", "counter", "seconds", "Task time of a stage.", _STAGE)
STAGE_LATENCY = _declare(
    "stage_latency_seconds",
    "histogram",
    "seconds",
    "How long the slowest task of a stage took in an epoch.",
    _STAGE,
    bounds=_LATENCIES,
)
STAGE_EXCHANGED = _declare(
    "stage_exchange_bytes_total", "counter", "bytes", "Bytes that were exchanged to a stage.", _STAGE
)
STAGE_ROWS_RATE = _declare(
    "stage_rows_per_second",
    "gauge",
    "rows/second",
    "Rows that a stage received, a second.",
    _STAGE,
    was=("penstock_processing_rate_events_per_second",),
    labels_were=_FORMER_STAGE,
)
STAGE_EXCHANGE_RATE = _declare(
    "stage_exchange_bytes_per_second",
    "gauge",
    "bytes/second",
    "Bytes that were exchanged to a stage, a second.",
    _STAGE,
    was=("penstock_exchange_bytes_per_second",),
    labels_were=_FORMER_STAGE,
)
STAGE_UTILISATION = _declare(
    "stage_utilisation_ratio",
    "gauge",
    "ratio",
    "Task time of a stage over the time that its slices' cores had.",
    _STAGE,
    was=("penstock_utilisation_ratio",),
    labels_were=_FORMER_STAGE,
)
STAGE_IMBALANCE = _declare(
    "stage_imbalance_ratio",
    "gauge",
    "ratio",
    "Standard deviation of the utilisation of a stage's slices.",
    _STAGE,
    was=("penstock_imbalance_ratio",),
    labels_were=_FORMER_STAGE,
)
STAGE_STATE = _declare("stage_state_bytes", "gauge", "bytes", "State of a stage.", _STAGE)
BUCKET_HEAT = _declare(
    "bucket_seconds_per_second",
    "gauge",
    "ratio",
    "Task time spent on a bucket, a second.",
    ("stage", "bucket"),
    labels_were=_FORMER_STAGE,
)
BUCKET_STATE = _declare(
    "bucket_bytes", "gauge", "bytes", "State of a bucket.", ("stage", "bucket"), labels_were=_FORMER_STAGE
)

# ---------------------------------------------------------------- jobs

JOBS = _declare("jobs", "gauge", "jobs", "Jobs, by their state.", ("life",))
JOB_ROWS = _declare("job_rows_total", "counter", "rows", "Rows that a job emitted.", _JOB)
JOB_EPOCHS = _declare("job_epochs_total", "counter", "epochs", "Epochs in which a job emitted rows.", _JOB)
JOB_EPOCH = _declare("job_epoch", "gauge", "epoch", "The last epoch in which a job emitted rows.", _JOB)
JOB_LATENCY = _declare(
    "job_latency_seconds",
    "histogram",
    "seconds",
    "From the end of a job's newest window, or its newest event, to the commit of its rows.",
    _JOB,
    bounds=_FEW_LATENCIES,
)
JOB_REPEATED_ROWS = _declare(
    "job_repeated_rows_total", "counter", "rows", "Rows that a job's sinks took once more after a loss.", _JOB
)
JOB_WITHHELD_ROWS = _declare(
    "job_withheld_rows_total", "counter", "rows", "Rows that a job did not emit after a loss.", _JOB
)
JOB_MEMORY = _declare(
    "job_memory_bytes",
    "gauge",
    "bytes",
    "By how much a worker grew in a job's own code in the last epoch, where that was over 10 MB.",
    _JOB,
)

# ---------------------------------------------------------------- service

UP_SECONDS = _declare("up_seconds", "gauge", "seconds", "Since the service was started.")
STREAMS = _declare("streams", "gauge", "streams", "Streams that are declared.")
SUBSCRIBERS = _declare("subscribers", "gauge", "subscriptions", "Subscriptions that are open.")
SUBSCRIBERS_DROPPED = _declare(
    "subscribers_dropped_total", "counter", "subscriptions", "Subscriptions that were dropped.", ("reason",)
)
CONNECTIONS = _declare(
    "http_connections", "gauge", "connections", "Connections to the service that are open."
)
CONNECTIONS_ENDED = _declare(
    "http_connections_ended_total",
    "counter",
    "connections",
    "Connections that the service closed because a deadline was over or there was no room, and those it refused.",
    ("reason",),
)
HTTP_RESPONSES = _declare(
    "http_responses_total",
    "counter",
    "responses",
    "Responses, by HTTP status.",
    ("status",),
    was=("penstock_http_answers_total",),
)

# ---------------------------------------------------------------- HA units

UNIT_SCHEME = _declare("unit_scheme_info", "gauge", "1", "1 for the scheme in force.", ("scheme",))
UNIT_GENERATION = _declare("unit_generation", "gauge", "generation", "Generation of the leader's lease.")
UNIT_EPOCH = _declare("unit_epoch", "gauge", "epoch", "The last committed epoch of a unit.")
UNIT_DURABLE = _declare("unit_durable_epoch", "gauge", "epoch", "The last durable epoch of a unit.")
UNIT_ENGINES = _declare("unit_engines", "gauge", "engines", "Engines that are up.", ("role", "phase"))
UNIT_LAG = _declare("unit_engine_lag_epochs", "gauge", "epochs", "Epochs behind the last one.", _ENGINE)
UNIT_HELD = _declare(
    "unit_engine_held_epochs", "gauge", "epochs", "Epochs whose rows are held back.", _ENGINE
)
UNIT_CACHED = _declare("unit_engine_cached_bytes", "gauge", "bytes", "State held in memory.", _ENGINE)
UNIT_RECOVERIES = _declare("unit_recoveries_total", "counter", "recoveries", "Changes of leader.")
UNIT_RECOVERY_SECONDS = _declare(
    "unit_last_recovery_seconds", "gauge", "seconds", "From the last failure to the first result after it."
)
UNIT_THRESHOLD = _declare(
    "unit_recovery_threshold_seconds", "gauge", "seconds", "How long a recovery may take."
)
UNIT_SWITCHES = _declare("unit_switches_total", "counter", "switches", "Changes of scheme.")

# ---------------------------------------------------------------- agents and gateways

GATEWAY_CONNECTIONS = _declare("gateway_connections", "gauge", "connections", "Agents that are connected.")
GATEWAY_WAITING_CONNECTIONS = _declare(
    "gateway_waiting_connections",
    "gauge",
    "connections",
    "Connections that have not yet proved who they are.",
)
GATEWAY_REFUSED = _declare(
    "gateway_refused_total", "counter", "refusals", "Connections and requests refused."
)
GATEWAY_GROUPS = _declare("gateway_groups_total", "counter", "groups", "Groups that were made durable.")
GATEWAY_FRAMES = _declare("gateway_frames_total", "counter", "frames", "Frames that were appended.")
GATEWAY_LINES = _declare("gateway_lines_total", "counter", "lines", "Lines that were appended.")
GATEWAY_DUPLICATES = _declare(
    "gateway_duplicate_frames_total", "counter", "frames", "Frames that the log had already."
)
GATEWAY_WAITING = _declare("gateway_waiting_bytes", "gauge", "bytes", "Received and not yet durable.")
GATEWAY_PRODUCERS = _declare("gateway_producers", "gauge", "producers", "Producers of a stream.", _STREAM)
GATEWAY_DROPPED = _declare(
    "gateway_dropped_bytes_total", "counter", "bytes", "Bytes that producers dropped before sending.", _STREAM
)
AGENT_LINES = _declare("agent_lines_total", "counter", "lines", "Lines that were shipped.", ("producer",))
AGENT_FRAMES = _declare("agent_frames_total", "counter", "frames", "Frames that were shipped.", ("producer",))
AGENT_BYTES = _declare("agent_sent_bytes_total", "counter", "bytes", "Bytes that were sent.", ("producer",))
AGENT_DROPPED = _declare(
    "agent_dropped_lines_total",
    "counter",
    "lines",
    "Lines dropped because the spool was full.",
    ("producer",),
)
AGENT_REDUCED = _declare(
    "agent_reduced_lines_total", "counter", "lines", "Lines that were reduced before shipping.", ("producer",)
)
AGENT_WAITING = _declare(
    "agent_unacknowledged_bytes",
    "gauge",
    "bytes",
    "Bytes in the spool that wait to be acknowledged.",
    ("producer",),
)

METRICS = tuple(_declared)
