"""A simulated engine and cluster, for tests of the elastic loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import penstock as ps
from penstock.engine.collect import COLD_EPOCHS, Meter, Worker
from penstock.engine.elasticity import Elasticity
from penstock.engine.map_changes import MapChanges
from penstock.epoch import migration as moves
from penstock.epoch.report import SCAN, EpochReport
from penstock.epoch.task_work import StageWork, TaskWork
from penstock.query.compile import compile_forms
from penstock.query.physical import Plan, maps_by_stage
from penstock.scaling.settings import ElasticSettings
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps

BUCKETS = 16
PLAN = compile_forms(
    ps.app(
        "clicks",
        ps.output(
            "n",
            ps.stream("clicks", ps.generated(total=1, live=False), ps.combined_log(), time="time")
            .key_by("path")
            .window("10s")
            .count(),
        ),
    )
).plan
STAGE = next(iter(PLAN.stages))
SETTINGS = ElasticSettings(
    window_seconds=4, patience_seconds=8, cool_down_seconds=5, most_executors=4, tolerated_backlog_seconds=5
)


def report(
    number: int, maps: BucketMaps, *, events: int = 1_000, seconds: float = 1.0, stage: str = STAGE
) -> EpochReport:
    """The report of an epoch whose work is spread evenly over all buckets."""
    slices = set(maps.of(stage))
    by_slice = {s: seconds * maps.of(stage).count(s) / BUCKETS for s in slices}
    work = StageWork(
        seconds,
        events,
        100,
        by_slice,
        dict.fromkeys(slices, 1),
        (events // BUCKETS,) * BUCKETS,
        maps.of(stage),
    )
    tasks = (TaskWork(SCAN, 0, "1", seconds / 10, seconds / 10, events),)
    return EpochReport(
        number,
        events,
        events,
        0,
        0,
        seconds,
        {},
        {"clicks": events},
        None,
        0,
        tasks=tasks,
        work={stage: work},
        maps=maps,
    )


@dataclass
class Playground:
    """A simulated cluster and engine, and a manual clock."""

    tmp: Path
    now: float = 0.0
    workers_: dict[str, tuple[Worker, ExecutorLocation]] = field(default_factory=dict)
    most: int = 4
    requested: list[int] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    maps: BucketMaps = field(default_factory=lambda: even_maps(BUCKETS, 1))
    backlog: int = 0
    refuses: bool = False
    moves_fail: bool = False
    #: moves wait until `finish_moves` is called
    moves_are_slow: bool = False
    pending_moves: list[tuple[moves.MapChange, Future[moves.MigrationResult]]] = field(default_factory=list)
    plan: Plan = PLAN
    warm: list[ExecutorLocation] = field(default_factory=list)
    #: cleared, warm-ups do not end
    can_warm_up: threading.Event = field(default_factory=threading.Event)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.can_warm_up.set()
        self.add_worker("1")
        self.meter = Meter(lambda: {"clicks": self.backlog}, 1.0, lambda: self.now)
        self.loop = Elasticity(
            SETTINGS,
            self,
            MapChanges(self.request_map_change, lambda: self.maps, lambda: self.plan),
            self.meter,
            self.warm_up,
            self.tmp,
        )

    def add_worker(self, name: str) -> None:
        self.workers_[name] = (Worker(name, 1), ExecutorLocation("here", name))

    def workers(self) -> Mapping[str, tuple[Worker, ExecutorLocation]]:
        return dict(self.workers_)

    def request(self, total: int) -> bool:
        self.requested.append(total)
        return not self.refuses

    def retire(self, executors: Sequence[str]) -> None:
        self.retired += executors
        for name in executors:
            self.workers_.pop(name, None)

    def warm_up(self, location: ExecutorLocation, cores: int, is_there: Callable[[], bool]) -> None:
        self.can_warm_up.wait()
        if is_there():
            self.warm.append(location)

    def request_map_change(self, change: moves.MapChange) -> Future[moves.MigrationResult]:
        ticket: Future[moves.MigrationResult] = Future()
        self.pending_moves.append((change, ticket))
        if not self.moves_are_slow:
            self.finish_moves()
        return ticket

    def finish_moves(self) -> None:
        """Finish the pending moves that were not cancelled."""
        pending_moves, self.pending_moves = self.pending_moves, []
        for change, ticket in pending_moves:
            if ticket.set_running_or_notify_cancel():
                if not self.moves_fail:
                    self.maps = change.maps.check(BUCKETS)
                report = moves.MigrationResult(not self.moves_fail, 1, "immediate", "because", 0)
                ticket.set_result(replace(report, pause_seconds=0.5, read_rate=200e6))

    def turn(self, seconds: float = 2.0, busy: float = 1.0, times: int = 1, events: int = 1_000) -> None:
        for _ in range(times):
            self.now += seconds
            self.meter.add(report(self.epoch, self.maps, seconds=busy, events=events))
            self.epoch += 1
            self.loop.turn()
            while self.can_warm_up.is_set() and any(not one.done() for one in self.loop._warm_ups.values()):
                pass

    def owners(self) -> set[str]:
        """The executors that own a bucket."""
        slices = {slice_ for owners in maps_by_stage(self.maps, self.plan).values() for slice_ in owners}
        return {str(getattr(self.maps.location_of(slice_), "executor", None)) for slice_ in slices}


def overload(playground: Playground, times: int = 8) -> None:
    playground.turn(busy=1.0, times=1 + COLD_EPOCHS)
    for _ in range(times):
        playground.backlog += 20_000
        playground.turn(busy=2.0)
