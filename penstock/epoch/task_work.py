"""What an epoch's tasks did, in figures: per task, per sub-query, per slice and per bucket. The raw facts of one epoch.

Receives the facts the tasks sent; hands them typed. Counting costs a pass over the upper bits of the hashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import polars as pl

from penstock.epoch.map_rules import bucket_bytes, resolved, runs_of
from penstock.epoch.message import ScanReport, SliceReport, StageWork, TaskReport
from penstock.query.physical import Plan, Stage
from penstock.state.bucket_map import BucketMap, BucketMaps
from penstock.state.buckets import HASH, buckets_of
from penstock.state.manifest import Collections
from penstock.state.run import RunEntry


@dataclass(frozen=True)
class TaskWork:
    """One task: its stage (`scan`, `slice 1`, ...), its number in it, where it ran, how long it took, how much of
    that it had a core, and what the processes that carried it out held in memory at its end."""

    stage: str
    number: int
    executor: str
    seconds: float
    cpu_seconds: float
    rows: int
    memory: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """One sub-query: seconds of work, rows that came in (after reduction by their senders) and the bytes they travelled
    in, over all slices, per slice and per bucket."""

    seconds: float
    rows: int
    bytes: int
    seconds_by_slice: Mapping[int, float]
    rows_by_slice: Mapping[int, int]
    rows_by_bucket: tuple[int, ...]
    bucket_map: BucketMap
    _runs: Callable[[], Iterable[RunEntry]] = field(default=tuple, repr=False)

    @cached_property
    def state_by_bucket(self) -> tuple[int, ...]:
        """About how many bytes of state each bucket has after the epoch."""
        return bucket_bytes(self._runs(), len(self.bucket_map))

    @cached_property
    def seconds_by_bucket(self) -> tuple[float, ...]:
        """The seconds of every slice dealt out to its buckets: by their rows, and evenly where none came."""
        rows = np.asarray(self.rows_by_bucket, dtype=np.float64)
        owners = np.asarray(self.bucket_map)
        found = np.zeros(len(owners))
        for slice_, seconds in self.seconds_by_slice.items():
            mine = owners == slice_
            share = rows[mine] if rows[mine].any() else np.ones(int(mine.sum()))
            if share.size:
                found[mine] = seconds * share / share.sum()
        return tuple(found.tolist())


def counted(
    sub: Stage, inputs: Sequence[pl.DataFrame | None], buckets: int
) -> tuple[int, list[int], list[int]]:
    """How many rows came for a sub-query in a slice; and the buckets that some came for, with their numbers."""
    if all(frame is None or not frame.height for frame in inputs):
        return 0, [], []
    rows, counts = 0, np.zeros(buckets, dtype=np.int64)
    for port, frame in enumerate(inputs):
        if frame is None or not frame.height:
            continue
        rows += frame.height
        if not sub.route(port).is_broadcast:
            counts += np.bincount(buckets_of(frame[HASH].to_numpy(), buckets), minlength=buckets)
    present = np.flatnonzero(counts)
    return rows, present.tolist(), counts[present].tolist()


def tasks_of(reports: Iterable[TaskReport]) -> tuple[TaskWork, ...]:
    """What each task said of itself."""
    scans = itertools.count()

    def task(report: TaskReport) -> TaskWork:
        number, rows = 0, 0
        match report:
            case ScanReport():
                number, rows = next(scans), report.events
            case SliceReport():
                number, rows = report.slice, report.rows
        return TaskWork(
            report.stage, number, report.executor, report.seconds, report.cpu_seconds, rows, report.memory
        )

    return tuple(map(task, reports))


def work_of(
    reports: Iterable[SliceReport], plan: Plan, maps: BucketMaps, after: Collections
) -> dict[str, Work]:
    """What each sub-query did, from what its slices said; `after`: the state as the epoch leaves it."""
    said: dict[str, list[tuple[int, StageWork]]] = {}
    for report in reports:
        for sub, one in report.work.items():
            said.setdefault(sub, []).append((report.slice, one))
    owners, found = resolved(maps, plan), {}
    for sub in plan.stages:
        mine = said.get(sub, [])
        by_bucket = [0] * maps.buckets
        for _, one in mine:
            for bucket, count in zip(one.buckets, one.counts, strict=True):
                by_bucket[bucket] += count
        found[sub] = Work(
            seconds=sum(one.seconds for _, one in mine),
            rows=sum(one.rows for _, one in mine),
            bytes=sum(one.bytes for _, one in mine),
            seconds_by_slice={slice_: one.seconds for slice_, one in mine},
            rows_by_slice={slice_: one.rows for slice_, one in mine},
            rows_by_bucket=tuple(by_bucket),
            bucket_map=owners[sub],
            _runs=partial(runs_of, plan, after, sub),
        )
    return found
