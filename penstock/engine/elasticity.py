"""Elasticity at the engine's end: collects what epochs measure, turns the loop, and carries out what it says.

Receives what a meter measured; hands the cluster requests for executors, the engine changes of its bucket maps, and
whoever asks what was decided and why.

Invariants:
- The loop is pure; all that acts is here, in one thread. Nothing here is waited for by an epoch.
- A slice lies on one executor or is vacant; buckets of an executor that died are given to those that are there.
- The number of executors asked for is the one that works plus the spare ones; one that comes unasked while some are
  missing takes the place of one that died, and gets its buckets back. That is no decision: nothing is to be weighed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.engine.collect import Meter, Worker
from penstock.engine.executor_maps import Away, adopted, renumbered
from penstock.engine.fleet import Cluster
from penstock.engine.scaling_history import Past
from penstock.epoch import migration as moves
from penstock.epoch.migration_cost import Protocol
from penstock.epoch.stage_maps import maps_by_stage
from penstock.query.physical import Plan
from penstock.scaling.loop import Loop
from penstock.scaling.manager import Manager
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
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps

_LOG = logging.getLogger(__name__)
#: how often the loop looks who is there, in seconds
LOOK_SECONDS = 0.5
#: the least time that is measured at once, and the longest to wait for an epoch to measure, in seconds
PERIOD_SECONDS = 2.0
IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class _UnderWay:
    """A change of maps that was asked for: for which sub-queries, if any, and what the maps will be."""

    sub_queries: tuple[str, ...]
    maps: BucketMaps
    ticket: Future[moves.MigrationResult]


class Elasticity:
    """Turns the loop of one engine."""

    def __init__(
        self,
        settings: ElasticSettings,
        cluster: Cluster,
        remap: Callable[[moves.MapChange], Future[moves.MigrationResult]],
        maps: Callable[[], BucketMaps],
        plan: Callable[[], Plan],
        meter: Meter,
        greet: Callable[[ExecutorLocation, int, Callable[[], bool]], object],
        folder: Path,
        manager: Manager | None = None,
    ) -> None:
        self._cluster, self._remap, self._maps, self._plan, self._meter = cluster, remap, maps, plan, meter
        self._greet = greet
        self._past = Past(folder, meter.now)
        self._loop = Loop.start(settings, manager, self._past.costs(), self._past.record())
        self._placement: list[str] = []
        self._workers: Mapping[str, tuple[Worker, ExecutorLocation]] = {}
        self._spare: set[str] = set()
        self._keep_spare = 0
        self._working = 0
        self._leaving: set[str] = set()
        self._moving: list[_UnderWay] = []
        #: buckets of executors that died, which others have until somebody comes in their place
        self._away: Away | None = None
        #: the numbers of the slices that are left, while these get others
        self._renumbering: tuple[tuple[int, ...], Future[moves.MigrationResult]] | None = None
        #: when executors were asked for that have not all come
        self._asked_at: float | None = None
        self._events: list[Event] = []
        self._greeting: dict[str, Future[object]] = {}
        self._greeters = ThreadPoolExecutor(1, "penstock-greeter")
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
    def ahead(self) -> float:
        """By how many seconds the wall clock is ahead of the record's times."""
        return self._past.ahead

    @property
    def rehearsing(self) -> tuple[str, ...]:
        """The executors that have come and are not ready yet."""
        return tuple(sorted(set(self._greeting) & set(self._workers)))

    @property
    def leaving(self) -> tuple[str, ...]:
        """The executors that are let go and are still there."""
        return tuple(sorted(self._leaving))

    def begin(self) -> None:
        """Begin turning."""
        self._thread.start()

    def close(self) -> None:
        """Stop turning; what is under way is left to the engine's own end, and told as cut short by it."""
        self._stop.set()
        self._greeters.shutdown(wait=False, cancel_futures=True)
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop = replace(self._loop, orders=(), record=self._loop.record.cut_short_open())
            with contextlib.suppress(OSError):  # the run has ended well without it
                self._past.keep(self._loop.record, self._loop.costs)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                if self._meter.ready(PERIOD_SECONDS, IDLE_SECONDS):
                    self.turn()
            except Exception:  # a loop that fails must not take the stream with it
                if not self._stop.is_set():
                    _LOG.exception("a turn of the elastic loop failed")

    # -- a turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """One period: what happened, what was measured, what to do."""
        if not self._renumbered():
            return
        self._meet(self._cluster.workers())
        self._take_moves()
        workers = [worker for worker, _ in self._workers.values()]
        measured = self._meter.measured(
            workers, self._placement, sorted(self._spare), maps_by_stage(self._maps(), self._plan())
        )
        events, self._events = self._events, []
        before = {order.number for order in self._loop.orders}
        self._loop, instructions = self._loop.turn(measured, events)
        self._carry_out(instructions)
        if before - {order.number for order in self._loop.orders}:
            # an order has ended, perhaps without those it asked for: who comes later is not waited for
            self._working = len(self._seated - self._leaving)
            self._cluster.request(self._working + self._keep_spare)
            self._asked_at = None
        if self._seated and not self._moving:
            self._adopt()
        if not self._moving and not self._loop.orders:
            self._renumber()
        self._past.keep(self._loop.record, self._loop.costs)

    def _meet(self, workers: Mapping[str, tuple[Worker, ExecutorLocation]]) -> None:
        """Notice who has come and who is gone."""
        self._workers = workers
        for name in set(self._greeting) - set(workers):
            self._greeting.pop(name).cancel()  # others wait to be greeted
        known = self._seated | self._spare | self._leaving
        first = not self._placement
        for name in sorted(known - set(workers)):
            self._spare.discard(name)
            if name in self._leaving:
                self._leaving.discard(name)
                self._events.append(Left(name))
            elif name in self._placement:
                self._events.append(Lost(name, replaced=not self._loop.orders))
                maps = self._asked()
                self._away = self._away if self._away and self._away.holds(maps) else Away(maps, maps)
            self._placement = [VACANT if owner == name else owner for owner in self._placement]
        for name in sorted(set(workers) - known - self._leaving):
            if not first and not self._greeted(name):
                continue
            awaited = len(self._seated - self._leaving) < self._working
            if first or awaited:
                asked = any(order.phase in ("requested", "coming") for order in self._loop.orders)
                if asked and not first:
                    self._events.append(Arrived(name))
                    if self._asked_at is not None:
                        self._cost(start_seconds=self._meter.now - self._asked_at)
                elif not first:
                    self._events.append(Replaced(name))
                self._seat(name)
            elif len(self._spare) < self._keep_spare:
                self._spare.add(name)
            else:
                self._events.append(Arrived(name))  # a stray: the loop lets it go
        if first and workers:
            self._working = len(workers)
            self._place_all()

    def _greeted(self, name: str) -> bool:
        """Whether an executor that has come is ready: its Python workers have loaded what tasks need."""
        if name not in self._greeting:
            worker, place = self._workers[name]
            self._greeting[name] = self._greeters.submit(
                self._greet, place, worker.cores, lambda: name in self._workers
            )
        if not self._greeting[name].done():
            return False
        if (failure := self._greeting.pop(name).exception()) is not None:
            _LOG.warning("executor %s could not be warmed up: %s", name, failure)
        return True

    @property
    def _seated(self) -> set[str]:
        return set(self._placement) - {VACANT}

    def _seat(self, name: str) -> None:
        """Give an executor a slice a core: vacant ones first."""
        for _ in range(self._workers[name][0].cores):
            if VACANT in self._placement:
                self._placement[self._placement.index(VACANT)] = name
            else:
                self._placement.append(name)

    def _adopt(self) -> None:
        """Give buckets whose slice has no executor to those that have one, and back to who comes in their place; have
        slices run where they are seated."""
        before = self._asked()
        if self._away is not None and not self._away.holds(before):
            self._away = None
        back = None if self._away is None else self._away.back(self._placement)
        maps = adopted(back or before, self._plan(), self._placement, self._leaving)
        if self._away is not None:
            self._away = None if back else replace(self._away, since=maps)
        seats = self._seats()
        if maps != before or list(before.locations) != seats:
            self._ask_for((), maps.with_locations(seats), None if back else "immediate")

    def _renumber(self) -> None:
        """Leave out the slices that nobody has, once they are most of them."""
        found = renumbered(self._asked(), self._placement)
        if found is not None:
            self._renumbering = found.kept, self._remap(moves.MapChange(found.maps, "immediate"))

    def _renumbered(self) -> bool:
        """Whether slices have the numbers of `placement`: not while they are to get others."""
        if self._renumbering is None:
            return True
        kept, ticket = self._renumbering
        if not ticket.done():
            return False
        if ticket.result().done:
            self._placement = [self._placement[slice_] for slice_ in kept]
        self._renumbering = None
        return True

    def _place_all(self) -> None:
        """Have the slices run where they are seated, all operators even_maps over them."""
        self._ask_for((), even_maps(self._maps().buckets, len(self._placement), self._seats()), "immediate")

    def _asked(self) -> BucketMaps:
        """The maps as they will be once all changes under way are made, of the sub-queries there are."""
        maps = self._moving[-1].maps if self._moving else self._maps()
        there = {name: owners for name, owners in maps.operators.items() if name in self._plan().stages}
        return replace(maps, operators=there)

    def _ask_for(
        self, sub_queries: tuple[str, ...], maps: BucketMaps, protocol: Protocol | None = None
    ) -> None:
        self._moving.append(_UnderWay(sub_queries, maps, self._remap(moves.MapChange(maps, protocol))))

    def _seats(self) -> list[ExecutorLocation | None]:
        return [self._workers[name][1] if name in self._workers else None for name in self._placement]

    def _take_moves(self) -> None:
        """Notice which moves are over."""
        under_way = []
        for one in self._moving:
            if not one.ticket.done():
                under_way.append(one)
                continue
            moved = one.ticket.result()
            if moved.done and one.sub_queries:
                self._cost(pause_seconds=moved.pause_seconds, bytes_per_second=moved.read_rate)
            self._events += [
                Moved(name) if moved.done else MoveFailed(name, moved.reason) for name in one.sub_queries
            ]
        self._moving = under_way

    def _cost(self, **seen: float | None) -> None:
        self._loop = replace(self._loop, costs=self._loop.costs.add_measurement(**seen))

    def _withdraw(self, void: set[str]) -> None:
        """Give up what is under way: all of it, since each change was made of what the one before it leaves."""
        under_way, self._moving = self._moving, []
        for one in under_way:
            if not one.ticket.cancel():
                self._moving.append(one)  # it comes into force just now
                continue
            why = "another move that it was made of was withdrawn"
            self._events += [MoveFailed(name, why) for name in one.sub_queries if name not in void]

    # -- carrying out ----------------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        void = {name for one in instructions if isinstance(one, Withdraw) for name in one.sub_queries}
        if void:
            self._withdraw(void)
        wanted = [one for one in instructions if isinstance(one, MoveBuckets)]
        if wanted:
            maps, moved = self._asked(), set[tuple[str, ...]]()
            together = {sub: family for family in self._plan().families for sub in family}
            for move in wanted:
                family = together.get(move.sub_query, ())
                if family in moved:
                    continue  # they share a map: what is moved of one is moved of all
                moved.add(family)
                for sub in family:
                    maps = maps.with_owners(sub, {bucket: to for bucket, (_, to) in move.moves.items()})
            self._ask_for(tuple(move.sub_query for move in wanted), maps.with_locations(self._seats()))
        for one in instructions:
            match one:
                case RequestExecutors(count):
                    self._ask(count)
                case Release(executors):
                    self._release(executors)
                case KeepSpare(count):
                    self._keep_spare = count
                    self._cluster.request(self._working + count)
                case _:
                    pass

    def _ask(self, count: int) -> None:
        """Spare executors first; the cluster is asked for the rest, and for new spare ones."""
        self._working = len(self._seated - self._leaving) + count
        granted = self._cluster.request(self._working + self._keep_spare)
        self._asked_at = self._meter.now if self._asked_at is None else self._asked_at
        self._events.append(Granted(count) if granted else Refused("the cluster manager gives no more"))
        if not granted:
            self._working = len(self._seated - self._leaving)
        while self._spare and len(self._seated - self._leaving) < self._working:
            name = sorted(self._spare)[0]
            self._spare.discard(name)
            self._seat(name)
            self._events.append(Arrived(name))

    def _release(self, executors: Sequence[str]) -> None:
        seated = [name for name in executors if name in self._placement and name not in self._leaving]
        self._working = max(self._working - len(seated), 0)
        self._leaving.update(executors)
        self._cluster.retire(executors)
        self._cluster.request(self._working + self._keep_spare)
