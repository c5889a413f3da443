"""Every setting of an engine, declared once with its unit and meaning."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.logs.stragglers import PATIENCE_SECONDS
from penstock.scaling.manager import Manager
from penstock.scaling.settings import ElasticSettings
from penstock.state.cache import default_cache_root

#: the master that stands for no Spark at all
INLINE = "inline"
_LOOPBACK = re.compile(r"spark://(127(\.\d+){3}|localhost|\[::1\]):\d+$")


@dataclass(frozen=True)
class Settings:
    """How an engine runs. None of these changes what it computes."""

    #: where the state lies; one directory a query
    state: Path = field(default_factory=lambda: Path("penstock-state"))
    #: Spark's master: local[*], local[2], spark://host:port, yarn, k8s://...
    master: str = "local[*]"
    #: how long an epoch should take under load, in seconds
    epoch_seconds: float = 1.0
    #: how long an epoch may take, in seconds, while the log is behind by more than two: long ones catch up faster
    catch_up_seconds: float = 5.0
    #: the most an epoch longer than its target may take, in bytes (or a 200th as many records): it is in memory at once
    catch_up_bytes: int = 512_000_000
    #: epochs begin at least this far apart, in seconds, so that a trickle does not keep the machine busy
    epoch_interval_seconds: float = 0.1
    #: tasks a slice stage is cut into; None: as many as Spark has cores
    slices: int | None = None
    #: buckets per operator: the finest the state can be cut; fixed for the life of a state directory
    buckets: int = 64
    #: whether state that the query has no use for, or that is of another query, may be dropped
    drop_state: bool = False
    #: manifests kept; older state cannot be gone back to
    manifests_kept: int = 20
    #: epochs from one durable manifest to the next; the state of those in between is in the host's memory, and they are
    #: repeated from their records after a loss
    checkpoint_every: int = 1
    #: whether that may change while the engine runs, up to 30: it is left to the controller of a unit
    checkpoint_varies: bool = False
    #: what a recovery has to keep: precise, rollback, gap or amnesia
    semantics: Semantics = Semantics.precise
    #: what the first epoch may take, in the log's units (bytes or records); the rate control goes on from it. A 32nd of
    #: it where events meet each other or Python is called for each
    first_epoch_units: int = 32_000_000
    #: the most an epoch may ever take, in the log's units; None: no bound but the target length
    most_epoch_units: int | None = None
    #: an epoch of at most this many bytes (or a 200th as many records) is one task: nothing has to move
    small_epoch_bytes: int = 400_000
    #: end when the logs are finished and read, instead of waiting for more
    drain: bool = False
    #: the host's cache of hot runs; None: no cache
    cache_root: Path | None = field(default_factory=default_cache_root)
    #: the most the cache may hold, in bytes
    cache_bytes: int = 2 << 30
    #: how much longer than usual an epoch may take because buckets have other owners, in seconds; decides how they move
    move_pause_seconds: float = 0.1
    #: how long a move of buckets may wait for windows to end, in seconds
    move_patience_seconds: float = 30.0
    #: how long a job's own code may keep one task of an epoch, in seconds, before the job is paused; 0: for ever
    job_seconds: float = 10.0
    #: how much of an epoch a job's own code may take, five times in a row while there are other jobs, before the job
    #: is paused; 0: as much as it likes
    job_share: float = 0.8
    #: the coordination store where engines of one unit agree who writes: a directory or zk://...; None: no other engine
    coordination: str | None = None
    #: the name of the unit there; None: the application's
    unit: str | None = None
    #: how long the engine may give no sign of life, in seconds, before another takes over
    session_seconds: float = 2.0
    #: how long an engine of a unit is waited for that lacks what the others have of a replicated log, in seconds
    straggler_seconds: float = PATIENCE_SECONDS
    #: run a small job first, so that the first epoch does not wait for Python workers
    warm_up: bool = True
    #: how the executors follow the load; None: as many as the cluster gives, for ever
    elastic: ElasticSettings | None = None
    #: who decides that; None: Penstock's own rules
    manager: Manager | None = None
    #: executors to begin with where the master is a cluster; None: all it gives
    executors: int | None = None
    #: tasks an executor runs at once; None: all of a worker's cores (standalone), else one
    executor_cores: int | None = None
    #: how long a cluster may take to give the first executors, in seconds
    executors_seconds: float = 60.0
    #: further Spark settings, as `spark.` keys
    spark: dict[str, str] = field(default_factory=dict)


def check_interval(settings: Settings) -> None:
    """Refuse an interval that cannot be, or that needs the memory of one host where there are several."""
    if settings.checkpoint_every < 1:
        raise UserError("BAD_OPTION", "a durable manifest every 0 epochs cannot be", hint="1 is the least.")
    if in_memory(settings) and settings.master != INLINE and not on_one_host(settings.master):
        raise UserError(
            "CHECKPOINTS_APART",
            f"with master {settings.master} every epoch's state has to be durable",
            detail="The runs of the epochs in between lie in the memory of one host, which the tasks of others cannot "
            "read.",
            hint="Leave out the checkpoint interval, or use a local master.",
        )


def in_memory(settings: Settings) -> bool:
    """Whether the state of some epochs may be in memory only."""
    return settings.checkpoint_every > 1 or settings.checkpoint_varies


def on_one_host(master: str) -> bool:
    """Whether all tasks run on this machine: a local master, or a cluster that listens on loopback only."""
    return master.startswith("local") or _LOOPBACK.match(master) is not None


def cores_of(master: str) -> int:
    """The cores a local master stands for."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1
