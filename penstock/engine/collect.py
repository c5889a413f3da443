"""Collecting: what the epochs of a period say, as the snapshot that the elastic loop and `penstock status` read.

Receives epoch reports, the executors that are there and what waits in the logs; hands a `Snapshot`.

The scan is a sub-query without buckets here: it takes cores like the others, and its work can be moved at any time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.elastic.measurements import VACANT, Fleet, Measured, Snapshot
from penstock.engine.epoch import EpochReport
from penstock.state.bucket_map import BucketMap

#: the name of the scan among the sub-queries
SCAN = "scan"


@dataclass(frozen=True)
class Worker:
    """An executor that is there: its id, its cores, and the share of its memory in use."""

    id: str
    cores: int
    memory: float = 0.0


@dataclass(frozen=True)
class Waiting:
    """What waits in the logs, in their units, at the beginning and the end of a period."""

    before: Mapping[str, int]
    after: Mapping[str, int]


def snapshot(
    at: float,
    period_seconds: float,
    reports: Sequence[EpochReport],
    workers: Sequence[Worker],
    placement: Sequence[str],
    waiting: Waiting,
    target_seconds: float,
    spare: Sequence[str] = (),
    owners: Mapping[str, BucketMap] | None = None,
) -> Snapshot:
    """What was measured in a period that ended at `at`. `placement`: the executor of each slice; `owners`: the bucket
    maps in force by now, where they may have changed since the last epoch."""
    done = [report for report in reports if not report.repeated]
    events = sum(report.events for report in done)
    backlog = _events(waiting.after, done)
    came = max(events + backlog - _events(waiting.before, done), 0.0)
    rates = came / period_seconds, events / period_seconds
    found = {SCAN: _scan(done, period_seconds, rates, backlog, placement)}
    for name in dict.fromkeys(name for report in done for name in report.work):
        found[name] = _sub_query(name, done, period_seconds, rates, backlog, placement, owners)
    lengths = [report.seconds for report in done]
    return Snapshot(
        at,
        period_seconds,
        _fleet(workers, done, period_seconds, spare),
        found,
        float(np.mean(lengths)) if lengths else 0.0,
        target_seconds,
    )


def _events(units: Mapping[str, int], reports: Sequence[EpochReport]) -> float:
    """About how many events lie in these units of the logs, going by what was read."""
    read = sum(sum(report.units.values()) for report in reports)
    events = sum(report.events for report in reports)
    return sum(units.values()) * (events / read if read else 0.0)


def _scan(
    reports: Sequence[EpochReport],
    period: float,
    rates: tuple[float, float],
    backlog: float,
    placement: Sequence[str],
) -> Measured:
    seconds = sum(task.seconds for report in reports for task in report.tasks if task.stage == SCAN)
    none = np.zeros(0)
    return Measured(
        SCAN, period, *rates, backlog, seconds, none, none, none, np.zeros(0, np.int64), tuple(placement)
    )


def _sub_query(
    name: str,
    reports: Sequence[EpochReport],
    period: float,
    rates: tuple[float, float],
    backlog: float,
    placement: Sequence[str],
    owners: Mapping[str, BucketMap] | None,
) -> Measured:
    works = [report.work[name] for report in reports if name in report.work]
    last = works[-1]
    owned = last.bucket_map if owners is None else owners.get(name, last.bucket_map)
    slices = max(len(placement), 1 + max(owned))
    return Measured(
        sub_query=name,
        period_seconds=period,
        input_rate=rates[0],
        processing_rate=rates[1],
        backlog_events=backlog,
        busy_seconds=sum(work.seconds for work in works),
        bucket_seconds=np.sum([work.seconds_by_bucket for work in works], axis=0, dtype=np.float64),
        bucket_events=np.sum([work.rows_by_bucket for work in works], axis=0, dtype=np.float64),
        bucket_bytes=np.asarray(last.state_by_bucket, dtype=np.float64),
        bucket_map=np.asarray(owned, dtype=np.int64),
        placement=(*placement, *[VACANT] * (slices - len(placement))),
        exchange_bytes=sum(work.bytes for work in works) / period,
    )


def _fleet(
    workers: Sequence[Worker], reports: Sequence[EpochReport], period: float, spare: Sequence[str]
) -> Fleet:
    busy: dict[str, float] = {}
    for report in reports:
        for task in report.tasks:
            busy[task.executor] = busy.get(task.executor, 0.0) + task.cpu_seconds
    working = [worker for worker in workers if worker.id not in spare]
    return Fleet(
        tuple(worker.id for worker in working),
        np.array([worker.cores for worker in working], dtype=np.int64),
        np.array([busy.get(w.id, 0.0) / (period * max(w.cores, 1)) for w in working], dtype=np.float64),
        np.array([worker.memory for worker in working], dtype=np.float64),
        tuple(spare),
    )


class Meter:
    """Keeps the reports of a period until they are asked for. From any thread."""

    def __init__(
        self,
        waiting: Callable[[], Mapping[str, int]],
        target_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting, self._target, self._clock = waiting, target_seconds, clock
        self._lock = threading.Lock()
        self._reports: list[EpochReport] = []
        self._since = clock()
        self._waited: Mapping[str, int] = {}
        #: the newest snapshot
        self.latest: Snapshot | None = None

    def add(self, report: EpochReport) -> None:
        """Take in an epoch."""
        with self._lock:
            self._reports.append(report)

    def ready(self, least_seconds: float, most_seconds: float) -> bool:
        """Whether there is something to measure: an epoch has ended since, or nothing has for long."""
        passed = self._clock() - self._since
        return passed >= most_seconds or (passed >= least_seconds and bool(self._reports))

    def measured(
        self,
        workers: Sequence[Worker],
        placement: Sequence[str],
        spare: Sequence[str] = (),
        owners: Mapping[str, BucketMap] | None = None,
    ) -> Snapshot:
        """What was measured since the last time."""
        with self._lock:
            reports, self._reports = self._reports, []
        now = self._clock()
        before, self._waited = self._waited, dict(self._waiting())
        period, self._since = max(now - self._since, 1e-3), now
        waiting = Waiting(before, self._waited)
        self.latest = snapshot(now, period, reports, workers, placement, waiting, self._target, spare, owners)
        return self.latest
