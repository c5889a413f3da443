"""The slice stage: a task works on its buckets of every sub-query of a level: state of the last epoch in,
inputs merged, operators run, new runs written, results sent on.

Receives the messages the exchange brought; hands messages for the next level or the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from penstock.epoch.emission_limit import soonest
from penstock.epoch.executor_identity import memory, whereabouts
from penstock.epoch.job_failures import Failures
from penstock.epoch.kill_points import reached
from penstock.epoch.message import (
    SHELVED_BYTES,
    Awaited,
    CollectionChanges,
    Envelope,
    Rows,
    SliceReport,
    StageWork,
    Times,
)
from penstock.epoch.task import EpochTask, addressed, hashed, run_store
from penstock.epoch.task_work import counted
from penstock.epoch.template_groups import Told, best, prepared, read_by, results
from penstock.errors import PenstockError
from penstock.operators.contract import NEVER, TIME, Inputs, Progress, Results, SliceState
from penstock.operators.job_windows import JOB
from penstock.operators.running import RunningAggregation
from penstock.operators.top_k import TopK
from penstock.query.edges import Edge, EdgeSource, EdgeTarget
from penstock.query.physical import Stage
from penstock.query.steps import locate_error, run_steps
from penstock.state.buckets import HASH
from penstock.state.collection import Scope
from penstock.state.continuity import output_state_id
from penstock.state.manifest import StreamTime


@dataclass
class _Inbox:
    """What came for this slice: rows per sub-query and port, times, and what only passes through."""

    rows: dict[tuple[str, int], list[pl.DataFrame]] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    passing: list[bytes] = field(default_factory=list)
    #: what the rows of each sub-query travelled in
    bytes: dict[str, int] = field(default_factory=dict)


@dataclass
class _SliceWork:
    """What a slice's task works with at one level, and what has come of it so far."""

    task: EpochTask
    level: int
    slice: int
    inbox: _Inbox
    #: the streams' times after the epoch
    times: Mapping[str, StreamTime]
    failures: Failures = field(default_factory=Failures)
    told: Told = field(default_factory=Told)
    changes: list[CollectionChanges] = field(default_factory=list)
    work: dict[str, StageWork] = field(default_factory=dict)
    awaited: list[Awaited] = field(default_factory=list)

    def keep(self, owner: str, state: SliceState) -> None:
        """Note what has changed in the state of an operator or a ranking."""
        self.changes += [(owner, name, change) for name, change in state.changes().items()]

    def report(self, rows: int, seconds: float, cpu_seconds: float) -> SliceReport:
        return SliceReport(
            seconds,
            cpu_seconds,
            whereabouts().executor,
            memory(),
            self.failures.kept(),
            self.level,
            self.slice,
            rows,
            tuple(self.changes),
            self.work,
            tuple(self.awaited),
        )


