"""Admission: decides which spans the next epoch consists of.

Receives what the logs have and how fast the last epochs were; returns the epoch's end offsets to the epoch loop.

An offset (`state/epoch_record.py`) holds everything that an epoch's input depends on, so that the epoch record repeats
it after a crash. An engine that follows another (`decides` is false) admits what that one has recorded, and nothing
else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.catalogue.program import Program
from penstock.epoch.emission_limit import MANY, Closing, Due, Step
from penstock.epoch.kill_points import reached
from penstock.epoch.rate_control import LEAST_READING, RateControl, shares
from penstock.logs.contract import Partition
from penstock.query.physical import ScanPlan
from penstock.state.epoch_record import Offset

#: how long one call of `latest` waits for news
PATIENCE_SECONDS = 0.05
#: how long a partition may be missing from its log before nobody waits for it, where the stream does not say
GONE_AFTER = 5_000_000
_USUAL = Closing()


@dataclass
class _Quiet:
    """Since when a partition has had nothing new."""

    latest: int = -1
    since: float = field(default=0.0)


class _Admitted(NamedTuple):
    """What an epoch takes of one stream."""

    at: Mapping[str, int]
    starts: Mapping[str, int]
    finished: tuple[str, ...]
    idle: tuple[str, ...]
    closed: bool
    started_late: tuple[str, ...]
    copies: Mapping[str, int]
    #: how far its watermark may come
    step: Step
    #: whether less is read, since there is something to tell
    cut: bool
    everything_read: bool


class Admission:
    """Decides the spans of epochs. Used by the epoch loop; whoever shows its backlog may read it from any thread."""

    def __init__(
        self,
        program: Program,
        rate: Callable[[ScanPlan], RateControl],
        recorded: Callable[[int], Offset | None],
        *,
        drain: bool,
        least_interval_seconds: float,
        ready: Callable[[], bool] = lambda: True,
        decides: Callable[[], bool] = lambda: True,
        start_log: Callable[[str, ScanPlan], None] = lambda name, scan: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        closing: Closing | None = _USUAL,
    ) -> None:
        self._program = program
        self._rate = rate
        self._rates: dict[str, RateControl] = {}
        self._start_log = start_log
        self._recorded = recorded
        self._drain = drain
        self._interval = least_interval_seconds
        self._ready = ready
        self._decides = decides
        self._clock = clock
        self._wall = wall
        #: what it takes to tell what is due; None: no watermark is held
        self._closing = closing
        self._due: dict[str, Due] = {}
        #: streams of which the last epoch read less, since there was something to tell
        self._cut: set[str] = set()
        self._lock = threading.Lock()
        self._quiet: dict[tuple[str, str], _Quiet] = {}
        self._last_at = -1e9
        #: a longer least time between epochs, in seconds, where somebody has to keep up
        self.pace_seconds = 0.0
        #: what the logs hold beyond the last epoch admitted, per stream, in the log's units
        self.backlog: dict[str, int] = {}
        #: the last epoch that was admitted
        self.admitted = -1
        self.drained = threading.Event()

    def latest(self, start: Offset) -> Offset:
        """The end of the next epoch, or `start` when there is no reason for one."""
        deadline = self._clock() + PATIENCE_SECONDS
        while True:
            if self._ready():
                with self._lock:
                    end = self._next(start)
                if end != start:
                    self._last_at = self._clock()
                    self.admitted = end.epoch
                    reached("admitted", end.epoch)
                    return end
            if self._clock() >= deadline:
                return start
            time.sleep(0.01)

    def observed(
        self, units: Mapping[str, int], seconds: float, due: Mapping[str, Due] | None = None
    ) -> None:
        """Told by the runner how long an epoch took, and what is due after it."""
        with self._lock:
            if self._closing is not None and due is not None:
                told = sum(self._due[name].passed(after) for name, after in due.items() if name in self._due)
                self._due = dict(due)
                if told >= MANY:
                    telling = told * self._closing.row_seconds
                    rates = self._rates.items()
                    reading = max((rate.reading_seconds(units.get(n, 0)) for n, rate in rates), default=0.0)
                    share, factor = telling / (reading + telling), seconds / (reading + telling)
                    self._closing = self._closing.observed(share, factor)
                    seconds *= 1 - share
                    if telling > reading:
                        return
                # where less was read than could have been, that says little of what reading takes
                units = {name: n for name, n in units.items() if name not in self._cut}
            for stream, rate in self._rates.items():
                # streams of one epoch share its time: each gives more or less until the whole takes the target
                if units.get(stream):
                    self._rates[stream] = rate.observed(units[stream], seconds)

    def budget(self, stream: str) -> int:
        """What an epoch may take of a stream, in its log's units."""
        return self._rates[stream].budget

    def _next(self, start: Offset) -> Offset:
        epoch = start.epoch + 1
        decides = self._decides()  # asked first: once it may decide, nobody else records epochs any more
        repeated = self._recorded(epoch)
        if repeated is not None:
            self._cut = set()
            return repeated
        if not decides or self._clock() - self._last_at < max(self._interval, self.pace_seconds):
            return start
        admitted_at, commands = int(self._wall() * 1e6), self._program.commands
        streams: dict[str, _Admitted] = {}
        telling, cut = 0.0, set[str]()
        for name, scan in self._program.plan(commands).scans.items():
            if name not in self._rates:
                self._start_log(name, scan)
                self._rates[name] = self._rate(scan)
            streams[name] = admitted = self._admit(name, scan, start, telling)
            telling += admitted.step.seconds
            if admitted.cut:
                cut.add(name)
        end = Offset(
            epoch,
            at={name: one.at for name, one in streams.items()},
            starts={name: one.starts for name, one in streams.items()},
            finished={name: one.finished for name, one in streams.items()},
            idle={name: one.idle for name, one in streams.items()},
            closed={name: one.closed for name, one in streams.items()},
            admitted_at=admitted_at,
            commands=commands,
            started_late={name: one.started_late for name, one in streams.items() if one.started_late},
            watermark_limits={n: one.step.limit for n, one in streams.items() if one.step.limit is not None},
            copies={name: one.copies for name, one in streams.items() if one.copies},
        )
        more = commands > start.commands or any(self._held(name, start) for name in streams)
        if epoch > 0 and not more and end.is_at(start):
            if self._drain and all(one.everything_read for one in streams.values()):
                self.drained.set()
            return start
        self._cut = cut
        return end

    def _admit(self, name: str, scan: ScanPlan, start: Offset, telling: float) -> _Admitted:
        """What the next epoch reads of a stream, beside what it has to tell of others for so many seconds."""
        log = scan.stream.log
        at = dict(start.at.get(name, {}))
        partitions = log.partitions(at)
        starts = {p.id: int(p.earliest) for p in partitions if p.id not in at}
        for partition in partitions:  # in the log's own order: it breaks ties of event time for life
            at.setdefault(partition.id, partition.earliest)
        available = {p.id: log.units(p.id, at[p.id], p.latest) for p in partitions}
        waiting, begun = sum(available.values()), dict(at)
        budget = self._rates[name].admitted(waiting)
        step, cut = Step(), False
        if self._closing is not None:
            step = self._beside_closing(self._closing, name, min(waiting, budget), budget, telling, start)
            if step.seconds:
                whole, budget = budget, self._rates[name].beside(budget, step.seconds)
                cut = waiting > budget and budget < 0.75 * whole
        for pid, units in shares(available, budget).items():
            at[pid] = int(log.cut(pid, at[pid], units))
        routes = {p.id: log.route(p.id) for p in partitions if at[p.id] > begun[p.id]}
        self.backlog[name] = sum(log.units(p.id, at[p.id], p.latest) for p in partitions)
        closed = bool(log.closed())
        done = {p.id for p in partitions if p.finished and at[p.id] >= p.latest}
        idle = self._idle(name, partitions, at, scan.stream.idle_after)
        # a log that is not declared finished is read when nothing of it is left for now
        left = any(p.id not in done and (closed or at[p.id] < p.latest) for p in partitions)
        return _Admitted(
            at,
            starts,
            finished=tuple(sorted(done)),
            idle=tuple(pid for pid in idle if pid not in log.withheld),
            closed=closed,
            started_late=tuple(sorted(starts.keys() & log.started_late)),
            copies={pid: copy for pid, copy in routes.items() if copy is not None},
            step=step,
            cut=cut,
            everything_read=not left and not log.withheld,
        )

    def _held(self, stream: str, start: Offset) -> bool:
        """Whether there is something to tell of a stream though nothing is read."""
        due = self._due.get(stream)
        return stream in start.watermark_limits if due is None else due.held

    def _beside_closing(
        self, closing: Closing, stream: str, read: int, budget: int, telling: float, start: Offset
    ) -> Step:
        """How far a stream's watermark may come beside reading so much, in an epoch that has something to tell of
        others for so many seconds."""
        due, rate = self._due.get(stream), self._rates[stream]
        if due is None:  # not known yet what is held: to be found out
            return Step(start.watermark_limits.get(stream))
        room = rate.room_seconds(budget)
        return closing.step(due, max(room - telling, LEAST_READING * room), rate.reading_seconds(read))

    def _idle(
        self, stream: str, partitions: list[Partition], at: Mapping[str, int], idle_after: int | None
    ) -> list[str]:
        """The partitions that have been silent for too long to wait for, or that the log no longer has."""
        now, idle, listed = self._clock(), [], {partition.id for partition in partitions}
        for gone in at.keys() - listed:  # a file being compressed is away for a moment too
            quiet = self._quiet.setdefault((stream, gone), _Quiet(since=now))
            if quiet.latest >= 0:
                quiet.latest, quiet.since = -1, now
            if (now - quiet.since) * 1e6 > (GONE_AFTER if idle_after is None else idle_after):
                idle.append(gone)
        if idle_after is None:
            return sorted(idle)
        for partition in partitions:
            quiet = self._quiet.setdefault((stream, partition.id), _Quiet(since=now))
            if partition.latest != quiet.latest or at[partition.id] < partition.latest:
                quiet.latest, quiet.since = partition.latest, now
            if (now - quiet.since) * 1e6 > idle_after and not partition.finished:
                idle.append(partition.id)
        return sorted(idle)
