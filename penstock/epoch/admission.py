"""Decides which spans the next epoch reads, from what the logs have and how fast the last epochs were.

An offset (`state/epoch_record.py`) has everything that an epoch's input depends on, so the epoch record repeats it
after a crash. An engine that follows another does not decide: it admits what the leader has recorded, and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.catalogue.program import Program
from penstock.epoch.kill_points import reached
from penstock.epoch.rate_control import (
    LEAST_MEASURED_ROWS,
    LEAST_READING,
    EmissionLimit,
    PendingEmissions,
    RateControl,
    WatermarkStep,
    split_budget,
)
from penstock.epoch.stream_clock import StreamClocks
from penstock.logs.contract import Log, Partition
from penstock.query.physical import ScanPlan
from penstock.state.epoch_record import Offset

#: how long one call of `admit` waits for something new
PATIENCE_SECONDS = 0.05
#: after how long (microseconds) a partition that its log no longer has is idle, where the stream does not say
GONE_AFTER = 5_000_000


@dataclass(frozen=True)
class AdmissionSettings:
    """How epochs are admitted."""

    #: end when the logs are read to their ends
    drain: bool = False
    min_interval_seconds: float = 0.0
    #: limits watermarks where much is to be emitted at once; None: no limit
    emission_limit: EmissionLimit | None = field(default_factory=EmissionLimit)


@dataclass(frozen=True)
class Gate:
    """Whether epochs may be admitted now, and whether this engine decides what they read."""

    is_open: Callable[[], bool] = lambda: True
    decides: Callable[[], bool] = lambda: True


@dataclass
class _Silence:
    """Since when a partition has had nothing new, and its end then."""

    since: float
    latest: int = -1


class _StreamSpans(NamedTuple):
    """What an epoch reads of one stream."""

    at: Mapping[str, int]
    starts: Mapping[str, int]
    finished: tuple[str, ...]
    idle: tuple[str, ...]
    closed: bool
    started_late: tuple[str, ...]
    copies: Mapping[str, int]
    identities: Mapping[str, str]
    #: the time from which future events are measured, if it is not the wall clock
    clock: int | None
    #: how far its watermark may advance
    step: WatermarkStep
    #: whether it reads less because there is something to emit
    is_reduced: bool
    is_exhausted: bool


class Admission:
    """Decides the spans of epochs, for the epoch loop. `backlog` may be read from any thread."""

    def __init__(
        self,
        program: Program,
        settings: AdmissionSettings,
        new_rate: Callable[[ScanPlan], RateControl],
        recorded_end: Callable[[int], Offset | None],
        *,
        gate: Gate | None = None,
        start_log: Callable[[str, ScanPlan], None] = lambda name, scan: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._program = program
        self._settings = settings
        self._new_rate = new_rate
        self._rates: dict[str, RateControl] = {}
        self._recorded_end = recorded_end
        self._gate = gate or Gate()
        self._start_log = start_log
        self._clock = clock
        self.clocks = StreamClocks(wall, clock)
        #: whether the clocks continue those of the epoch records
        self._has_clocks = False
        self._limit = settings.emission_limit
        self._pending: dict[str, PendingEmissions] = {}
        #: streams of which the last epoch read less, because there was something to emit
        self._reduced: set[str] = set()
        self._lock = threading.Lock()
        self._silences: dict[tuple[str, str], _Silence] = {}
        self._last_at = -1e9
        #: a longer least interval between epochs, in seconds, for followers that have to keep up
        self.throttle_seconds = 0.0
        #: what the logs have beyond the last admitted epoch, per stream, in the log's units
        self.backlog: dict[str, int] = {}
        #: by stream, how often its log had to decide by a rule
        self.log_doubts: dict[str, int] = {}
        #: the last epoch that was admitted
        self.last_admitted = -1
        self.drained = threading.Event()

    def admit(self, start: Offset) -> Offset:
        """The end of the next epoch; `start` where there is no reason for one yet."""
        deadline = self._clock() + PATIENCE_SECONDS
        while True:
            if self._gate.is_open():
                with self._lock:
                    end = self._next(start)
                if end != start:
                    self._last_at = self._clock()
                    self.last_admitted = end.epoch
                    reached("admitted", end.epoch)
                    return end
            if self._clock() >= deadline:
                return start
            time.sleep(0.01)

    def observe(
        self, units: Mapping[str, int], seconds: float, pending: Mapping[str, PendingEmissions] | None = None
    ) -> None:
        """Learn from an epoch: what it read, how long it took, and what is pending after it."""
        with self._lock:
            if self._limit is not None and pending is not None:
                emitted = sum(
                    self._pending[name].emitted_until(after)
                    for name, after in pending.items()
                    if name in self._pending
                )
                self._pending = dict(pending)
                if emitted >= LEAST_MEASURED_ROWS:
                    emitting = emitted * self._limit.row_seconds
                    rates = self._rates.items()
                    reading = max((rate.reading_seconds(units.get(n, 0)) for n, rate in rates), default=0.0)
                    share, factor = emitting / (reading + emitting), seconds / (reading + emitting)
                    self._limit = self._limit.observe(share, factor)
                    seconds *= 1 - share
                    if emitting > reading:
                        return
                # where less was read than could have been, that says little about how long reading takes
                units = {name: n for name, n in units.items() if name not in self._reduced}
            for stream, rate in self._rates.items():
                # streams of one epoch share its time: each gives more or less until the whole takes the target
                if units.get(stream):
                    self._rates[stream] = rate.observe(units[stream], seconds)

    def budget(self, stream: str) -> int:
        """How much an epoch may read of a stream, in its log's units."""
        return self._rates[stream].budget

    def _next(self, start: Offset) -> Offset:
        epoch = start.epoch + 1
        decides = self._gate.decides()  # first: once this engine decides, nobody else records epochs
        repeated = self._recorded_end(epoch)
        if repeated is not None:
            self._reduced = set()
            self._has_clocks = False
            return repeated
        interval = max(self._settings.min_interval_seconds, self.throttle_seconds)
        if not decides or self._clock() - self._last_at < interval:
            return start
        admitted_at, commands = self.clocks.read_wall(), self._program.commands
        if not self._has_clocks:
            self.clocks.resume(start.clocks, admitted_at)
            self._has_clocks = True
        streams: dict[str, _StreamSpans] = {}
        emitting_seconds = 0.0
        for name, scan in self._program.epochs.plan(commands).scans.items():
            if name not in self._rates:
                self._start_log(name, scan)
                self._rates[name] = self._new_rate(scan)
            streams[name] = self._admit_stream(name, scan, start, emitting_seconds, admitted_at)
            emitting_seconds += streams[name].step.seconds
        end = Offset(
            epoch,
            at={name: one.at for name, one in streams.items()},
            starts={name: one.starts for name, one in streams.items()},
            finished={name: one.finished for name, one in streams.items()},
            idle={name: one.idle for name, one in streams.items()},
            closed={name: one.closed for name, one in streams.items()},
            admitted_at=admitted_at,
            clocks={name: one.clock for name, one in streams.items() if one.clock is not None},
            commands=commands,
            started_late={name: one.started_late for name, one in streams.items() if one.started_late},
            watermark_limits={
                name: one.step.limit for name, one in streams.items() if one.step.limit is not None
            },
            copies={name: one.copies for name, one in streams.items() if one.copies},
            identities={name: one.identities for name, one in streams.items() if one.identities},
        )
        has_more = commands > start.commands or any(self._is_limited(name, start) for name in streams)
        if epoch > 0 and not has_more and end.is_at(start):
            if self._settings.drain and all(one.is_exhausted for one in streams.values()):
                self.drained.set()
            return start
        self._reduced = {name for name, one in streams.items() if one.is_reduced}
        return end

    def _admit_stream(
        self, name: str, scan: ScanPlan, start: Offset, emitting_seconds: float, wall: int
    ) -> _StreamSpans:
        """What the next epoch reads of a stream, when emitting the results of others takes it so many seconds."""
        log = scan.stream.log
        before = dict(start.at.get(name, {}))
        log.recognise(start.identities.get(name, {}))
        partitions = log.partitions(before)
        self.log_doubts[name] = log.count_doubts()
        starts = {p.id: int(p.earliest) for p in partitions if p.id not in before}
        for partition in partitions:  # in the log's own order: it breaks ties of event time for life
            before.setdefault(partition.id, partition.earliest)
        available = {p.id: log.units(p.id, before[p.id], p.latest) for p in partitions}
        budget, step, is_reduced = self._budget(name, sum(available.values()), start, emitting_seconds)
        at = dict(before)
        for pid, units in split_budget(available, budget).items():
            at[pid] = int(log.cut(pid, at[pid], units))
        self.backlog[name] = sum(log.units(p.id, at[p.id], p.latest) for p in partitions)
        clock = self.clocks.find_time(scan.stream, before, at, wall, has_backlog=self.backlog[name] > 0)
        if any(at[p.id] > before[p.id] for p in partitions):
            self._forget(name, log, at, start)
        routes = {p.id: log.route(p.id) for p in partitions if at[p.id] > before[p.id]}
        closed = bool(log.closed())
        finished = {p.id for p in partitions if p.finished and at[p.id] >= p.latest}
        idle = self._idle_partitions(name, partitions, at, scan.stream.idle_after)
        return _StreamSpans(
            at,
            starts,
            finished=tuple(sorted(finished)),
            idle=tuple(pid for pid in idle if pid not in log.withheld),
            closed=closed,
            started_late=tuple(sorted(starts.keys() & log.started_late)),
            copies={pid: copy for pid, copy in routes.items() if copy is not None},
            identities=log.identify(at),
            clock=clock,
            step=step,
            is_reduced=is_reduced,
            is_exhausted=_is_exhausted(log, partitions, at, finished, closed=closed),
        )

    def _forget(self, stream: str, log: Log, at: dict[str, int], start: Offset) -> None:
        """Leave out the partitions that are gone and that no retained epoch needs, once the watermark does not wait for
        them."""
        for pid in set(log.forgettable(at)).intersection(start.idle.get(stream, ())):
            del at[pid]
            self._silences.pop((stream, pid), None)

    def _budget(
        self, stream: str, waiting: int, start: Offset, emitting_seconds: float
    ) -> tuple[int, WatermarkStep, bool]:
        """How much of a stream to read, how far its watermark may advance, and whether that makes it read less."""
        rate = self._rates[stream]
        budget = rate.budget_for(waiting)
        if self._limit is None:
            return budget, WatermarkStep(), False
        pending = self._pending.get(stream)
        if pending is None:  # after a start it is not known yet what is pending: this epoch finds out
            return budget, WatermarkStep(start.watermark_limits.get(stream)), False
        room = rate.room_seconds(budget)
        step = self._limit.next_step(
            pending,
            max(room - emitting_seconds, LEAST_READING * room),
            rate.reading_seconds(min(waiting, budget)),
        )
        if not step.seconds:
            return budget, step, False
        reduced = rate.budget_beside(budget, step.seconds)
        return reduced, step, waiting > reduced and reduced < 0.75 * budget

    def _is_limited(self, stream: str, start: Offset) -> bool:
        """Whether there is something to emit for a stream although nothing is read."""
        pending = self._pending.get(stream)
        return stream in start.watermark_limits if pending is None else pending.is_limited

    def _idle_partitions(
        self, stream: str, partitions: list[Partition], at: Mapping[str, int], idle_after: int | None
    ) -> list[str]:
        """The partitions that have been silent for too long to wait for, or that the log no longer has."""
        now, idle, listed = self._clock(), [], {partition.id for partition in partitions}
        for gone in at.keys() - listed:  # a file being compressed is away for a moment too
            silence = self._silences.setdefault((stream, gone), _Silence(now))
            if silence.latest >= 0:
                silence.latest, silence.since = -1, now
            if (now - silence.since) * 1e6 > (GONE_AFTER if idle_after is None else idle_after):
                idle.append(gone)
        if idle_after is None:
            return sorted(idle)
        for partition in partitions:
            silence = self._silences.setdefault((stream, partition.id), _Silence(now))
            if partition.latest != silence.latest or at[partition.id] < partition.latest:
                silence.latest, silence.since = partition.latest, now
            if (now - silence.since) * 1e6 > idle_after and not partition.finished:
                idle.append(partition.id)
        return sorted(idle)


def _is_exhausted(
    log: Log, partitions: list[Partition], at: Mapping[str, int], finished: set[str], *, closed: bool
) -> bool:
    """Whether a log is read to its end; one that is never closed, whether nothing of it waits now."""
    if log.withheld:
        return False
    return not any(p.id not in finished and (closed or at[p.id] < p.latest) for p in partitions)