def work(task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """One slice task's work at one level."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    inbox = _open(task, level, incoming)
    here = _SliceWork(task, level, slice_, inbox, task.times_after(inbox.seen))
    yield slice_, Times(inbox.seen).to_bytes()
    for data in inbox.passing:
        yield slice_, data
    store = run_store(task.place)
    store.forget(task.gone)
    arrived = sum(frame.height for frames in inbox.rows.values() for frame in frames)
    with store.sync_together():
        for sub in task.plan.at_level(level):
            if buckets := task.buckets_of_slice(sub.id, slice_):
                yield from _run_stage(here, sub, Scope(store, task.epoch, buckets, task.maps.buckets))
    yield from ((0, data) for data in here.told.messages())
    yield from ((0, data) for data in here.failures.messages())
    reached("sliced", task.epoch, task.engine_pid)
    seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
    yield 0, here.report(arrived, seconds, cpu_seconds).to_bytes()


def _open(task: EpochTask, level: int, incoming: Iterable[bytes]) -> _Inbox:
    inbox, here = _Inbox(), {EdgeTarget("stage", sub.id) for sub in task.plan.at_level(level)}
    for data in incoming:
        envelope = Envelope(data)
        if envelope.kind != Times.kind and envelope.target not in here:
            inbox.passing.append(data)
            continue
        match envelope.open():
            case Times(seen):
                for stream, partitions in seen.items():
                    inbox.seen.setdefault(stream, {}).update(partitions)
            case Rows(target, frame, port):
                inbox.rows.setdefault((target.name, port), []).append(frame)
                size = len(data) if len(data) > SHELVED_BYTES else max(len(data), frame.estimated_size())
                inbox.bytes[target.name] = inbox.bytes.get(target.name, 0) + int(size)
    return inbox


def _run_stage(here: _SliceWork, sub: Stage, scope: Scope) -> Iterator[tuple[int, bytes]]:
    """Have a sub-query take in what came for it, and send on what it comes to."""
    started, inbox = time.perf_counter(), here.inbox
    inputs = [_together(inbox.rows.pop((sub.id, port), [])) for port in range(sub.operator.ports)]
    rows, present, counts = counted(sub, inputs, here.task.maps.buckets)
    state = SliceState(sub.id, here.task.collections.get(sub.id, {}), scope)
    results = _executed(here, sub, inputs, state)
    if here.task.has_members(sub.id):
        yield from _tell_members(here, sub, results.get(""))
    yield from _send_on(here, sub, results, state, scope)
    here.keep(sub.id, state)
    spent = time.perf_counter() - started
    here.work[sub.id] = StageWork(spent, rows, inbox.bytes.get(sub.id, 0), present, counts)


def _executed(here: _SliceWork, sub: Stage, inputs: Inputs, state: SliceState) -> Results:
    """What a sub-query's operator comes to; nothing where the job fails whose own it is."""
    task, first = here.task, sub.streams[0]
    # what reads other jobs has to wait until all of them have told
    ahead = sub.level == 1 and len(sub.streams) == 1
    progress = Progress(
        min(_mark(task.streams[name]) for name in sub.streams),
        min(_mark(here.times[name]) for name in sub.streams),
        task.flushed(sub.id),
        (task.streams[first].ahead, here.times[first].ahead) if ahead else (0, 0),
    )
    outcome: Results = {}
    with here.failures.of(task.owner_of(sub.id), task.job_seconds):
        try:
            outcome = sub.operator.run(inputs, state, progress)
        except PenstockError as error:
            raise locate_error(error, str(sub.origin), f"{sub.id} in epoch {task.epoch}") from error
    if task.has_members(sub.id) and len(sub.streams) == 1:
        awaited = soonest(sub.operator.pending_rows(state, progress.after))
        batches = task.lots_of(sub.id) if ahead and sub.operator.closes_in_batches else []
        here.awaited.append(Awaited(first, tuple(batches), awaited))
    return outcome


def _mark(stream: StreamTime) -> int:
    return NEVER if stream.watermark is None else stream.watermark


def _tell_members(here: _SliceWork, sub: Stage, rows: pl.DataFrame | None) -> Iterator[tuple[int, bytes]]:
    """What each job of a group makes of the group's rows."""
    for member, mine in results(here.task, sub.id, rows, here.failures) if rows is not None else ():
        here.told.add(mine if member is None else best(here.task, member.output, mine))
        if member is not None:
            yield from _to_readers(here, member.output, mine.drop(JOB), _where(here, sub))


def _send_on(
    here: _SliceWork, sub: Stage, outcome: Results, state: SliceState, scope: Scope
) -> Iterator[tuple[int, bytes]]:
    """A sub-query's rows, on their way to where its edges lead."""
    task, where = here.task, _where(here, sub)
    for edge in task.plan.edges_from(EdgeSource("stage", sub.id)):
        result = outcome.get(edge.output)
        made = None if result is None else prepared(task, edge, result, where, here.failures)
        if (output := edge.target.output) is not None:
            if made is not None:
                yield from _to_readers(here, output, made, where)
            if (top := task.plan.outputs[output].top) is not None:
                made = _ranked(here, edge, top, sub, made, state, scope)
        if made is None or not made.height:
            continue
        if edge.forward:
            kept = hashed(task, edge, made)
            here.inbox.rows.setdefault((edge.target.name, edge.port), []).append(kept)
        else:
            yield from addressed(task, edge, made)


def _where(here: _SliceWork, sub: Stage) -> str:
    return f"the rows of {sub.id} in epoch {here.task.epoch}"


def _to_readers(here: _SliceWork, output: str, rows: pl.DataFrame, where: str) -> Iterator[tuple[int, bytes]]:
    """A job's rows, on their way to the jobs that read it."""
    for edge, made in read_by(here.task, output, rows, where, here.failures):
        yield from addressed(here.task, edge, made)
        if edge.target.output is not None:
            yield from _to_readers(here, edge.target.output, made, where)


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames) if len(frames) > 1 else frames[0] if frames else None


def _ranked(
    here: _SliceWork,
    edge: Edge,
    top: TopK,
    sub: Stage,
    rows: pl.DataFrame | None,
    state: SliceState,
    scope: Scope,
) -> pl.DataFrame | None:
    """The slice's candidates for a top-k."""

    def refill(instant: int) -> pl.DataFrame:
        assert isinstance(sub.operator, RunningAggregation)
        assert rows is not None
        current = sub.operator.current(state)
        changed = rows.filter(pl.col(TIME) <= instant)
        if current is not None:
            current = run_steps(edge.steps, current, f"the totals of {sub.id}")
            changed = pl.concat([current.select(changed.columns), changed.sort(TIME)])
        return changed.unique(subset=[HASH, *top.keys], keep="last", maintain_order=True).drop(TIME)

    owner = output_state_id(edge.target.name)
    ranking = SliceState(owner, here.task.collections.get(owner, {}), scope)
    made = top.process_slice(rows, ranking, refill)
    here.keep(owner, ranking)
    return made
