"""Collects epoch reports, executors and the backlog of a period into a snapshot, for the elastic loop and for status.

The scan is a stage without buckets here: it takes cores like the others, and its work can move at any time.

The first epochs of an engine are small and slow, and are left out. The largest of the epochs after them give the
engine's speed: what an epoch takes however few its events are, apart from what an event takes.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.epoch.report import SCAN, EpochReport
from penstock.epoch.task_work import TaskWork
from penstock.metrics import Registry, fold_epoch
from penstock.scaling.fit import fit_parts
from penstock.scaling.measurements import VACANT, Fleet, Floats, Measured, Snapshot
from penstock.state.bucket_map import BucketMap

#: epochs that are kept while nobody measures
MOST_REPORTS = 256
#: first epochs with events that are left out: code is not compiled yet, and the rate control has no measurement
COLD_EPOCHS = 3
#: epochs that give the speed of the engine
SPEED_EPOCHS = 16


@dataclass(frozen=True)
class Worker:
    """An executor: its id, its cores, and the bytes that its processes held when last measured."""

    id: str
    cores: int
    memory: float = 0.0


@dataclass(frozen=True)
class Backlog:
    """What the logs have left to read, in their units, at the start and the end of a period."""

    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True)
class Period:
    """What happened in a period that ended at `at`."""

    at: float
    seconds: float
    reports: Sequence[EpochReport]
    backlog: Backlog


@dataclass(frozen=True)
class Speed:
    """The speed of an engine: events per second while it has a backlog, and the task seconds of an epoch that do not
    depend on its events."""

    events: float = 0.0
    fixed_seconds: float = 0.0


#: of an epoch: its events, seconds and task seconds
EpochCost = tuple[int, float, float]


def speed_of(epochs: Sequence[EpochCost]) -> Speed:
    """The speed by these epochs. The rate comes from those with at least half the events of the largest."""
    if not epochs:
        return Speed()
    events, seconds, busy = np.asarray(epochs, dtype=np.float64).T
    large = 2 * events >= events.max()
    parts = fit_parts(events, busy)
    rate = float(events[large].sum() / max(seconds[large].sum(), 1e-9))
    return Speed(rate, parts.fixed)


def _busy(report: EpochReport) -> float:
    """Task seconds of the scan and of all stages."""
    scan = sum(task.seconds for task in report.tasks if task.stage == SCAN)
    return scan + sum(work.seconds for work in report.work.values())


def snapshot(
    period: Period,
    workers: Sequence[Worker],
    placement: Sequence[str],
    target_seconds: float,
    spare: Sequence[str] = (),
    owners: Mapping[str, BucketMap] | None = None,
    density: float | None = None,
    speed: Speed | None = None,
) -> Snapshot:
    """The measurements of a period.

    `placement` has the executor of each slice, `owners` the bucket maps in force now, if they may have changed since
    the last epoch. `density` (events in a unit of the logs) and `speed` come from the reports unless they are given.
    """
    reports, left, seconds = period.reports, period.backlog, period.seconds
    events = sum(report.events for report in reports)
    density = events_per_unit(reports) if density is None else density
    backlog = density * sum(left.after.values())
    # the backlog that a new stream had from its start did not arrive in this period
    backlog_before = density * sum(left.before.get(name, units) for name, units in left.after.items())
    rates = max(events + backlog - backlog_before, 0.0) / seconds, events / seconds
    speed = speed_of([(one.events, one.seconds, _busy(one)) for one in reports]) if speed is None else speed
    fixed = min(speed.fixed_seconds * len(reports) / max(sum(map(_busy, reports)), 1e-9), 1.0)
    stages = {SCAN: _scan(reports, seconds, rates, backlog, placement)}
    for name in dict.fromkeys([*(name for report in reports for name in report.work), *(owners or ())]):
        stages[name] = _stage(name, reports, seconds, rates, backlog, placement, owners)
    stages = {
        name: replace(one, speed=speed.events, fixed_seconds=fixed * one.busy_seconds)
        for name, one in stages.items()
    }
    lengths = [report.seconds for report in reports]
    return Snapshot(
        period.at,
        seconds,
        _fleet(workers, reports, seconds, spare),
        stages,
        float(np.mean(lengths)) if lengths else 0.0,
        target_seconds,
        warm=speed.events > 0 or not (events or backlog),
    )


def events_per_unit(reports: Sequence[EpochReport]) -> float:
    """About how many events a unit of the logs has, by what was read."""
    read = sum(sum(report.units.values()) for report in reports)
    return sum(report.events for report in reports) / read if read else 0.0


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


def _stage(
    name: str,
    reports: Sequence[EpochReport],
    period: float,
    rates: tuple[float, float],
    backlog: float,
    placement: Sequence[str],
    owners: Mapping[str, BucketMap] | None,
) -> Measured:
    works = [report.work[name] for report in reports if name in report.work]
    last = works[-1] if works else None
    owned = (owners or {}).get(name) or (last.bucket_map if last is not None else ())
    none = np.zeros(len(owned))
    slices = max(len(placement), 1 + max(owned))
    return Measured(
        stage=name,
        period_seconds=period,
        input_rate=rates[0],
        processing_rate=rates[1],
        backlog_events=backlog,
        busy_seconds=sum(work.seconds for work in works),
        bucket_seconds=_sum_by_bucket(none, [work.seconds_by_bucket for work in works]),
        bucket_events=_sum_by_bucket(none, [work.rows_by_bucket for work in works]),
        bucket_bytes=none if last is None else np.asarray(last.state_by_bucket, dtype=np.float64),
        bucket_map=np.asarray(owned, dtype=np.int64),
        placement=(*placement, *[VACANT] * (slices - len(placement))),
        exchange_bytes=sum(work.bytes for work in works) / period,
    )


def _sum_by_bucket(none: Floats, parts: Sequence[Sequence[float]]) -> Floats:
    """The sum of figures by bucket; `none` if there are no figures."""
    return np.asarray(parts, dtype=np.float64).sum(axis=0) if parts else none


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
        np.array([_used(worker, busy, period) for worker in working], dtype=np.float64),
        np.array([worker.memory for worker in working], dtype=np.float64),
        tuple(spare),
    )


def _used(worker: Worker, busy: Mapping[str, float], period: float) -> float:
    """The share of its cores in use; NaN for an executor that never had a task."""
    if worker.id not in busy and not worker.memory:
        return math.nan
    return busy.get(worker.id, 0.0) / (period * max(worker.cores, 1))


def memory_by_executor(tasks: Iterable[TaskWork]) -> dict[str, float]:
    """The bytes that each executor's processes hold: the own memory of each process and, once, the most that one has
    mapped, since Python workers of one executor map the same caches."""
    seen: dict[str, dict[int, tuple[int, int]]] = {}
    for task in tasks:
        seen.setdefault(task.executor, {}).update(task.memory)
    return {
        executor: float(sum(own for own, _ in bytes_.values()) + max(shared for _, shared in bytes_.values()))
        for executor, bytes_ in seen.items()
        if bytes_
    }


class Meter:
    """Collects the reports of a period until they are measured. From any thread."""

    def __init__(
        self,
        backlog: Callable[[], Mapping[str, int]],
        target_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backlog, self._target, self._clock = backlog, target_seconds, clock
        self._lock = threading.Lock()
        self._reports: deque[EpochReport] = deque(maxlen=MOST_REPORTS)
        self._cold = COLD_EPOCHS
        #: the newest epochs after the first
        self._warm: deque[EpochCost] = deque(maxlen=SPEED_EPOCHS)
        self._since = clock()
        self._last_backlog: Mapping[str, int] = {}
        self._density = 0.0
        #: the memory of executors when a task last reported it
        self._memory: dict[str, float] = {}
        #: the counts of all epochs so far
        self.registry = Registry()
        #: the newest snapshot
        self.latest: Snapshot | None = None

    @property
    def now(self) -> float:
        """The time by the clock of its snapshots."""
        return self._clock()

    def add(self, report: EpochReport) -> None:
        """Add an epoch."""
        fold_epoch(self.registry, report.metrics)
        report = replace(report, rows={})  # rows are large, and not needed here
        with self._lock:
            self._reports.append(report)
            if report.events:
                if self._cold:
                    self._cold -= 1
                else:
                    self._warm.append((report.events, report.seconds, _busy(report)))

    def is_ready(self, least_seconds: float, most_seconds: float) -> bool:
        """Whether it is time to measure: an epoch has ended since the last time, or none has for long."""
        passed = self._clock() - self._since
        return passed >= most_seconds or (passed >= least_seconds and bool(self._reports))

    def measure(
        self,
        workers: Sequence[Worker],
        placement: Sequence[str],
        spare: Sequence[str] = (),
        owners: Mapping[str, BucketMap] | None = None,
    ) -> Snapshot:
        """The measurements since the last call."""
        with self._lock:
            reports, warm = list(self._reports), list(self._warm)
            self._reports.clear()
        now = self._clock()
        before, self._last_backlog = self._last_backlog, dict(self._backlog())
        period, self._since = max(now - self._since, 1e-3), now
        backlog = Backlog(before, self._last_backlog)
        self._density = events_per_unit(reports) or self._density
        self._memory |= memory_by_executor(task for report in reports for task in report.tasks)
        self._memory = {worker.id: self._memory.get(worker.id, worker.memory) for worker in workers}
        workers = [replace(worker, memory=self._memory[worker.id]) for worker in workers]
        self.latest = snapshot(
            Period(now, period, reports, backlog),
            workers,
            placement,
            self._target,
            spare,
            owners,
            self._density,
            speed_of(warm),
        )
        return self.latest
