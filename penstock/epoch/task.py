"""Defines what every task of an epoch knows, its executor too.

An `EpochTask` has the driver's decisions for one epoch, frozen. Scan tasks and slice tasks receive the same one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from penstock.epoch.job_memory import JobMemory
from penstock.errors import PenstockError
from penstock.operators.contract import FOREVER, Operator
from penstock.operators.job_windows import closing_batches
from penstock.operators.watermark import advance_watermark, skip_idle_streams
from penstock.query.physical import Plan, maps_by_stage
from penstock.query.steps import Edge, EdgeTarget
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation, slice_buckets
from penstock.state.cache import HostCache
from penstock.state.manifest import Collections, StreamTime
from penstock.state.run import Piece
from penstock.state.run_store import RunStore


@dataclass(frozen=True)
class StateLocation:
    """Where the runs are, and where the host's cache of them may be."""

    runs: str
    cache: str | None
    cache_bytes: int
    #: a directory of the host for large frames on their way, where all tasks run on one host
    spill_directory: str | None = None
    #: whether every executor has a cache of its own, below `cache`
    cache_per_executor: bool = False
    #: a directory in the host's memory for new runs, until a durable manifest names them
    memory: str | None = None
    #: a directory in which workers mark the job whose code they execute
    job_marks: str | None = None


@dataclass(frozen=True)
class EpochTask:
    """One epoch as its tasks see it: the plan, the state before it, the streams' times, the bucket maps."""

    plan: Plan
    epoch: int
    streams: Mapping[str, StreamTime]
    finished: Mapping[str, tuple[str, ...]]
    idle: Mapping[str, tuple[str, ...]]
    closed: Mapping[str, bool]
    #: the wall clock when the epoch was admitted (microseconds since 1970); None where it is not known
    admitted_at: int | None
    collections: Collections
    maps: BucketMaps
    location: StateLocation
    engine_pid: int
    #: of streams whose watermark is limited: the limit, and how many batches of jobs are ahead of it
    watermark_limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: of streams that are ahead of the wall clock, the time from which future events are measured instead
    clocks: Mapping[str, int] = field(default_factory=dict)
    #: the numbers of jobs that emit their open windows in this epoch
    flush: frozenset[int] = frozenset()
    #: what jobs emitted in the epoch before, by their names, where others read it (Arrow)
    previous: Mapping[str, bytes] = field(default_factory=dict)
    #: how long a job's own code may take in a task, in seconds; 0 for no limit
    job_seconds: float = 0.0
    #: how much memory it may take; None: as much as there is
    job_memory: JobMemory | None = None
    #: how many bytes of rows it may emit in a task; 0 for no limit
    job_result_bytes: int = 0
    #: runs that no epoch reads any more, which caches drop
    unused_runs: tuple[str, ...] = ()

    @cached_property
    def slices(self) -> int:
        """How many slices there are; some may have nothing to do."""
        return 1 + max((max(owners) for owners in self.bucket_maps.values()), default=0)

    @cached_property
    def bucket_maps(self) -> Mapping[str, BucketMap]:
        """The map of every stage."""
        return maps_by_stage(self.maps, self.plan)

    def operator_of(self, edge: Edge) -> Operator | None:
        """The operator that an edge leads to; None for an output."""
        stage = self.plan.stage_of(edge.target)
        return None if stage is None else stage.operator

    def jobs_of(self, target: EdgeTarget) -> tuple[int, ...]:
        """The numbers of the jobs that fail alone if a stage raises, or an edge to a stage or output: of the one that
        alone uses it, or of outputs of an app. None where the error is everybody's."""
        if target.output is not None:
            job = self.plan.outputs[target.output].job
        else:
            job = self.owner_of(target.name)
        return self.plan.isolated.get(target, ()) if job is None else (job,)

    def owner_of(self, stage: str) -> int | None:
        """The number of the job that alone uses a stage."""
        return None if self.plan.jobs is None else self.plan.jobs.owners.get(stage)

    def has_members(self, stage: str) -> bool:
        """Whether a stage is that of a template group."""
        return self.plan.jobs is not None and stage in self.plan.jobs.members

    def batches_of(self, stage: str) -> list[int]:
        """The batches in which a template group has jobs."""
        members = {} if self.plan.jobs is None else self.plan.jobs.members[stage]
        return sorted({int(batch) for batch in closing_batches(pl.Series(list(members), dtype=pl.UInt32))})

    def flushed_jobs(self, stage: str) -> frozenset[int]:
        """The jobs of a stage that emit their open windows."""
        if self.has_members(stage):
            return self.flush
        return self.flush & {number for number in (self.owner_of(stage),) if number is not None}

    def times_after(self, seen: Mapping[str, Mapping[str, int]]) -> dict[str, StreamTime]:
        """The streams' times after the epoch, given the highest event time of each partition in it."""
        return self._skip_idle(self._advance(seen, self.watermark_limits), seen)

    def unlimited_times_after(self, seen: Mapping[str, Mapping[str, int]]) -> dict[str, StreamTime]:
        """The same if no watermark were limited."""
        return self._skip_idle(self._advance(seen, {}), seen)

    def _skip_idle(
        self, times: dict[str, StreamTime], seen: Mapping[str, Mapping[str, int]]
    ) -> dict[str, StreamTime]:
        unlimited = self._advance(seen, {}) if self.watermark_limits else times
        ended = {name for name, stream in unlimited.items() if stream.watermark == FOREVER}
        return skip_idle_streams(times, (sub.streams for sub in self.plan.stages.values()), ended)

    def _advance(
        self, seen: Mapping[str, Mapping[str, int]], limits: Mapping[str, tuple[int, int]]
    ) -> dict[str, StreamTime]:
        return {
            name: advance_watermark(
                stream,
                seen.get(name, {}),
                self.plan.scans[name].stream.lateness,
                finished=self.finished[name],
                idle=self.idle[name],
                closed=self.closed[name],
                limit=limits.get(name),
            )
            for name, stream in self.streams.items()
        }

    def buckets_of_slice(self, stage: str, slice_: int) -> frozenset[int]:
        """The buckets of a stage that a slice owns; there may be none."""
        return slice_buckets(self.bucket_maps[stage], slice_)


