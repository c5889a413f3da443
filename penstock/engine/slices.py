"""The slice stage: a task works on its buckets of every sub-query of a level: state of the last epoch in,
inputs merged, operators run, new runs written, results sent on.

Receives the messages the exchange brought; hands messages for the next level or the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from penstock.engine.closing import soonest
from penstock.engine.crowds import Told, best, prepared, read_by, results
from penstock.engine.failures import Failures
from penstock.engine.message import SHELVED_BYTES, Message, address
from penstock.engine.steps import reached
from penstock.engine.task import EpochTask, addressed, hashed, run_store
from penstock.engine.whereabouts import memory, whereabouts
from penstock.engine.work import counted
from penstock.operators.contract import NEVER, TIME, Inputs, Progress, Results, SliceState
from penstock.operators.job_windows import JOB
from penstock.operators.running import RunningAggregation
from penstock.operators.top_k import TopK
from penstock.query.physical import Edge, SubQuery, located, run_steps
from penstock.state.buckets import HASH
from penstock.state.collection import Changes, Scope
from penstock.state.manifest import StreamTime
from penstock.words.errors import PenstockError


@dataclass
class _Inbox:
    """What came for this slice: rows per sub-query and port, times, and what only passes through."""

    rows: dict[tuple[str, int], list[pl.DataFrame]] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    passing: list[bytes] = field(default_factory=list)
    #: what the rows of each sub-query travelled in
    bytes: dict[str, int] = field(default_factory=dict)


def work(task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """One slice task's work at one level."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    inbox = _opened(task, level, incoming)
    streams = task.times_after(inbox.seen)
    yield slice_, Message("time", "progress", inbox.seen).to_bytes()
    for data in inbox.passing:
        yield slice_, data
    store = run_store(task.place)
    store.forget(task.gone)
    changes: list[Any] = []
    arrived = sum(frame.height for frames in inbox.rows.values() for frame in frames)
    failures, told, work_done = Failures(), Told(), {}
    closing: list[Any] = []
    with store.synced_together():
        for sub in task.plan.at_level(level):
            buckets = task.buckets_of_slice(sub.id, slice_)
            if not buckets:
                continue
            scope = Scope(store, task.epoch, buckets, task.maps.buckets)
            started = time.perf_counter()
            inputs = [_together(inbox.rows.pop((sub.id, port), [])) for port in range(sub.operator.ports)]
            rows, present, counts = counted(sub, inputs, task.maps.buckets)
            yield from _run(task, sub, inputs, inbox, scope, streams, changes, failures, told, closing)
            spent = time.perf_counter() - started
            work_done[sub.id] = [spent, rows, inbox.bytes.get(sub.id, 0), present, counts]
    yield from ((0, data) for data in told.messages())
    yield from ((0, data) for data in failures.messages())
    reached("sliced", task.epoch, task.engine_pid)
    facts = {
        "stage": f"slice {level}",
        "slice": slice_,
        "changes": changes,
        "seconds": time.perf_counter() - began,
        "rows": arrived,
        "cpu": time.thread_time() - cpu_began,
        "executor": whereabouts().executor,
        "memory": list(memory().items()),
        "work": work_done,
        "jobs": failures.kept(),
        "closing": closing,
    }
    yield 0, Message("facts", "driver", facts).to_bytes()


def _opened(task: EpochTask, level: int, incoming: Iterable[bytes]) -> _Inbox:
    inbox, here = _Inbox(), {sub.id for sub in task.plan.at_level(level)}
    for data in incoming:
        kind, to = address(data)
        if kind == "time":
            for stream, partitions in Message.from_bytes(data).facts.items():
                inbox.seen.setdefault(stream, {}).update(partitions)
        elif kind == "rows" and to in here:
            message = Message.from_bytes(data)
            assert message.frame is not None
            inbox.rows.setdefault((to, message.facts["port"]), []).append(message.frame)
            size = len(data) if len(data) > SHELVED_BYTES else max(len(data), message.frame.estimated_size())
            inbox.bytes[to] = inbox.bytes.get(to, 0) + int(size)
        else:
            inbox.passing.append(data)
    return inbox


