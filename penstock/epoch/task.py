"""What every task of an epoch knows, and how rows find their slices.

Receives the driver's decisions for one epoch, frozen; hands them to scan and slice tasks.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from penstock.epoch.executor_identity import whereabouts
from penstock.epoch.map_rules import owned, resolved
from penstock.epoch.message import Rows
from penstock.epoch.watermark import advanced, passed_over
from penstock.errors import PenstockError
from penstock.operators.contract import FOREVER, INPUT, Operator
from penstock.operators.job_windows import closing_batches
from penstock.query.edges import Edge
from penstock.query.physical import Plan
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation
from penstock.state.buckets import HASH, buckets_of
from penstock.state.cache import HostCache
from penstock.state.manifest import Collections, StreamTime
from penstock.state.run import Piece
from penstock.state.run_store import RunStore

#: rows a message may carry: Spark frames a record with a 31-bit length
MOST_ROWS = 500_000


@dataclass(frozen=True)
class StatePlace:
    """Where the runs lie, and where the host's cache of them may be."""

    runs: str
    cache: str | None
    cache_bytes: int
    #: a directory of the host for frames on their way, where all tasks run on one host
    shelf: str | None = None
    #: whether every executor has a cache of its own, below `cache`
    apart: bool = False
    #: a directory of the host's memory for new runs, until a manifest that names them is made durable
    memory: str | None = None


