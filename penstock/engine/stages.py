"""An epoch's stages: scan, exchange, slices, again and again, as one Spark job.

Receives what every task must know and how the spans are dealt out; hands the driver the messages for it.

Guarantees: each task's work is carried out at least once and its messages arrive once. Spark decides where
tasks run and tries them again when a worker is lost; an error a task foresees travels as a message and is
not tried again.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pyspark import SparkContext, cloudpickle
from pyspark.core.broadcast import Broadcast

from penstock.engine.exchange import RawBytes, exchange
from penstock.engine.greeting import rehearsed_scan, rehearsed_slice, shares_of
from penstock.engine.located import Located
from penstock.engine.message import error_message
from penstock.engine.scan import scan
from penstock.engine.slices import work
from penstock.engine.steps import reached
from penstock.engine.task import EpochTask, StatePlace, Warmed, warmed
from penstock.engine.tree import FAN_IN, brought_together, parents
from penstock.engine.whereabouts import standing_at
from penstock.jobs.code_loader import add_pickler
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.state.bucket_map import Place
from penstock.state.run import Piece
from penstock.words.errors import PenstockError

T = TypeVar("T")
Addressed = Iterator[tuple[int, bytes]]
Shares = list[list[tuple[str, Span]]]


class Stages(Protocol):
    """Whatever carries out the tasks of an epoch."""

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        """Run the scan over the shares and every level of slices; returns what reaches the driver."""

    def warm(self, place: StatePlace, wanted: Mapping[Place, Sequence[Piece]]) -> list[Warmed]:
        """Have executors bring pieces of runs into their caches, while epochs go on; returns what each has done."""

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        """Carry out an epoch for nothing at the places of its slices, while others go on."""


class SparkStages:
    """The stages on Spark. A plan travels once, as a broadcast, with the user's functions in it by value."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        add_pickler(cloudpickle)
        self._shipped: tuple[Plan, Broadcast[bytes]] | None = None
        self._located: Located | None = None

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        shipped, light = self._sent(task.plan), _without_plan(task)
        if task.slices == 1 and len(shares) == 1:
            # a small epoch is one task: nothing has to move
            def everything(numbers: Iterable[int]) -> list[bytes]:
                _exhausted(numbers)
                return one_after_the_other(light(_unpacked(shipped.value)), shares)

            return self._collected(self._tasks(task, 1).mapPartitions(everything))

        stage = self._staged(task, shares, shipped, self._tasks(task, len(shares)), PARTS)
        tasks = task.slices if task.plan.levels else len(shares)
        while tasks > FAN_IN:
            stage = stage.mapPartitionsWithIndex(
                lambda index, pairs: ((index // FAN_IN, d) for _, d in pairs)
            )
            tasks = parents(tasks)
            stage = exchange(self._context, stage, tasks).mapPartitionsWithIndex(
                lambda _, incoming: (
                    (0, data) for data in brought_together(_unpacked(shipped.value), incoming)
                )
            )
        return self._collected(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def _staged(
        self, task: EpochTask, shares: Shares, shipped: Broadcast[bytes], scans: Any, parts: Parts
    ) -> Any:
        """The scan and every level of slices, one after the other."""
        light = _without_plan(task)

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
            if any(task.maps.places):
                stage = self._places.placed(stage, [task.maps.place_of(at) for at in range(task.slices)])
            stage = stage.mapPartitionsWithIndex(slice_stage(level))
        return stage

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            return  # another plan has come since: its epochs are not waited for here
        scans = self._places.partitions(task.maps.places)
        stage = self._staged(task, shares_of(task, spans), shipped[1], scans, REHEARSED)
        self._collected(stage.mapPartitions(lambda pairs: (data for _, data in pairs)))

    def warm(self, place: StatePlace, wanted: Mapping[Place, Sequence[Piece]]) -> list[Warmed]:
        targets = [(at, tuple(pieces)) for at, pieces in wanted.items()]

        def fill(index: int, nothing: Iterable[bytes]) -> Iterator[bytes]:
            _exhausted(nothing)
            yield cloudpickle.dumps(warmed(place, *targets[index]))

        stage = self._places.partitions([at for at, _ in targets]).mapPartitionsWithIndex(fill)
        return [cloudpickle.loads(data) for data in self._collected(stage)]

    def _tasks(self, task: EpochTask, count: int) -> Any:
        """So many tasks without input, where slices have their places: not on executors that are to have none."""
        seats = [place for place in task.maps.places if place is not None]
        if seats:
            return self._places.partitions([seats[at % len(seats)] for at in range(count)])
        return self._context.parallelize(range(count), count)

    @property
    def _places(self) -> Located:
        if self._located is None:
            self._located = Located(self._context)
        return self._located

    def _sent(self, plan: Plan) -> Broadcast[bytes]:
        """The plan as a broadcast, which is replaced only when the plan is another."""
        if self._shipped is None or self._shipped[0] is not plan:
            before, self._shipped = self._shipped, (plan, self._context.broadcast(packed(plan)))
            if before is not None:
                before[1].destroy()  # no epoch is under way: nobody reads it any more
        return self._shipped[1]

    def _collected(self, stage: Any) -> list[bytes]:
        stage._jrdd_deserializer = RawBytes()
        found: list[bytes] = stage.collect()
        return found


def one_after_the_other(
    task: EpochTask, shares: Shares, parts: Parts | None = None, draw: random.Random | None = None
) -> list[bytes]:
    """All tasks of an epoch in this process, one after the other; with `draw` in any order, and each receives what the
    tasks before it sent in any order of these tasks, as from Spark's shuffle."""
    parts = parts or PARTS
    sent: list[list[tuple[int, bytes]]] = [[] for _ in shares]
    for number in _in_any_order(range(len(shares)), draw):
        sent[number] = list(parts.scan(task, shares[number], first=not number))
    for level in range(1, task.plan.levels + 1):
        boxes: list[list[list[bytes]]] = [[] for _ in range(task.slices)]
        for pairs in sent:
            blocks: dict[int, list[bytes]] = {}
            for slice_, data in pairs:
                blocks.setdefault(slice_, []).append(data)
            for slice_, block in blocks.items():
                boxes[slice_].append(block)
        sent = [[] for _ in boxes]
        for slice_ in _in_any_order(range(len(boxes)), draw):
            place = task.maps.place_of(slice_)
            box = [data for block in _in_any_order(boxes[slice_], draw) for data in block]
            with standing_at(None if place is None else place.executor):
                sent[slice_] = list(parts.slice(task, level, slice_, box))
    told = [[data for _, data in pairs] for pairs in sent]
    while len(told) > FAN_IN:
        groups = [_in_any_order(told[at : at + FAN_IN], draw) for at in range(0, len(told), FAN_IN)]
        told = [list(brought_together(task.plan, (d for box in group for d in box))) for group in groups]
    return [data for box in told for data in box]


def _in_any_order(items: Sequence[T], draw: random.Random | None) -> Sequence[T]:
    return items if draw is None else draw.sample(items, len(items))


def scan_task(task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True) -> Addressed:
    """A scan task, with what can go wrong sent to the driver."""
    try:
        yield from scan(task, spans, first=first)
    except PenstockError as error:
        yield 0, error_message(error).to_bytes()
    reached("scanned", task.epoch, task.engine_pid)


def slice_task(task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]) -> Addressed:
    """A slice task, with what can go wrong sent to the driver."""
    try:
        yield from work(task, level, slice_, incoming)
    except PenstockError as error:
        yield 0, error_message(error).to_bytes()


@dataclass(frozen=True)
class Parts:
    """What a scan task and a slice task do."""

    scan: Callable[..., Addressed]
    slice: Callable[[EpochTask, int, int, Iterable[bytes]], Addressed]


PARTS, REHEARSED = Parts(scan_task, slice_task), Parts(rehearsed_scan, rehearsed_slice)


def _exhausted(items: Iterable[object]) -> None:
    """Read a task's input to its end: Spark throws a Python worker away that has left some of it."""
    for _ in items:
        pass


@functools.lru_cache(maxsize=4)
def _unpacked(shipped: bytes) -> Plan:
    """The plan in a worker: unpacked once, then kept."""
    plan: Plan = cloudpickle.loads(shipped)
    return plan


def packed(plan: Plan) -> bytes:
    """A plan as it travels: sinks stay with the driver, since some hold connections."""
    outputs = {name: replace(output, sinks=()) for name, output in plan.outputs.items()}
    data: bytes = cloudpickle.dumps(replace(plan, outputs=outputs))
    return data


def received(task: EpochTask, plan: Plan) -> EpochTask:
    """The task as one that carries out a part of it receives it, with the plan that is there already."""
    light = cloudpickle.loads(cloudpickle.dumps(_without_plan(task)))
    found: EpochTask = light(plan)
    return found


def _without_plan(task: EpochTask) -> Callable[[Plan], EpochTask]:
    parts = {name: getattr(task, name) for name in task.__dataclass_fields__ if name != "plan"}
    return lambda plan: EpochTask(plan=plan, **parts)


def dealt(spans: list[tuple[str, Span]], tasks: int) -> Shares:
    """Spans dealt out to at most `tasks` tasks, the largest first, each to the least loaded."""
    shares: Shares = [[] for _ in range(max(1, min(tasks, len(spans))))]
    loads = [0] * len(shares)
    for stream, span in sorted(spans, key=lambda s: (s[1].start - s[1].end, s[0], s[1].partition)):
        least = loads.index(min(loads))
        shares[least].append((stream, span))
        loads[least] += span.end - span.start
    return shares
