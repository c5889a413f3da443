"""Connects the elastic loop to a running engine: collects measurements, turns the loop, and executes its instructions.

Invariants:
- The loop is pure; everything that acts is here, in one thread. No epoch waits for it.
- A slice has one executor or is vacant. Buckets of an executor that died go to the others.
- The number of executors requested is that of the working ones plus the spare ones. An executor that comes unrequested
  while some are missing replaces one that died, and gets its buckets back. That is no decision: nothing is weighed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from penstock.engine.collect import Meter, Worker
from penstock.engine.map_changes import MapChanges
from penstock.engine.scaling_history import ScalingHistory
from penstock.query.physical import maps_by_stage
from penstock.scaling.decide import Manager
from penstock.scaling.loop import Loop
from penstock.scaling.measurements import VACANT
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
    Replaced,
    RequestExecutors,
    Withdraw,
)
from penstock.scaling.settings import ElasticSettings
from penstock.spark.executors import Executors
from penstock.state.bucket_map import ExecutorLocation, even_maps

_LOG = logging.getLogger(__name__)
#: how often the loop looks which executors are there, in seconds
LOOK_SECONDS = 0.5
#: the least time of a measurement, and the longest wait for an epoch to measure, in seconds
PERIOD_SECONDS = 2.0
IDLE_SECONDS = 30.0


class Cluster(Protocol):
    """The executors of a running application."""

    def workers(self) -> Mapping[str, tuple[Worker, ExecutorLocation]]:
        """Those that are there."""

    def request(self, total: int) -> bool:
        """Request so many; False if the cluster manager refuses. One that dies is replaced without a request."""

    def retire(self, executors: Sequence[str]) -> None:
        """Release these when their tasks have ended; they are not replaced."""


class SparkCluster:
    """The executors of a Spark application."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors

    def workers(self) -> Mapping[str, tuple[Worker, ExecutorLocation]]:
        return {
            one.id: (Worker(one.id, one.cores), ExecutorLocation(one.host, one.id))
            for one in self._executors.staying()
        }

    def request(self, total: int) -> bool:
        return self._executors.request(total)

    def retire(self, executors: Sequence[str]) -> None:
        self._executors.retire(executors)