def _run(
    task: EpochTask,
    sub: SubQuery,
    inputs: Inputs,
    inbox: _Inbox,
    scope: Scope,
    streams: dict[str, StreamTime],
    changes: list[Any],
    failures: Failures,
    told: Told,
    closing: list[Any],
) -> Iterator[tuple[int, bytes]]:
    state = SliceState(sub.id, task.collections.get(sub.id, {}), scope)
    before = [task.streams[name].watermark for name in sub.streams]
    after = [streams[name].watermark for name in sub.streams]
    # what reads other jobs has to wait until all of them have told
    ahead = sub.level == 1 and len(sub.streams) == 1
    progress = Progress(
        min(NEVER if w is None else w for w in before),
        min(NEVER if w is None else w for w in after),
        task.flushed(sub.id),
        (task.streams[sub.streams[0]].ahead, streams[sub.streams[0]].ahead) if ahead else (0, 0),
    )
    outcome: Results = {}
    where = f"the rows of {sub.id} in epoch {task.epoch}"
    with failures.of(task.owner_of(sub.id), task.job_seconds):
        try:
            outcome = sub.operator.run(inputs, state, progress)
        except PenstockError as error:
            raise located(error, str(sub.origin), f"{sub.id} in epoch {task.epoch}") from error
    if task.has_members(sub.id):
        rows = outcome.get("")
        if len(sub.streams) == 1:
            awaited = list(soonest(sub.operator.awaited(state, progress.after)).items())
            occupied = task.lots_of(sub.id) if ahead and sub.operator.in_lots else []
            closing.append([sub.streams[0], occupied, awaited])
        for member, mine in results(task, sub.id, rows, failures) if rows is not None else ():
            told.add(mine if member is None else best(task, member.output, mine))
            if member is not None:
                yield from _to_readers(task, member.output, mine.drop(JOB), where, failures)
    for edge in task.plan.edges_from(sub.id):
        result = outcome.get(edge.output)
        top = task.plan.outputs[edge.target[4:]].top if edge.target.startswith("out:") else None
        made = None if result is None else prepared(task, edge, result, where, failures)
        if edge.target.startswith("out:") and made is not None:
            yield from _to_readers(task, edge.target[4:], made, where, failures)
        if top is not None:
            made = _ranked(task, edge, top, sub, made, state, scope, changes)
        if made is None or not made.height:
            continue
        if edge.forward:
            kept = hashed(task, edge, made)
            inbox.rows.setdefault((edge.target, edge.port), []).append(kept)
        else:
            yield from addressed(task, edge, made)
    changes += [[sub.id, name, _packed(change)] for name, change in state.changes().items()]


def _to_readers(
    task: EpochTask, output: str, rows: pl.DataFrame, where: str, failures: Failures
) -> Iterator[tuple[int, bytes]]:
    """A job's rows, on their way to the jobs that read it."""
    for edge, made in read_by(task, output, rows, where, failures):
        yield from addressed(task, edge, made)
        if edge.target.startswith("out:"):
            yield from _to_readers(task, edge.target[4:], made, where, failures)


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames) if len(frames) > 1 else frames[0] if frames else None


def _ranked(
    task: EpochTask,
    edge: Edge,
    top: TopK,
    sub: SubQuery,
    rows: pl.DataFrame | None,
    state: SliceState,
    scope: Scope,
    changes: list[Any],
) -> pl.DataFrame | None:
    """The slice's candidates for a top-k."""
    owner = edge.target.replace(":", "-")

    def refill(instant: int) -> pl.DataFrame:
        assert isinstance(sub.operator, RunningAggregation)
        assert rows is not None
        current = sub.operator.current(state)
        changed = rows.filter(pl.col(TIME) <= instant)
        if current is not None:
            current = run_steps(edge.steps, current, f"the totals of {sub.id}")
            changed = pl.concat([current.select(changed.columns), changed.sort(TIME)])
        return changed.unique(subset=[HASH, *top.keys], keep="last", maintain_order=True).drop(TIME)

    best = SliceState(owner, task.collections.get(owner, {}), scope)
    made = top.local(rows, best, refill)
    changes += [[owner, name, _packed(change)] for name, change in best.changes().items()]
    return made


def _packed(change: Changes) -> list[object]:
    return [
        [entry.to_json() for entry in change.added],
        [[name, sorted(buckets)] for name, buckets in change.dropped],
    ]