@dataclass(frozen=True)
class EpochTask:
    """One epoch as its tasks see it: the plan, the state before, the streams' times, the bucket maps."""

    plan: Plan
    epoch: int
    streams: Mapping[str, StreamTime]
    finished: Mapping[str, tuple[str, ...]]
    idle: Mapping[str, tuple[str, ...]]
    closed: Mapping[str, bool]
    #: the wall clock when the epoch was admitted (microseconds since 1970); None: not known
    admitted_at: int | None
    collections: Collections
    maps: BucketMaps
    place: StatePlace
    engine_pid: int
    #: of streams whose watermark is held: where, and how many lots of jobs do not wait for it
    watermark_limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: the numbers of jobs that tell their open windows in this epoch
    flush: frozenset[int] = frozenset()
    #: what jobs told in the epoch before, by their names, where others read it (Arrow)
    previous: Mapping[str, bytes] = field(default_factory=dict)
    #: how long a job's own code may keep a task, in seconds; 0: as long as it likes
    job_seconds: float = 0.0
    #: runs that no epoch reads any more, for caches to forget
    gone: tuple[str, ...] = ()

    @cached_property
    def slices(self) -> int:
        """How many slices there are; some may have nothing to do."""
        return 1 + max((max(owners) for owners in self.bucket_maps.values()), default=0)

    @cached_property
    def bucket_maps(self) -> Mapping[str, BucketMap]:
        """The map of every sub-query."""
        return resolved(self.maps, self.plan)

    def operator_of(self, edge: Edge) -> Operator | None:
        """The operator an edge leads to; None for an output."""
        found = self.plan.stage_of(edge.target)
        return None if found is None else found.operator

    def job_of(self, edge: Edge) -> int | None:
        """The number of the job to whom an edge belongs alone; None where there are no jobs that come and go."""
        if self.plan.jobs is None:
            return None
        if edge.target.output is not None:
            return self.plan.outputs[edge.target.output].job
        return self.owner_of(edge.target.name)

    def owner_of(self, subquery: str) -> int | None:
        """The number of the job to whom a sub-query belongs alone."""
        return None if self.plan.jobs is None else self.plan.jobs.owners.get(subquery)

    def has_members(self, subquery: str) -> bool:
        """Whether a sub-query is that of a group of jobs."""
        return self.plan.jobs is not None and subquery in self.plan.jobs.members

    def lots_of(self, subquery: str) -> list[int]:
        """The lots in which a group has jobs."""
        members = {} if self.plan.jobs is None else self.plan.jobs.members[subquery]
        return sorted({int(lot) for lot in closing_batches(pl.Series(list(members), dtype=pl.UInt32))})

    def flushed(self, subquery: str) -> frozenset[int]:
        """The jobs that are flushed, of those whose sub-query this is."""
        if self.has_members(subquery):
            return self.flush
        return self.flush & {number for number in (self.owner_of(subquery),) if number is not None}

    def times_after(self, seen: Mapping[str, Mapping[str, int]]) -> dict[str, StreamTime]:
        """The streams' times once these highest event times per partition have been seen in the epoch."""
        return self._met(self._advanced(seen, self.watermark_limits), seen)

    def sure_after(self, seen: Mapping[str, Mapping[str, int]]) -> dict[str, StreamTime]:
        """The same if no watermark were held."""
        return self._met(self._advanced(seen, {}), seen)

    def _met(
        self, times: dict[str, StreamTime], seen: Mapping[str, Mapping[str, int]]
    ) -> dict[str, StreamTime]:
        sure = self._advanced(seen, {}) if self.watermark_limits else times
        ended = {name for name, stream in sure.items() if stream.watermark == FOREVER}
        return passed_over(times, (sub.streams for sub in self.plan.stages.values()), ended)

    def _advanced(
        self, seen: Mapping[str, Mapping[str, int]], limits: Mapping[str, tuple[int, int]]
    ) -> dict[str, StreamTime]:
        return {
            name: advanced(
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

    def buckets_of_slice(self, subquery: str, slice_: int) -> frozenset[int]:
        """The buckets of a sub-query that are a slice's; it may have none."""
        return owned(self.bucket_maps[subquery], slice_)


def addressed(task: EpochTask, edge: Edge, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
    """Rows for a sub-query, dealt out to the slices by their key; rows for an output, as they are."""
    operator = task.operator_of(edge)
    if operator is None:
        yield 0, Rows(edge.target, rows).to_bytes()
        return
    rows, stage = hashed(task, edge, rows), edge.target.name
    if task.slices == 1:
        for piece in rows.iter_slices(MOST_ROWS):
            yield 0, Rows(edge.target, piece, edge.port).left_at(task.place.shelf)
        return
    owners_of = np.asarray(task.bucket_maps[stage], dtype=np.uint16)
    if task.plan.stages[stage].route(edge.port).is_broadcast:
        for slice_ in np.unique(owners_of).tolist():
            for piece in rows.iter_slices(MOST_ROWS):
                yield slice_, Rows(edge.target, piece, edge.port).left_at(task.place.shelf)
        return
    owners = owners_of[buckets_of(rows[HASH].to_numpy(), task.maps.buckets)]
    for slice_ in range(task.slices):
        part = rows.filter(pl.Series(owners == slice_))
        for piece in part.iter_slices(MOST_ROWS) if part.height else ():
            yield slice_, Rows(edge.target, piece, edge.port).left_at(task.place.shelf)


def hashed(task: EpochTask, edge: Edge, rows: pl.DataFrame) -> pl.DataFrame:
    """Prepared rows with what tells their bucket and, if they can come by several edges, by which they came."""
    rows = task.plan.stages[edge.target.name].route(edge.port).add_hash(rows, task.maps.buckets)
    return rows if edge.place is None else rows.with_columns(pl.lit(edge.place, pl.UInt8).alias(INPUT))


def run_store(place: StatePlace) -> RunStore:
    """The worker's store of runs: kept between tasks, so that hot runs stay mapped."""
    return kept_store(place, whereabouts().executor if place.apart else None)


@functools.lru_cache(maxsize=16)
def kept_store(place: StatePlace, executor: str | None) -> RunStore:
    """The store of an executor that has a cache of its own, or of the host."""
    memory = None if place.memory is None else Path(place.memory)
    if place.cache is None:
        return RunStore(Path(place.runs), None, memory=memory)
    cache = HostCache(Path(place.cache), place.cache_bytes)
    if executor is not None:
        cache = cache.for_executor(executor)
        cache.claim(whereabouts().pid)
        if whereabouts().pid != os.getpid():
            cache.remove_after(whereabouts().pid)
    return RunStore(Path(place.runs), cache, memory=memory)


@dataclass(frozen=True)
class Warmed:
    """What an executor has done to fill its cache: where it should have been, where it was, the pieces of runs that are
    there now, the bytes read for that and the seconds it took."""

    place: ExecutorLocation
    executor: str
    pieces: tuple[Piece, ...]
    bytes: int
    seconds: float


def warmed(place: StatePlace, at: ExecutorLocation, pieces: Sequence[Piece]) -> Warmed:
    """Bring pieces of runs into the cache of the executor this task runs on; one that cannot be read is left out."""
    began, store, read, there = time.perf_counter(), run_store(place), 0, []
    for piece in pieces:
        try:
            read += store.warm(piece)
        except (PenstockError, OSError):
            continue
        there.append(piece)
    return Warmed(at, whereabouts().executor, tuple(there), read, time.perf_counter() - began)
