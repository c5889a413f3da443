"""Declares every setting of an engine, with its unit and meaning."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.logs.stragglers import PATIENCE_SECONDS
from penstock.scaling.decide import Manager
from penstock.scaling.settings import ElasticSettings
from penstock.state.cache import default_cache_root

#: the master that means: without Spark, in this process
INLINE = "inline"
_LOOPBACK = re.compile(r"spark://(127(\.\d+){3}|localhost|\[::1\]):\d+$")


@dataclass(frozen=True)
class Settings:
    """The settings of an engine. None of them changes its results."""

    #: the state directory; each query needs its own
    state: Path = field(default_factory=lambda: Path("penstock-state"))
    #: the Spark master: local[*], local[2], spark://host:port, yarn, k8s://...
    master: str = "local[*]"
    #: target length of an epoch under load, in seconds
    epoch_seconds: float = 1.0
    #: target length of an epoch while more than two epochs wait in the log, in seconds: long epochs catch up faster
    catch_up_seconds: float = 5.0
    #: the most that such an epoch may read, in bytes (or a 200th as many records): all of it is in memory
    catch_up_bytes: int = 512_000_000
    #: least time between the starts of two epochs, in seconds: a slow stream must not keep the machine busy
    epoch_interval_seconds: float = 0.1
    #: tasks of a slice stage; None: as many as Spark has cores
    slices: int | None = None
    #: buckets per operator, the smallest units of state; fixed for the life of a state directory
    buckets: int = 64
    #: whether state that the query cannot use may be dropped
    drop_state: bool = False
    #: manifests to retain; a rollback cannot go further back
    manifests_kept: int = 20
    #: checkpoint interval in epochs; the state of the epochs in between is in the host's memory, and after a loss they
    #: are repeated from their records
    checkpoint_every: int = 1
    #: whether the controller of an HA unit may change that while the engine runs, up to 30
    checkpoint_varies: bool = False
    #: recovery semantics: precise, rollback, gap or amnesia
    semantics: Semantics = Semantics.precise
    #: size of the first epoch, in the log's units (bytes or records), from which rate control continues; a 32nd of it
    #: for joins, patterns and Python functions per event
    first_epoch_units: int = 32_000_000
    #: maximum size of an epoch, in the log's units; None: limited by the target length only
    most_epoch_units: int | None = None
    #: an epoch of at most this many bytes (or a 200th as many records) is one task, without an exchange
    small_epoch_bytes: int = 400_000
    #: whether to stop when the logs are finished and read, instead of waiting for more
    drain: bool = False
    #: the host's cache of hot runs; None: no cache
    cache_root: Path | None = field(default_factory=default_cache_root)
    #: maximum size of the cache, in bytes
    cache_bytes: int = 2 << 30
    #: how much longer an epoch may take because of a migration of buckets, in seconds; decides the protocol
    move_pause_seconds: float = 0.1
    #: how long a migration may wait for windows to end, in seconds
    move_patience_seconds: float = 30.0
    #: how long a job's own code may take in one task of an epoch, in seconds, before the job is paused; 0: no limit
    job_seconds: float = 10.0
    #: how much memory a job's own code may take in one task, in bytes, before the job is paused; None: half of the
    #: host's memory, shared between its tasks; 0: no limit
    job_memory_bytes: int | None = None
    #: how many bytes of rows a job may emit in one task of an epoch, before the job is paused, as the driver collects
    #: them; 0: no limit
    job_result_bytes: int = 512_000_000
    #: how many bytes of results wait on disk for sinks and questions: beyond that, results that only questions need are
    #: removed, and then the job whose sink is farthest behind is stopped until it is resumed
    result_log_bytes: int = 2_000_000_000
    #: how many bytes of dead letters, late events and skipped spans are kept, and for how many days: older files are
    #: removed, and the log says so
    side_output_bytes: int = 1_000_000_000
    side_output_days: float = 30.0
    #: what share of an epoch a job's own code may take, five times in a row while there are other jobs, before the job
    #: is paused; 0: no limit
    job_share: float = 0.8
    #: the coordination store of an HA unit: a directory or zk://...; None: a single engine
    coordination: str | None = None
    #: the name of the unit; None: that of the application
    unit: str | None = None
    #: how long the engine may miss heartbeats, in seconds, before another takes over
    session_seconds: float = 2.0
    #: how long a unit waits for an engine that lacks data of a replicated log, in seconds
    straggler_seconds: float = PATIENCE_SECONDS
    #: whether to warm up with a small job, so that the first epoch does not wait for Python workers
    warm_up: bool = True
    #: how the number of executors follows the load; None: constant, all that the cluster gives
    elastic: ElasticSettings | None = None
    #: what decides that; None: Penstock's own rules
    manager: Manager | None = None
    #: executors at the start, on a cluster; None: all that it gives
    executors: int | None = None
    #: cores of each executor; None: all of a worker's (standalone), else one
    executor_cores: int | None = None
    #: how long to wait for the first executors of a cluster, in seconds
    executors_seconds: float = 60.0
    #: further Spark settings, with `spark.` keys
    spark: dict[str, str] = field(default_factory=dict)


def check_interval(settings: Settings) -> None:
    """Refuse a checkpoint interval below 1, and one above 1 if tasks run on several hosts."""
    if settings.checkpoint_every < 1:
        raise UserError("BAD_OPTION", "the checkpoint interval is below 1 epoch", hint="Use 1 or more.")
    if in_memory(settings) and settings.master != INLINE and not on_one_host(settings.master):
        raise UserError(
            "CHECKPOINTS_APART",
            f"with master {settings.master} the state of every epoch has to be durable",
            detail="The runs of the epochs in between are in the memory of one host, where tasks on others cannot read "
            "them.",
            hint="Leave out the checkpoint interval, or use a local master.",
        )


def in_memory(settings: Settings) -> bool:
    """Whether the state of some epochs is in memory only."""
    return settings.checkpoint_every > 1 or settings.checkpoint_varies


def on_one_host(master: str) -> bool:
    """Whether all tasks run on this machine: with a local master, or a cluster on loopback."""
    return master.startswith("local") or _LOOPBACK.match(master) is not None


def cores_of(master: str) -> int:
    """The cores of a local master."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1
