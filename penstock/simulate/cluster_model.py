"""Models a cluster that executes one stage, for the elastic loop to scale. Seeded.

Receives the rate and the buckets' shares of each period, and instructions; returns an engine's snapshots and events.

Work is a fluid. As in Penstock's engine all buckets are fed from one log, and an epoch ends when its busiest slice
does: so there is one backlog, and the busiest slice limits the rate. Executors take a while to start, may never start,
may fail during a move or at any time, and may be slow. A move takes as long as reading its bytes; processing continues
meanwhile, and pauses briefly for the switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.scaling.cost import Costs
from penstock.scaling.measurements import VACANT, Fleet, Floats, Measured, Snapshot, slice_executors
from penstock.scaling.realise import (
    Arrived,
    Event,
    Granted,
    Instruction,
    KeepSpare,
    Left,
    Lost,
    MoveBuckets,
    Moved,
    MoveFailed,
    Refused,
    Release,
    RequestExecutors,
    Withdraw,
)

STAGE = "q1"


@dataclass(frozen=True)
class ModelSettings:
    """The parameters of the model."""

    buckets: int = 256
    cores: int = 1
    #: events a second that one core can process
    core_rate: float = 10_000.0
    state_bytes: float = 200e6
    costs: Costs = field(default_factory=Costs)
    #: how much an executor's start time varies (standard deviation of its logarithm)
    start_spread: float = 0.2
    #: how much the measured time of a bucket varies
    measuring_noise: float = 0.03
    #: probability that a granted executor never starts
    never_comes: float = 0.0
    #: probability that a worker fails during a move
    dies_in_move: float = 0.0
    #: probability that an executor fails within an hour
    dies_an_hour: float = 0.0
    #: executors that the cluster has
    most: int = 1_000_000
    #: how many of the first executors are slow, and by which factor
    slow_executors: int = 0
    slowness: float = 3.0
    #: how long processing stops when an executor fails
    recovery_seconds: float = 2.0


class ModelCluster:
    """The cluster; a `Realiser`."""

    def __init__(self, settings: ModelSettings, executors: int, seed: int) -> None:
        self.settings = settings
        self.at = 0.0
        self.backlog = 0.0
        self.lost = 0
        self._random = np.random.default_rng([seed, 3])
        self._last_number = 0
        self._placement: list[str] = []
        self._ids: list[str] = []
        self._slow: dict[str, float] = {}
        self._spare: list[str] = []
        self._keep_spare = 0
        #: (when, name, spare)
        self._coming: list[tuple[float, str, bool]] = []
        self._moving: list[tuple[float, MoveBuckets, str | None]] = []
        self._pause = 0.0
        self._events: list[Event] = []
        self._placement_cache: tuple[tuple[str, ...], tuple[str, ...], Floats] | None = None
        for _ in range(executors):
            self._join(self._new_name())
        for name in self._ids[: settings.slow_executors]:
            self._slow[name] = settings.slowness
        live = len(self._placement)
        self.bucket_map = np.arange(settings.buckets, dtype=np.int64) * live // settings.buckets

    @property
    def size(self) -> int:
        """Active executors."""
        return len(self._ids)

    @property
    def all_size(self) -> int:
        """Executors that are active, spare or starting."""
        return len(self._ids) + len(self._spare) + len(self._coming)

    # ------------------------------------------------------------ time

    def advance(self, period: float, rate: float, shares: Floats) -> Snapshot:
        """Simulate a period and measure it."""
        self.at += period
        self._kill_executors(period)
        self._add_arrivals()
        self._apply_moves()
        placement, ids, slowness = self._cached_placement()
        cost = 1.0 / self.settings.core_rate
        unit = shares * slowness[self.bucket_map] * cost
        slices = np.bincount(self.bucket_map, unit, minlength=len(placement))
        stopped, self._pause = min(self._pause, period), max(self._pause - period, 0.0)
        able = (period - stopped) / max(float(slices.max(initial=0.0)), 1e-12) if ids else 0.0
        done = min(rate * period + self.backlog, able)
        self.backlog = max(self.backlog + rate * period - done, 0.0)
        noise = np.exp(self.settings.measuring_noise * self._random.standard_normal(shares.size))
        seconds = unit * done * noise
        measured = Measured(
            STAGE,
            period,
            rate,
            done / period,
            self.backlog,
            float(seconds.sum()),
            seconds,
            shares * done,
            np.full(shares.size, self.settings.state_bytes / shares.size),
            self.bucket_map,
            placement,
            exchange_bytes=done / period * 50.0,
        )
        cores = self.settings.cores
        owner = slice_executors(placement, ids)
        live = owner >= 0
        busy = np.bincount(owner[live], slices[live], minlength=len(ids))
        cpu: Floats = busy.astype(np.float64) * (done / period / cores)
        fleet = Fleet(ids, np.full(len(ids), cores), cpu, np.zeros(len(ids)), tuple(self._spare))
        return Snapshot(self.at, period, fleet, {STAGE: measured}, done / max(able, 1e-9), 1.0)

    def _cached_placement(self) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
        if self._placement_cache is None:
            slowness = np.array([self._slow.get(name, 1.0) for name in self._placement])
            self._placement_cache = tuple(self._placement), tuple(self._ids), slowness
        return self._placement_cache

    # ------------------------------------------------------------ executors

    def _new_name(self) -> str:
        self._last_number += 1
        return f"executor-{self._last_number}"

    def _join(self, name: str) -> None:
        self._ids.append(name)
        self._placement_cache = None
        for _ in range(self.settings.cores):
            if VACANT in self._placement:
                self._placement[self._placement.index(VACANT)] = name
            else:
                self._placement.append(name)

    def _leave(self, name: str) -> None:
        self._ids.remove(name)
        self._placement_cache = None
        vacated = [at for at, executor in enumerate(self._placement) if executor == name]
        for at in vacated:
            self._placement[at] = VACANT
        live = np.array(
            [at for at, executor in enumerate(self._placement) if executor != VACANT], dtype=np.int64
        )
        orphans = np.flatnonzero(np.isin(self.bucket_map, vacated))
        if orphans.size and live.size:
            self.bucket_map = self.bucket_map.copy()
            self.bucket_map[orphans] = live[np.arange(orphans.size) % live.size]

    def _die(self, name: str) -> None:
        self._leave(name)
        self.lost += 1
        self._pause += self.settings.recovery_seconds
        self._events.append(Lost(name))

    def _kill_executors(self, period: float) -> None:
        if self.settings.dies_an_hour:
            for name in list(self._ids):
                if len(self._ids) > 1 and self._random.random() < self.settings.dies_an_hour * period / 3600:
                    self._die(name)

    def _start(self, spare: bool) -> None:
        if self._random.random() >= self.settings.never_comes:
            late = np.exp(self.settings.start_spread * self._random.standard_normal())
            when = self.at + self.settings.costs.start_seconds * float(late)
            self._coming.append((when, self._new_name(), spare))

    def _add_arrivals(self) -> None:
        due = [one for one in self._coming if one[0] <= self.at]
        self._coming = [one for one in self._coming if one[0] > self.at]
        for _, name, spare in due:
            if spare:
                self._spare.append(name)
            else:
                self._join(name)
                self._events.append(Arrived(name))
        expected = len(self._spare) + sum(spare for _, _, spare in self._coming)
        for _ in range(self._keep_spare - expected):
            if self.all_size < self.settings.most:
                self._start(spare=True)
        del self._spare[self._keep_spare :]

    # ------------------------------------------------------------ moves

    def _apply_moves(self) -> None:
        due = [one for one in self._moving if one[0] <= self.at]
        self._moving = [one for one in self._moving if one[0] > self.at]
        for _, move, victim in due:
            if victim in self._ids and len(self._ids) > 1:
                self._die(victim)
                self._events.append(MoveFailed(move.stage, f"{victim} died in the move"))
                continue
            targets = {to for _, to in move.moves.values()}
            if any(self._placement[to] == VACANT for to in targets):
                self._events.append(MoveFailed(move.stage, "a slice has lost its executor"))
                continue
            self.bucket_map = self.bucket_map.copy()
            for bucket, (_, to) in move.moves.items():
                self.bucket_map[bucket] = to
            self._pause += self.settings.costs.pause_seconds
            self._events.append(Moved(move.stage))

    def execute(self, instruction: Instruction) -> None:
        """Start executing an instruction."""
        if isinstance(instruction, RequestExecutors):
            self._provision(instruction.count)
        elif isinstance(instruction, MoveBuckets):
            moved = len(instruction.moves) * self.settings.state_bytes / self.settings.buckets
            targets = {self._placement[to] for _, to in instruction.moves.values()}
            seconds = self.settings.costs.move_seconds(moved, len(targets))
            fatal = self._random.random() < self.settings.dies_in_move
            self._moving.append((self.at + seconds, instruction, min(targets) if fatal and targets else None))
        elif isinstance(instruction, Withdraw):
            void = instruction.stages
            self._moving = [one for one in self._moving if one[1].stage not in void]
        elif isinstance(instruction, Release):
            for name in instruction.executors:
                if name in self._ids:
                    places = [at for at, executor in enumerate(self._placement) if executor == name]
                    assert not np.isin(self.bucket_map, places).any(), "let go with buckets"
                    self._leave(name)
                self._events.append(Left(name))
        elif isinstance(instruction, KeepSpare):
            self._keep_spare = instruction.count

    def _provision(self, count: int) -> None:
        warm, self._spare = self._spare[:count], self._spare[count:]
        given = min(count - len(warm), max(self.settings.most - self.all_size - len(warm), 0))
        if not warm and not given:
            self._events.append(Refused(f"the cluster has no more than {self.settings.most} executors"))
            return
        self._events.append(Granted(len(warm) + given))
        for name in warm:
            self._join(name)
            self._events.append(Arrived(name))
        for _ in range(given):
            self._start(spare=False)

    def take_events(self) -> Sequence[Event]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events
