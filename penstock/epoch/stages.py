"""An epoch's stages: scan, exchange, slices, again and again; what their tasks do, and who executes them.

Receives what every task must know and how the spans are dealt out; hands the driver the messages for it.

Guarantees: each task's work is carried out at least once and its messages arrive once. Spark decides where
tasks run and tries them again when a worker is lost; an error a task foresees travels as a message and is
not tried again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import cloudpickle

from penstock.epoch.executor_identity import standing_at
from penstock.epoch.gather_tree import FAN_IN, brought_together
from penstock.epoch.kill_points import reached
from penstock.epoch.message import EpochError
from penstock.epoch.rehearsal import rehearsed_scan, rehearsed_slice
from penstock.epoch.scan import scan
from penstock.epoch.slice import work
from penstock.epoch.task import EpochTask, StatePlace, Warmed
from penstock.errors import PenstockError
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.state.bucket_map import ExecutorLocation
from penstock.state.run import Piece

T = TypeVar("T")
Addressed = Iterator[tuple[int, bytes]]
Shares = list[list[tuple[str, Span]]]


class Stages(Protocol):
    """Whatever carries out the tasks of an epoch."""

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        """Run the scan over the shares and every level of slices; returns what reaches the driver."""

    def warm(self, place: StatePlace, wanted: Mapping[ExecutorLocation, Sequence[Piece]]) -> list[Warmed]:
        """Have executors bring pieces of runs into their caches, while epochs go on; returns what each has done."""

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        """Carry out an epoch for nothing at the places of its slices, while others go on."""


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
            place = task.maps.location_of(slice_)
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
        yield 0, EpochError(error).to_bytes()
    reached("scanned", task.epoch, task.engine_pid)


def slice_task(task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]) -> Addressed:
    """A slice task, with what can go wrong sent to the driver."""
    try:
        yield from work(task, level, slice_, incoming)
    except PenstockError as error:
        yield 0, EpochError(error).to_bytes()


@dataclass(frozen=True)
class Parts:
    """What a scan task and a slice task do."""

    scan: Callable[..., Addressed]
    slice: Callable[[EpochTask, int, int, Iterable[bytes]], Addressed]


PARTS, REHEARSED = Parts(scan_task, slice_task), Parts(rehearsed_scan, rehearsed_slice)


def packed(plan: Plan) -> bytes:
    """A plan as it travels: sinks stay with the driver, since some hold connections."""
    outputs = {name: replace(output, sinks=()) for name, output in plan.outputs.items()}
    data: bytes = cloudpickle.dumps(replace(plan, outputs=outputs))
    return data


def received(task: EpochTask, plan: Plan) -> EpochTask:
    """The task as one that carries out a part of it receives it, with the plan that is there already."""
    light = cloudpickle.loads(cloudpickle.dumps(without_plan(task)))
    found: EpochTask = light(plan)
    return found


def without_plan(task: EpochTask) -> Callable[[Plan], EpochTask]:
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
