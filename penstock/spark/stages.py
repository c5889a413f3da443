"""The stages of an epoch as one Spark job: scan tasks, shuffles, slice tasks, and a tree of gathers.

Receives what every task must know and how the spans are dealt out; returns the messages for the driver.

Guarantees: each task's work is executed at least once and its messages arrive once. Spark decides where tasks run and
tries them again when a worker is lost; an error that a task foresees travels as a message and is not tried again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast

from penstock.epoch.gather import FAN_IN, merge_messages, merge_task_count
from penstock.epoch.rehearsal import rehearsal_shares
from penstock.epoch.stages import (
    REHEARSAL_FUNCTIONS,
    TASK_FUNCTIONS,
    Addressed,
    Shares,
    TaskFunctions,
    detach_plan,
    pack_plan,
    run_in_process,
)
from penstock.epoch.task import CacheFill, EpochTask, StateLocation, fill_cache
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.spark.exchange import RawBytes, exchange
from penstock.spark.preferred_location import PreferredLocations
from penstock.state.bucket_map import ExecutorLocation
from penstock.state.run import Piece


class SparkStages:
    """The stages on Spark. A plan travels once, as a broadcast, with the user's functions in it by value."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._shipped: tuple[Plan, Broadcast[bytes]] | None = None
        self._located: PreferredLocations | None = None

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        shipped, light = self._sent(task.plan), detach_plan(task)
        if task.slices == 1 and len(shares) == 1:
            # a small epoch is one task: nothing has to move
            def everything(numbers: Iterable[int]) -> list[bytes]:
                _exhausted(numbers)
                return run_in_process(light(_unpacked(shipped.value)), shares)

            return self._collected(self._tasks(task, 1).mapPartitions(everything))

        stage = self._staged(task, shares, shipped, self._tasks(task, len(shares)), TASK_FUNCTIONS)
        tasks = task.slices if task.plan.levels else len(shares)
        while tasks > FAN_IN:
            stage = stage.mapPartitionsWithIndex(
                lambda index, pairs: ((index // FAN_IN, d) for _, d in pairs)
            )
            tasks = merge_task_count(tasks)
            stage = exchange(self._context, stage, tasks).mapPartitionsWithIndex(
                lambda _, incoming: ((0, data) for data in merge_messages(_unpacked(shipped.value), incoming))
            )
        return self._collected(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def _staged(
        self, task: EpochTask, shares: Shares, shipped: Broadcast[bytes], scans: Any, parts: TaskFunctions
    ) -> Any:
        """The scan and every level of slices, one after the other."""
        light = detach_plan(task)

        def scan_stage(index: int, numbers: Iterable[int]) -> Addressed:
            _exhausted(numbers)
            return parts.scan(light(_unpacked(shipped.value)), shares[index], first=not index)

        def slice_stage(level: int) -> Callable[[int, Iterable[bytes]], Addressed]:
            return lambda index, incoming: parts.slice(
                light(_unpacked(shipped.value)), level, index, incoming
            )

        stage: Any = scans.mapPartitionsWithIndex(scan_stage)
        for level in range(1, task.plan.levels + 1):
            stage = exchange(self._context, stage, task.slices)
            if any(task.maps.locations):
                stage = self._locations.prefer(
                    stage, [task.maps.location_of(at) for at in range(task.slices)]
                )
            stage = stage.mapPartitionsWithIndex(slice_stage(level))
        return stage

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            return  # another plan has come since: its epochs are not waited for here
        scans = self._locations.partitions(task.maps.locations)
        stage = self._staged(task, rehearsal_shares(task, spans), shipped[1], scans, REHEARSAL_FUNCTIONS)
        self._collected(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def warm(
        self, place: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        targets = [(at, tuple(pieces)) for at, pieces in wanted.items()]

        def fill(index: int, nothing: Iterable[bytes]) -> Iterator[bytes]:
            _exhausted(nothing)
            yield cloudpickle.dumps(fill_cache(place, *targets[index]))

        stage = self._locations.partitions([at for at, _ in targets]).mapPartitionsWithIndex(fill)
        return [cloudpickle.loads(data) for data in self._collected(stage)]

    def _tasks(self, task: EpochTask, count: int) -> Any:
        """So many tasks without input, where slices have their places: not on executors that are to have none."""
        seats = [place for place in task.maps.locations if place is not None]
        if seats:
            return self._locations.partitions([seats[at % len(seats)] for at in range(count)])
        return self._context.parallelize(range(count), count)

    @property
    def _locations(self) -> PreferredLocations:
        if self._located is None:
            self._located = PreferredLocations(self._context)
        return self._located

    def _sent(self, plan: Plan) -> Broadcast[bytes]:
        """The plan as a broadcast, which is replaced only when the plan is another."""
        if self._shipped is None or self._shipped[0] is not plan:
            before, self._shipped = self._shipped, (plan, self._context.broadcast(pack_plan(plan)))
            if before is not None:
                before[1].destroy()  # no epoch is under way: nobody reads it any more
        return self._shipped[1]

    def _collected(self, stage: Any) -> list[bytes]:
        stage._jrdd_deserializer = RawBytes()
        found: list[bytes] = stage.collect()
        return found


def _exhausted(items: Iterable[object]) -> None:
    """Read a task's input to its end: Spark throws a Python worker away that has left some of it."""
    for _ in items:
        pass


@functools.lru_cache(maxsize=4)
def _unpacked(shipped: bytes) -> Plan:
    """The plan in a worker: unpacked once, then kept."""
    plan: Plan = cloudpickle.loads(shipped)
    return plan
