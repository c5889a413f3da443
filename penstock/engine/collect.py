"""Collecting: what the epochs of a period say, as the snapshot that the elastic loop and `penstock status` read.

Receives epoch reports, the executors that are there and what waits in the logs; hands a `Snapshot`.

The scan is a sub-query without buckets here: it takes cores like the others, and its work can be moved at any time.

The first epochs of an engine are small and slow: nothing is concluded from them. How fast it is say the largest of the
epochs after them; what an epoch takes however few its events are is told apart from what an event takes.
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

#: as many epochs are remembered while nobody asks
MOST_REPORTS = 256
#: epochs with events at the beginning that say little: code is not compiled yet, and the rate control feels its way
COLD_EPOCHS = 3
#: as many epochs say how fast the engine is
SPEED_EPOCHS = 16


@dataclass(frozen=True)
class Worker:
    """An executor that is there: its id, its cores, and the bytes that its processes held when last seen."""

    id: str
    cores: int
    memory: float = 0.0


@dataclass(frozen=True)
class Waiting:
    """What waits in the logs, in their units, at the beginning and the end of a period."""

    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True)
class Speed:
    """How fast an engine is: events a second while work waits, and the task seconds of an epoch that are there however
    few its events are."""

    events: float = 0.0
    fixed_seconds: float = 0.0


#: of an epoch: its events, how long it took, and its task seconds
Took = tuple[int, float, float]


def speed_of(epochs: Sequence[Took]) -> Speed:
    """What epochs say of it. Those with less than half the events of the largest say little about how fast it is."""
    if not epochs:
        return Speed()
    events, seconds, busy = np.asarray(epochs, dtype=np.float64).T
    large = 2 * events >= events.max()
    parts = fit_parts(events, busy)
    rate = float(events[large].sum() / max(seconds[large].sum(), 1e-9))
    return Speed(rate, parts.fixed)


def _busy(report: EpochReport) -> float:
    """Task seconds of the scan and of all sub-queries."""
    scan = sum(task.seconds for task in report.tasks if task.stage == SCAN)
    return scan + sum(work.seconds for work in report.work.values())


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
    density: float | None = None,
    speed: Speed | None = None,
) -> Snapshot:
    """What was measured in a period that ended at `at`. `placement`: the executor of each slice; `owners`: the bucket
    maps in force by now, where they may have changed since the last epoch; `density`: events in a unit of the logs,
    where that is not what these reports say; `speed`: the same of how fast the engine is."""
    done = list(reports)
    events = sum(report.events for report in done)
    each = events_per_unit(done) if density is None else density
    backlog = each * sum(waiting.after.values())
    # what a stream that is new has waiting already did not come now
    came = max(events + backlog - each * sum(waiting.before.get(n, u) for n, u in waiting.after.items()), 0.0)
    rates = came / period_seconds, events / period_seconds
    speed = speed_of([(one.events, one.seconds, _busy(one)) for one in done]) if speed is None else speed
    fixed = min(speed.fixed_seconds * len(done) / max(sum(map(_busy, done)), 1e-9), 1.0)
    found = {SCAN: _scan(done, period_seconds, rates, backlog, placement)}
    for name in dict.fromkeys([*(name for report in done for name in report.work), *(owners or ())]):
        found[name] = _sub_query(name, done, period_seconds, rates, backlog, placement, owners)
    found = {
        name: replace(one, speed=speed.events, fixed_seconds=fixed * one.busy_seconds)
        for name, one in found.items()
    }
    lengths = [report.seconds for report in done]
    return Snapshot(
        at,
        period_seconds,
        _fleet(workers, done, period_seconds, spare),
        found,
        float(np.mean(lengths)) if lengths else 0.0,
        target_seconds,
        warm=speed.events > 0 or not (events or backlog),
    )


def events_per_unit(reports: Sequence[EpochReport]) -> float:
    """About how many events lie in a unit of the logs, going by what was read."""
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
    last = works[-1] if works else None
    owned = (owners or {}).get(name) or (last.bucket_map if last is not None else ())
    none = np.zeros(len(owned))
    slices = max(len(placement), 1 + max(owned))
    return Measured(
        sub_query=name,
        period_seconds=period,
        input_rate=rates[0],
        processing_rate=rates[1],
        backlog_events=backlog,
        busy_seconds=sum(work.seconds for work in works),
        bucket_seconds=_summed(none, [work.seconds_by_bucket for work in works]),
        bucket_events=_summed(none, [work.rows_by_bucket for work in works]),
        bucket_bytes=none if last is None else np.asarray(last.state_by_bucket, dtype=np.float64),
        bucket_map=np.asarray(owned, dtype=np.int64),
        placement=(*placement, *[VACANT] * (slices - len(placement))),
        exchange_bytes=sum(work.bytes for work in works) / period,
    )


def _summed(none: Floats, parts: Sequence[Sequence[float]]) -> Floats:
    """The sum of figures by bucket, none of which may be there."""
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
    """How much of its cores; NaN of one that never had a task yet."""
    if worker.id not in busy and not worker.memory:
        return math.nan
    return busy.get(worker.id, 0.0) / (period * max(worker.cores, 1))


def held(tasks: Iterable[TaskWork]) -> dict[str, float]:
    """The bytes that each executor's processes hold: what is each one's own and, once, the most that one has mapped:
    Python workers of one executor have the same caches mapped."""
    seen: dict[str, dict[int, tuple[int, int]]] = {}
    for task in tasks:
        seen.setdefault(task.executor, {}).update(task.memory)
    return {
        executor: float(sum(own for own, _ in found.values()) + max(shared for _, shared in found.values()))
        for executor, found in seen.items()
        if found
    }


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
        self._reports: deque[EpochReport] = deque(maxlen=MOST_REPORTS)
        self._cold = COLD_EPOCHS
        #: the newest epochs after those
        self._warm: deque[Took] = deque(maxlen=SPEED_EPOCHS)
        self._since = clock()
        self._waited: Mapping[str, int] = {}
        self._density = 0.0
        #: what executors held when a task last said so
        self._held: dict[str, float] = {}
        #: what the epochs so far counted
        self.registry = Registry()
        #: the newest snapshot
        self.latest: Snapshot | None = None

    @property
    def now(self) -> float:
        """The time by the clock of its snapshots."""
        return self._clock()

    def add(self, report: EpochReport) -> None:
        """Take in an epoch."""
        fold_epoch(self.registry, report.metrics)
        report = replace(report, rows={})  # rows are large, and nothing here asks for them
        with self._lock:
            self._reports.append(report)
            if report.events:
                if self._cold:
                    self._cold -= 1
                else:
                    self._warm.append((report.events, report.seconds, _busy(report)))

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
            reports, warm = list(self._reports), list(self._warm)
            self._reports.clear()
        now = self._clock()
        before, self._waited = self._waited, dict(self._waiting())
        period, self._since = max(now - self._since, 1e-3), now
        waiting = Waiting(before, self._waited)
        self._density = events_per_unit(reports) or self._density
        self._held |= held(task for report in reports for task in report.tasks)
        self._held = {worker.id: self._held.get(worker.id, worker.memory) for worker in workers}
        workers = [replace(worker, memory=self._held[worker.id]) for worker in workers]
        self.latest = snapshot(
            now,
            period,
            reports,
            workers,
            placement,
            waiting,
            self._target,
            spare,
            owners,
            self._density,
            speed_of(warm),
        )
        return self.latest
