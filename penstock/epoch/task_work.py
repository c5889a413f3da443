"""Sums what an epoch's tasks did: by task, stage, slice and bucket. Counting is one pass over the hashes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import polars as pl

from penstock.epoch.message import ScanReport, SliceReport, SliceWork, TaskReport
from penstock.query.physical import Plan, Stage, maps_by_stage, stage_runs
from penstock.state.bucket_map import BucketMap, BucketMaps
from penstock.state.buckets import HASH, buckets_of
from penstock.state.manifest import Collections
from penstock.state.run import RunEntry


@dataclass(frozen=True)
class TaskWork:
    """One task: its phase (`scan`, `slice 1`, ...), its number in it, its executor, how long it took, its CPU time, and
    the memory of its processes at its end."""

    stage: str
    number: int
    executor: str
    seconds: float
    cpu_seconds: float
    rows: int
    memory: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class StageWork:
    """One stage: task seconds, rows that it received (after reduction by their senders) and the bytes that these
    travelled in; in all, by slice and by bucket."""

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
        """The seconds of every slice split between its buckets: by their rows, and evenly where there are none."""
        rows = np.asarray(self.rows_by_bucket, dtype=np.float64)
        owners = np.asarray(self.bucket_map)
        bucket_seconds = np.zeros(len(owners))
        for slice_, seconds in self.seconds_by_slice.items():
            owned = owners == slice_
            share = rows[owned] if rows[owned].any() else np.ones(int(owned.sum()))
            if share.size:
                bucket_seconds[owned] = seconds * share / share.sum()
        return tuple(bucket_seconds.tolist())


def count_rows(
    stage: Stage, inputs: Sequence[pl.DataFrame | None], buckets: int
) -> tuple[int, list[int], list[int]]:
    """How many rows a stage receives in a slice; and the buckets that receive some, with their numbers."""
    if all(frame is None or not frame.height for frame in inputs):
        return 0, [], []
    rows, counts = 0, np.zeros(buckets, dtype=np.int64)
    for port, frame in enumerate(inputs):
        if frame is None or not frame.height:
            continue
        rows += frame.height
        if not stage.route(port).is_broadcast:
            counts += np.bincount(buckets_of(frame[HASH].to_numpy(), buckets), minlength=buckets)
    present = np.flatnonzero(counts)
    return rows, present.tolist(), counts[present].tolist()


def list_tasks(reports: Iterable[TaskReport]) -> tuple[TaskWork, ...]:
    """The work of each task, by its report."""
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


def sum_stage_work(
    reports: Iterable[SliceReport], plan: Plan, maps: BucketMaps, after: Collections
) -> dict[str, StageWork]:
    """The work of each stage, by the reports of its slices; `after`: the state after the epoch."""
    by_stage: dict[str, list[tuple[int, SliceWork]]] = {}
    for report in reports:
        for stage, one in report.work.items():
            by_stage.setdefault(stage, []).append((report.slice, one))
    owners, work = maps_by_stage(maps, plan), {}
    for stage in plan.stages:
        slices = by_stage.get(stage, [])
        rows_by_bucket = [0] * maps.buckets
        for _, one in slices:
            for bucket, count in zip(one.buckets, one.counts, strict=True):
                rows_by_bucket[bucket] += count
        work[stage] = StageWork(
            seconds=sum(one.seconds for _, one in slices),
            rows=sum(one.rows for _, one in slices),
            bytes=sum(one.bytes for _, one in slices),
            seconds_by_slice={slice_: one.seconds for slice_, one in slices},
            rows_by_slice={slice_: one.rows for slice_, one in slices},
            rows_by_bucket=tuple(rows_by_bucket),
            bucket_map=owners[stage],
            _runs=partial(stage_runs, plan, after, stage),
        )
    return work


def bucket_bytes(entries: Iterable[RunEntry], buckets: int) -> tuple[int, ...]:
    """About how many bytes of state each bucket has: its share of the rows of every run."""
    sums = [0.0] * buckets
    for entry in entries:
        row_bytes = entry.bytes / max(entry.rows, 1)
        for bucket, (_, count) in entry.sections.items():
            sums[bucket] += row_bytes * count
    return tuple(round(size) for size in sums)
