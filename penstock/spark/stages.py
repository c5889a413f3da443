"""Executes the stages of an epoch as one Spark job: scan tasks, shuffles, slice tasks, and a tree of merges.

Guarantees: each task is executed at least once and its messages arrive once. Spark decides where tasks run and retries
them when a worker is lost. An error that a task foresees travels as a message, and the task is not retried.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
from py4j.protocol import Py4JError
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
from penstock.errors import ExternalError
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

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        try:
            return self._run(task, shares)
        except (Py4JError, OSError) as failure:  # py4j raises what its socket does
            if self._is_connected():
                raise
            raise ExternalError(
                "SPARK_ENDED",
                "the process of Spark has ended",
                detail=f"{failure}.",
                hint="Start again with the same state directory: the epoch is repeated. Spark's last lines are in "
                "engine.log there; a kernel that was out of memory says so in its own log.",
            ) from failure

    def _is_connected(self) -> bool:
        """Whether the JVM responds."""
        try:
            self._context._jsc.sc().isStopped()
        except (Py4JError, OSError):
            return False
        return True

    def _run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        shipped, without_plan = self._ship(task.plan), detach_plan(task)
        if task.slices == 1 and len(shares) == 1:
            # a small epoch is one task: nothing is exchanged
            def run_all(numbers: Iterable[int]) -> list[bytes]:
                _exhaust(numbers)
                return run_in_process(without_plan(_unpack(shipped.value)), shares)

            return _collect(self._tasks(task, 1).mapPartitions(run_all))

        stage = self._chain(task, shares, shipped, self._tasks(task, len(shares)), TASK_FUNCTIONS)
        tasks = task.slices if task.plan.levels else len(shares)
        while tasks > FAN_IN:
            stage = stage.mapPartitionsWithIndex(
                lambda index, pairs: ((index // FAN_IN, d) for _, d in pairs)
            )
            tasks = merge_task_count(tasks)
            stage = exchange(self._context, stage, tasks).mapPartitionsWithIndex(
                lambda _, incoming: ((0, data) for data in merge_messages(_unpack(shipped.value), incoming))
            )
        return _collect(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def _chain(
        self, task: EpochTask, shares: Shares, shipped: Broadcast[bytes], scans: Any, functions: TaskFunctions
    ) -> Any:
        """The scan and every level of slices, chained."""
        without_plan = detach_plan(task)

        def scan_stage(index: int, numbers: Iterable[int]) -> Addressed:
            _exhaust(numbers)
            return functions.scan(without_plan(_unpack(shipped.value)), shares[index], first=not index)

        def slice_stage(level: int) -> Callable[[int, Iterable[bytes]], Addressed]:
            return lambda index, incoming: functions.slice(
                without_plan(_unpack(shipped.value)), level, index, incoming
            )

        stage: Any = scans.mapPartitionsWithIndex(scan_stage)
        for level in range(1, task.plan.levels + 1):
            stage = exchange(self._context, stage, task.slices)
            if any(task.maps.locations):
                locations = [task.maps.location_of(slice_) for slice_ in range(task.slices)]
                stage = self._locations.prefer(stage, locations)
            stage = stage.mapPartitionsWithIndex(slice_stage(level))
        return stage

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            return  # another plan has come since: its epochs are not waited for here
        scans = self._locations.partitions(task.maps.locations)
        stage = self._chain(task, rehearsal_shares(task, spans), shipped[1], scans, REHEARSAL_FUNCTIONS)
        _collect(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def warm(
        self, location: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        targets = [(executor, tuple(pieces)) for executor, pieces in wanted.items()]

        def fill(index: int, nothing: Iterable[bytes]) -> Iterator[bytes]:
            _exhaust(nothing)
            yield cloudpickle.dumps(fill_cache(location, *targets[index]))

        stage = self._locations.partitions([executor for executor, _ in targets]).mapPartitionsWithIndex(fill)
        return [cloudpickle.loads(data) for data in _collect(stage)]

    def close(self) -> None:
        if self._shipped is not None:
            shipped, self._shipped = self._shipped[1], None
            with contextlib.suppress(Py4JError, ConnectionError):  # Spark may have ended before
                shipped.destroy()

    def _tasks(self, task: EpochTask, count: int) -> Any:
        """So many tasks without input; where slices have executors, only on these."""
        locations = [one for one in task.maps.locations if one is not None]
        if locations:
            return self._locations.partitions([locations[n % len(locations)] for n in range(count)])
        return self._context.parallelize(range(count), count)

    @functools.cached_property
    def _locations(self) -> PreferredLocations:
        return PreferredLocations(self._context)

    def _ship(self, plan: Plan) -> Broadcast[bytes]:
        """The plan as a broadcast, which is replaced only when the plan is another."""
        if self._shipped is None or self._shipped[0] is not plan:
            before, self._shipped = self._shipped, (plan, self._context.broadcast(pack_plan(plan)))
            if before is not None:
                before[1].destroy()  # no epoch is under way: nobody reads it any more
        return self._shipped[1]


def _collect(stage: Any) -> list[bytes]:
    stage._jrdd_deserializer = RawBytes()
    messages: list[bytes] = stage.collect()
    return messages


def _exhaust(items: Iterable[object]) -> None:
    """Read a task's input to its end: Spark throws a Python worker away that has left some of it."""
    for _ in items:
        pass


@functools.lru_cache(maxsize=4)
def _unpack(shipped: bytes) -> Plan:
    """The plan in a worker: unpacked once for all its tasks."""
    plan: Plan = cloudpickle.loads(shipped)
    return plan