class Elasticity:
    """Turns the loop of one engine. `warm_up` has a new executor load what tasks need."""

    def __init__(
        self,
        settings: ElasticSettings,
        cluster: Cluster,
        changes: MapChanges,
        meter: Meter,
        warm_up: Callable[[ExecutorLocation, int, Callable[[], bool]], object],
        folder: Path,
        manager: Manager | None = None,
    ) -> None:
        self._cluster, self._changes, self._meter, self._warm_up = cluster, changes, meter, warm_up
        self._history = ScalingHistory(folder, meter.now)
        self._loop = Loop.start(settings, manager, self._history.costs(), self._history.record())
        self._placement: list[str] = []
        self._workers: Mapping[str, tuple[Worker, ExecutorLocation]] = {}
        self._spare: set[str] = set()
        self._leaving: set[str] = set()
        #: how many executors are to work, and to be spare
        self._target, self._spare_target = 0, 0
        #: when executors were requested that have not all come
        self._requested_at: float | None = None
        self._events: list[Event] = []
        self._warm_ups: dict[str, Future[object]] = {}
        self._warm_up_pool = ThreadPoolExecutor(1, "penstock-warm-up")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-elasticity", daemon=True)

    @property
    def loop(self) -> Loop:
        """What the loop knows and has decided."""
        return self._loop

    @property
    def placement(self) -> tuple[str, ...]:
        """The executor of each slice."""
        return tuple(self._placement)

    @property
    def slice_owners(self) -> set[str]:
        """The executors that have slices."""
        return set(self._placement) - {VACANT}

    @property
    def ahead(self) -> float:
        """By how many seconds the wall clock is ahead of the record's times."""
        return self._history.ahead

    @property
    def rehearsing(self) -> tuple[str, ...]:
        """The executors that have come and are not ready yet."""
        return tuple(sorted(set(self._warm_ups) & set(self._workers)))

    @property
    def leaving(self) -> tuple[str, ...]:
        """The executors that are released and are still there."""
        return tuple(sorted(self._leaving))

    def start(self) -> None:
        """Turn the loop in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop the loop. What is under way ends with the engine, and is recorded as cut short."""
        self._stop.set()
        self._warm_up_pool.shutdown(wait=False, cancel_futures=True)
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop = replace(self._loop, orders=(), record=self._loop.record.cut_short_open())
            with contextlib.suppress(OSError):  # the run has ended well without it
                self._history.write(self._loop.record, self._loop.costs)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                if self._meter.is_ready(PERIOD_SECONDS, IDLE_SECONDS):
                    self.turn()
            except Exception:  # a loop that fails must not end the stream
                if not self._stop.is_set():
                    _LOG.exception("a turn of the elastic loop failed")

    def turn(self) -> None:
        """One period: notice what happened, measure, decide, and execute."""
        placement = self._changes.finish_renumbering(self._placement)
        if placement is None:
            return
        self._placement = placement
        self._notice_executors(self._cluster.workers())
        self._notice_changes()
        workers = [worker for worker, _ in self._workers.values()]
        maps = maps_by_stage(self._changes.maps(), self._changes.plan())
        snapshot = self._meter.measure(workers, self._placement, sorted(self._spare), maps)
        events, self._events = self._events, []
        before = {order.number for order in self._loop.orders}
        self._loop, instructions = self._loop.turn(snapshot, events)
        self._execute(instructions)
        if before - {order.number for order in self._loop.orders}:
            # an order has ended, perhaps without all executors that it requested: the rest are not waited for
            self._target = self._working
            self._cluster.request(self._target + self._spare_target)
            self._requested_at = None
        if self.slice_owners and self._changes.is_idle:
            self._changes.reassign(self._placement, self._locations(), self._leaving)
        if self._changes.is_idle and not self._loop.orders:
            self._changes.renumber(self._placement)
        self._history.write(self._loop.record, self._loop.costs)

    # -- notice ----------------------------------------------------------------------------------

    def _notice_executors(self, workers: Mapping[str, tuple[Worker, ExecutorLocation]]) -> None:
        """Notice which executors have come and gone."""
        self._workers = workers
        for name in set(self._warm_ups) - set(workers):
            self._warm_ups.pop(name).cancel()  # others wait to be warmed up
        known = self.slice_owners | self._spare | self._leaving
        is_first = not self._placement
        for name in sorted(known - set(workers)):
            self._notice_loss(name)
        for name in sorted(set(workers) - known - self._leaving):
            if is_first:
                self._give_slices(name)
            elif self._is_warm(name):
                self._notice_arrival(name)
        if is_first and workers:
            self._target = len(workers)
            maps = even_maps(self._changes.maps().buckets, len(self._placement), self._locations())
            self._changes.request(maps, "immediate")

    def _notice_loss(self, name: str) -> None:
        self._spare.discard(name)
        if name in self._leaving:
            self._leaving.discard(name)
            self._events.append(Left(name))
        elif name in self._placement:
            self._events.append(Lost(name, replaced=not self._loop.orders))
            self._changes.note_loss()
        self._placement = [VACANT if owner == name else owner for owner in self._placement]

    def _notice_arrival(self, name: str) -> None:
        if self._working < self._target:
            if any(order.phase in ("requested", "coming") for order in self._loop.orders):
                self._events.append(Arrived(name))
                if self._requested_at is not None:
                    self._add_cost(start_seconds=self._meter.now - self._requested_at)
            else:
                self._events.append(Replaced(name))
            self._give_slices(name)
        elif len(self._spare) < self._spare_target:
            self._spare.add(name)
        else:
            self._events.append(Arrived(name))  # nobody requested it: the loop releases it

    def _is_warm(self, name: str) -> bool:
        """Whether the Python workers of an executor that has come have loaded what tasks need."""
        if name not in self._warm_ups:
            worker, location = self._workers[name]
            self._warm_ups[name] = self._warm_up_pool.submit(
                self._warm_up, location, worker.cores, lambda: name in self._workers
            )
        if not self._warm_ups[name].done():
            return False
        if (failure := self._warm_ups.pop(name).exception()) is not None:
            _LOG.warning("executor %s could not be warmed up: %s", name, failure)
        return True

    def _notice_changes(self) -> None:
        """Notice which changes of maps are over."""
        for change in self._changes.take_finished():
            result = change.result.result()
            if result.done and change.stages:
                self._add_cost(pause_seconds=result.pause_seconds, bytes_per_second=result.read_rate)
            self._events += [
                Moved(stage) if result.done else MoveFailed(stage, result.reason) for stage in change.stages
            ]

    def _add_cost(self, **measured: float | None) -> None:
        self._loop = replace(self._loop, costs=self._loop.costs.add_measurement(**measured))

    # -- executors and slices --------------------------------------------------------------------

    @property
    def _working(self) -> int:
        """How many executors have slices and stay."""
        return len(self.slice_owners - self._leaving)

    def _give_slices(self, name: str) -> None:
        """Give an executor a slice for each core: vacant ones first."""
        for _ in range(self._workers[name][0].cores):
            if VACANT in self._placement:
                self._placement[self._placement.index(VACANT)] = name
            else:
                self._placement.append(name)

    def _locations(self) -> list[ExecutorLocation | None]:
        return [self._workers[name][1] if name in self._workers else None for name in self._placement]

    # -- execute ---------------------------------------------------------------------------------

    def _execute(self, instructions: Sequence[Instruction]) -> None:
        void = {name for one in instructions if isinstance(one, Withdraw) for name in one.stages}
        if void:
            reason = "another move that it was made of was withdrawn"
            self._events += [
                MoveFailed(stage, reason)
                for change in self._changes.withdraw()
                for stage in change.stages
                if stage not in void
            ]
        moves = [one for one in instructions if isinstance(one, MoveBuckets)]
        if moves:
            self._request_moves(moves)
        for one in instructions:
            match one:
                case RequestExecutors(count):
                    self._request_executors(count)
                case Release(executors):
                    self._release(executors)
                case KeepSpare(count):
                    self._spare_target = count
                    self._cluster.request(self._target + count)
                case _:
                    pass

    def _request_moves(self, moves: Sequence[MoveBuckets]) -> None:
        maps, moved = self._changes.final_maps(), set[tuple[str, ...]]()
        family_of = {stage: family for family in self._changes.plan().families for stage in family}
        for move in moves:
            family = family_of.get(move.stage, ())
            if family in moved:
                continue  # the stages of a family share a map: a move of one is a move of all
            moved.add(family)
            for stage in family:
                maps = maps.with_owners(stage, {bucket: to for bucket, (_, to) in move.moves.items()})
        stages = tuple(move.stage for move in moves)
        self._changes.request(maps.with_locations(self._locations()), stages=stages)

    def _request_executors(self, count: int) -> None:
        """Take spare executors first; request the rest, and new spare ones."""
        self._target = self._working + count
        granted = self._cluster.request(self._target + self._spare_target)
        self._requested_at = self._meter.now if self._requested_at is None else self._requested_at
        self._events.append(Granted(count) if granted else Refused("the cluster manager gives no more"))
        if not granted:
            self._target = self._working
        while self._spare and self._working < self._target:
            name = min(self._spare)
            self._spare.discard(name)
            self._give_slices(name)
            self._events.append(Arrived(name))

    def _release(self, executors: Sequence[str]) -> None:
        working = [name for name in executors if name in self._placement and name not in self._leaving]
        self._target = max(self._target - len(working), 0)
        self._leaving.update(executors)
        self._cluster.retire(executors)
        self._cluster.request(self._target + self._spare_target)