def open_run_store(location: StateLocation) -> RunStore:
    """The worker's store of runs: one for all its tasks, so that hot runs stay mapped."""
    return shared_run_store(location, current_executor().executor if location.cache_per_executor else None)


@functools.lru_cache(maxsize=16)
def shared_run_store(location: StateLocation, executor: str | None) -> RunStore:
    """The store of the host, or of an executor that has a cache of its own."""
    memory = None if location.memory is None else Path(location.memory)
    if location.cache is None:
        return RunStore(Path(location.runs), None, memory=memory)
    cache = HostCache(Path(location.cache), location.cache_bytes)
    if executor is not None:
        cache = cache.for_executor(executor)
        cache.claim(current_executor().pid)
        if current_executor().pid != os.getpid():
            cache.remove_after(current_executor().pid)
    return RunStore(Path(location.runs), cache, memory=memory)


@dataclass(frozen=True)
class CacheFill:
    """What a task did to fill an executor's cache: where it should have run and where it ran, the pieces of runs that
    are in the cache now, the bytes read for that and the seconds it took."""

    place: ExecutorLocation
    executor: str
    pieces: tuple[Piece, ...]
    bytes: int
    seconds: float


def fill_cache(location: StateLocation, place: ExecutorLocation, pieces: Sequence[Piece]) -> CacheFill:
    """Bring pieces of runs into the cache of this task's executor, except those that cannot be read."""
    started, store, read, filled = time.perf_counter(), open_run_store(location), 0, []
    for piece in pieces:
        try:
            read += store.warm(piece)
        except (PenstockError, OSError):
            continue
        filled.append(piece)
    return CacheFill(place, current_executor().executor, tuple(filled), read, time.perf_counter() - started)


_PAGE = os.sysconf("SC_PAGE_SIZE")
#: set where one process simulates the tasks of several executors
_SIMULATED: ContextVar[str | None] = ContextVar("executor", default=None)
#: process number: bytes that are its own, and bytes that other processes may have mapped too
Memory = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class ExecutorIdentity:
    """An executor's number and its process. Of tasks that run in the driver: `driver`, and this process.

    Spark does not give a Python worker the number of its executor. But the worker's ancestors are the executor's Java
    process, whose command line has the number wherever Spark started it (standalone, YARN, Kubernetes).
    """

    executor: str
    pid: int


def current_executor() -> ExecutorIdentity:
    """The executor that this task runs on."""
    simulated = _SIMULATED.get()
    return _find_executor() if simulated is None else ExecutorIdentity(simulated, os.getpid())


def measure_memory() -> Memory:
    """The memory of this process and of the executor's Java process above it; empty where the system has no /proc."""
    pids = {os.getpid(), current_executor().pid}
    return {pid: memory for pid in pids if (memory := _process_memory(pid)) is not None}


def _process_memory(pid: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = map(int, file.read().split()[1:3])
        return (resident - shared) * _PAGE, shared * _PAGE
    return None


@contextlib.contextmanager
def running_as(executor: str | None) -> Iterator[None]:
    """Simulate that the tasks of this thread run on an executor; with None they run where they do."""
    token = _SIMULATED.set(executor)
    try:
        yield
    finally:
        _SIMULATED.reset(token)


@functools.cache
def _find_executor() -> ExecutorIdentity:
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        for _ in range(8):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return ExecutorIdentity(words[words.index("--executor-id") + 1], pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ExecutorIdentity("driver", os.getpid())
