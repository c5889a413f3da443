"""The stages of an epoch: scan, exchange, slices, and a tree of merges; what their tasks do and who executes them.

`Stages` is the contract of whoever executes them: `LocalStages` in this process, `penstock.spark.stages` on Spark.

Guarantees: each task is executed at least once and its messages arrive once. An error that a task foresees travels as
a message, and the task is not retried.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import cloudpickle

from penstock.epoch.gather import FAN_IN, merge_messages
from penstock.epoch.job_failures import explain_os_error
from penstock.epoch.kill_points import reached
from penstock.epoch.message import EpochError
from penstock.epoch.rehearsal import rehearsal_shares, rehearse_scan, rehearse_slice
from penstock.epoch.scan import run_scan
from penstock.epoch.slice import run_slice
from penstock.epoch.task import CacheFill, EpochTask, StateLocation, fill_cache, running_as
from penstock.errors import PenstockError
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.state.bucket_map import ExecutorLocation
from penstock.state.run import Piece

T = TypeVar("T")
#: messages, each with the number of the slice that it is for
Addressed = Iterator[tuple[int, bytes]]
#: the (stream, span) pairs of each scan task
Shares = list[list[tuple[str, Span]]]
#: the environment variable with the seed of the order in which `LocalStages` executes tasks and delivers messages
SEED = "PENSTOCK_INLINE_SEED"


class Stages(Protocol):
    """Executes the tasks of an epoch."""

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        """Execute the scan of the shares and every level of slices; returns the messages for the driver."""

    def warm(
        self, location: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        """Have executors fill their caches with pieces of runs while epochs continue; returns what each did."""

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        """Execute an epoch without effect on the executors of its slices, while other epochs continue."""

    def close(self) -> None:
        """Release what is kept from one epoch to the next."""


# -- what tasks do ---------------------------------------------------------------------------------------


def scan_task(task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True) -> Addressed:
    """A scan task. Errors that it foresees are messages for the driver."""
    try:
        yield from run_scan(task, spans, first=first)
    except PenstockError as error:
        yield 0, EpochError(error).to_bytes()
    except OSError as failure:
        yield 0, EpochError(explain_os_error(failure)).to_bytes()
    reached("scanned", task.epoch, task.engine_pid)


def slice_task(task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]) -> Addressed:
    """A slice task. Errors that it foresees are messages for the driver."""
    try:
        yield from run_slice(task, level, slice_, incoming)
    except PenstockError as error:
        yield 0, EpochError(error).to_bytes()
    except OSError as failure:
        yield 0, EpochError(explain_os_error(failure)).to_bytes()


@dataclass(frozen=True)
class TaskFunctions:
    """What a scan task and a slice task do."""

    scan: Callable[..., Addressed]
    slice: Callable[[EpochTask, int, int, Iterable[bytes]], Addressed]


TASK_FUNCTIONS = TaskFunctions(scan_task, slice_task)
REHEARSAL_FUNCTIONS = TaskFunctions(rehearse_scan, rehearse_slice)


def share_spans(spans: list[tuple[str, Span]], tasks: int) -> Shares:
    """Share spans between at most `tasks` scan tasks: the largest first, each to the least loaded task."""
    shares: Shares = [[] for _ in range(max(1, min(tasks, len(spans))))]
    loads = [0] * len(shares)
    for stream, span in sorted(spans, key=lambda s: (s[1].start - s[1].end, s[0], s[1].partition)):
        least = loads.index(min(loads))
        shares[least].append((stream, span))
        loads[least] += span.end - span.start
    return shares


def pack_plan(plan: Plan) -> bytes:
    """A plan as it travels. Sinks stay with the driver, since some hold connections."""
    outputs = {name: replace(output, sinks=()) for name, output in plan.outputs.items()}
    data: bytes = cloudpickle.dumps(replace(plan, outputs=outputs))
    return data


def detach_plan(task: EpochTask) -> Callable[[Plan], EpochTask]:
    """The task without its plan, which travels apart: a function that puts the plan back."""
    parts = {name: getattr(task, name) for name in task.__dataclass_fields__ if name != "plan"}
    return lambda plan: EpochTask(plan=plan, **parts)


# -- execution in one process ----------------------------------------------------------------------------


class LocalStages:
    """Executes an epoch's tasks in this process, each slice as if on the executor that it is placed on.

    For the master `inline` and for tests: an epoch takes milliseconds, and no Spark session has to start. As on Spark,
    tasks have copies of the plan and of their inputs, and messages arrive in any order: one that a seed draws.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._draw = random.Random(int(os.environ.get(SEED, "0")) if seed is None else seed)
        self._shipped: tuple[Plan, Plan] | None = None

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        return self._execute(task, shares, TASK_FUNCTIONS)

    def warm(
        self, location: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        fills = []
        for place, pieces in wanted.items():
            with running_as(place.executor):
                fills.append(fill_cache(location, place, pieces))
        return fills

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        self._execute(task, rehearsal_shares(task, spans), REHEARSAL_FUNCTIONS)

    def close(self) -> None:
        self._shipped = None

    def _execute(self, task: EpochTask, shares: Shares, functions: TaskFunctions) -> list[bytes]:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            self._shipped = shipped = task.plan, cloudpickle.loads(pack_plan(task.plan))
        copy: EpochTask = cloudpickle.loads(cloudpickle.dumps(detach_plan(task)))(shipped[1])
        return run_in_process(copy, shares, functions, self._draw)


def run_in_process(
    task: EpochTask, shares: Shares, functions: TaskFunctions | None = None, draw: random.Random | None = None
) -> list[bytes]:
    """Execute all tasks of an epoch here, one after the other. With `draw` tasks and messages come in any order, as
    from Spark's shuffle: a task's messages stay together."""
    functions = functions or TASK_FUNCTIONS
    sent: list[list[tuple[int, bytes]]] = [[] for _ in shares]
    for number in _shuffle(range(len(shares)), draw):
        sent[number] = list(functions.scan(task, shares[number], first=not number))
    for level in range(1, task.plan.levels + 1):
        boxes: list[list[list[bytes]]] = [[] for _ in range(task.slices)]
        for pairs in sent:
            blocks: dict[int, list[bytes]] = {}
            for slice_, data in pairs:
                blocks.setdefault(slice_, []).append(data)
            for slice_, block in blocks.items():
                boxes[slice_].append(block)
        sent = [[] for _ in boxes]
        for slice_ in _shuffle(range(len(boxes)), draw):
            place = task.maps.location_of(slice_)
            box = [data for block in _shuffle(boxes[slice_], draw) for data in block]
            with running_as(None if place is None else place.executor):
                sent[slice_] = list(functions.slice(task, level, slice_, box))
    messages = [[data for _, data in pairs] for pairs in sent]
    while len(messages) > FAN_IN:
        groups = [
            _shuffle(messages[start : start + FAN_IN], draw) for start in range(0, len(messages), FAN_IN)
        ]
        messages = [list(merge_messages(task.plan, (d for box in group for d in box))) for group in groups]
    return [data for box in messages for data in box]


def _shuffle(items: Sequence[T], draw: random.Random | None) -> Sequence[T]:
    return items if draw is None else draw.sample(items, len(items))
