"""Executes a slice: for the buckets that it owns, a task runs every stage of a level.

It reads the state after the previous epoch, merges its inputs, executes the operators, writes new runs, and sends rows
on to the next level, to other jobs or to the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from penstock.epoch.job_failures import JobFailures
from penstock.epoch.job_steps import (
    JobRows,
    apply_job_steps,
    prepare_rows,
    rank_rows,
    route_to_readers,
)
from penstock.epoch.kill_points import reached
from penstock.epoch.message import (
    SPILL_BYTES,
    CollectionChanges,
    Envelope,
    PendingRows,
    Rows,
    SliceReport,
    SliceWork,
    Times,
)
from penstock.epoch.rate_control import nearest_instants
from penstock.epoch.routing import add_hash, route_rows
from penstock.epoch.task import EpochTask, current_executor, measure_memory, open_run_store
from penstock.epoch.task_work import count_rows
from penstock.errors import PenstockError
from penstock.operators.contract import NEVER, TIME, Inputs, Progress, Results, SliceState
from penstock.operators.job_windows import JOB
from penstock.operators.running import RunningAggregation
from penstock.operators.top_k import TopK
from penstock.query.physical import Stage
from penstock.query.steps import Edge, EdgeSource, EdgeTarget, locate_error, run_steps
from penstock.state.buckets import HASH
from penstock.state.collection import Scope
from penstock.state.continuity import output_state_id
from penstock.state.manifest import StreamTime


@dataclass
class _Inbox:
    """The messages for a slice: rows by stage and port, times, and what other levels receive."""

    rows: dict[tuple[str, int], list[pl.DataFrame]] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    forwarded: list[bytes] = field(default_factory=list)
    #: the bytes that each stage's rows travelled in
    bytes: dict[str, int] = field(default_factory=dict)


@dataclass
class _Slice:
    """A slice task at one level: its inputs, and its results so far."""

    task: EpochTask
    level: int
    slice: int
    inbox: _Inbox
    #: the streams' times after the epoch
    times: Mapping[str, StreamTime]
    failures: JobFailures
    job_rows: JobRows = field(default_factory=JobRows)
    changes: list[CollectionChanges] = field(default_factory=list)
    work: dict[str, SliceWork] = field(default_factory=dict)
    pending: list[PendingRows] = field(default_factory=list)

    def add_changes(self, owner: str, state: SliceState) -> None:
        """Add what has changed in the state of an operator or a ranking."""
        self.changes += [(owner, name, change) for name, change in state.changes().items()]

    def report(self, rows: int, seconds: float, cpu_seconds: float) -> SliceReport:
        return SliceReport(
            seconds,
            cpu_seconds,
            current_executor().executor,
            measure_memory(),
            self.failures.job_seconds(),
            self.failures.job_bytes(),
            self.level,
            self.slice,
            rows,
            tuple(self.changes),
            self.work,
            tuple(self.pending),
        )


def run_slice(
    task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Execute a slice at one level."""
    started, cpu_started = time.perf_counter(), time.thread_time()
    inbox = _open_inbox(task, level, incoming)
    here = _Slice(task, level, slice_, inbox, task.times_after(inbox.seen), JobFailures.of(task.job_memory))
    yield slice_, Times(inbox.seen).to_bytes()
    for data in inbox.forwarded:
        yield slice_, data
    store = open_run_store(task.location)
    store.forget(task.unused_runs)
    received = sum(frame.height for frames in inbox.rows.values() for frame in frames)
    with store.sync_together():
        for stage in task.plan.at_level(level):
            if buckets := task.buckets_of_slice(stage.id, slice_):
                yield from _run_stage(here, stage, Scope(store, task.epoch, buckets, task.maps.buckets))
    yield from ((0, data) for data in here.job_rows.messages(task, here.failures))
    yield from ((0, data) for data in here.failures.messages())
    reached("sliced", task.epoch, task.engine_pid)
    seconds, cpu_seconds = time.perf_counter() - started, time.thread_time() - cpu_started
    yield 0, here.report(received, seconds, cpu_seconds).to_bytes()


def _open_inbox(task: EpochTask, level: int, incoming: Iterable[bytes]) -> _Inbox:
    inbox, targets = _Inbox(), {EdgeTarget("stage", stage.id) for stage in task.plan.at_level(level)}
    for data in incoming:
        envelope = Envelope(data)
        if envelope.kind != Times.kind and envelope.target not in targets:
            inbox.forwarded.append(data)
            continue
        match envelope.open():
            case Times(seen):
                for stream, partitions in seen.items():
                    inbox.seen.setdefault(stream, {}).update(partitions)
            case Rows(target, frame, port):
                inbox.rows.setdefault((target.name, port), []).append(frame)
                size = len(data) if len(data) > SPILL_BYTES else max(len(data), frame.estimated_size())
                inbox.bytes[target.name] = inbox.bytes.get(target.name, 0) + int(size)
    return inbox


def _run_stage(here: _Slice, stage: Stage, scope: Scope) -> Iterator[tuple[int, bytes]]:
    """Execute a stage on its inputs, and send its rows on."""
    started, inbox = time.perf_counter(), here.inbox
    inputs = [_concat(inbox.rows.pop((stage.id, port), [])) for port in range(stage.operator.ports)]
    rows, buckets, counts = count_rows(stage, inputs, here.task.maps.buckets)
    state = SliceState(stage.id, here.task.collections.get(stage.id, {}), scope)
    results = _run_operator(here, stage, inputs, state)
    if here.task.has_members(stage.id):
        yield from _add_job_results(here, stage, results.get(""))
    yield from _send_on(here, stage, results, state, scope)
    here.add_changes(stage.id, state)
    seconds = time.perf_counter() - started
    here.work[stage.id] = SliceWork(seconds, rows, inbox.bytes.get(stage.id, 0), buckets, counts)


def _run_operator(here: _Slice, stage: Stage, inputs: Inputs, state: SliceState) -> Results:
    """The results of a stage's operator; none where jobs fail that it belongs to."""
    task, first = here.task, stage.streams[0]
    # what reads other jobs has to wait until all of them have emitted
    can_be_ahead = stage.level == 1 and len(stage.streams) == 1
    progress = Progress(
        min(_watermark(task.streams[name]) for name in stage.streams),
        min(_watermark(here.times[name]) for name in stage.streams),
        task.flushed_jobs(stage.id),
        (task.streams[first].ahead, here.times[first].ahead) if can_be_ahead else (0, 0),
    )
    results: Results = {}
    with here.failures.isolate(task.jobs_of(EdgeTarget("stage", stage.id)), task.job_seconds):
        try:
            results = stage.operator.run(inputs, state, progress)
        except PenstockError as error:
            raise locate_error(error, str(stage.origin), f"{stage.id} in epoch {task.epoch}") from error
    if task.has_members(stage.id) and len(stage.streams) == 1:
        pending = nearest_instants(stage.operator.pending_rows(state, progress.after))
        has_batches = can_be_ahead and stage.operator.closes_in_batches
        batches = task.batches_of(stage.id) if has_batches else []
        here.pending.append(PendingRows(first, tuple(batches), pending))
    return results


def _watermark(stream: StreamTime) -> int:
    return NEVER if stream.watermark is None else stream.watermark


def _add_job_results(here: _Slice, stage: Stage, rows: pl.DataFrame | None) -> Iterator[tuple[int, bytes]]:
    """Add the results of each job of a template group, and send them to the jobs that read it."""
    for member, results in (
        apply_job_steps(here.task, stage.id, rows, here.failures) if rows is not None else ()
    ):
        here.job_rows.add(results if member is None else rank_rows(here.task, member.output, results))
        if member is not None:
            yield from _send_to_readers(here, member.output, results.drop(JOB), _where(here, stage))


def _send_on(
    here: _Slice, stage: Stage, results: Results, state: SliceState, scope: Scope
) -> Iterator[tuple[int, bytes]]:
    """Send a stage's rows along its edges."""
    task, where = here.task, _where(here, stage)
    for edge in task.plan.edges_from(EdgeSource("stage", stage.id)):
        result = results.get(edge.output)
        rows = None if result is None else prepare_rows(task, edge, result, where, here.failures)
        if (output := edge.target.output) is not None:
            if rows is not None:
                yield from _send_to_readers(here, output, rows, where)
            if (top := task.plan.outputs[output].top) is not None:
                rows = _rank(here, edge, top, stage, rows, state, scope)
        if rows is None or not rows.height:
            continue
        if edge.forward:
            with here.failures.isolate(task.jobs_of(edge.target), task.job_seconds):
                forwarded = add_hash(task, edge, rows)
                here.inbox.rows.setdefault((edge.target.name, edge.port), []).append(forwarded)
        else:
            yield from route_rows(task, edge, rows, here.failures)


def _where(here: _Slice, stage: Stage) -> str:
    return f"the rows of {stage.id} in epoch {here.task.epoch}"


def _send_to_readers(
    here: _Slice, output: str, rows: pl.DataFrame, where: str
) -> Iterator[tuple[int, bytes]]:
    """Send a job's rows to the jobs that read it."""
    for edge, prepared in route_to_readers(here.task, output, rows, where, here.failures):
        yield from route_rows(here.task, edge, prepared, here.failures)
        if edge.target.output is not None:
            yield from _send_to_readers(here, edge.target.output, prepared, where)


def _concat(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames) if len(frames) > 1 else frames[0] if frames else None


def _rank(
    here: _Slice,
    edge: Edge,
    top: TopK,
    stage: Stage,
    rows: pl.DataFrame | None,
    state: SliceState,
    scope: Scope,
) -> pl.DataFrame | None:
    """The slice's candidates for a top-k."""

    def refill(instant: int) -> pl.DataFrame | None:
        assert isinstance(stage.operator, RunningAggregation)
        frames = [] if rows is None else [rows.filter(pl.col(TIME) <= instant).sort(TIME)]
        if (current := stage.operator.current(state)) is not None:
            current = run_steps(edge.steps, current, f"the totals of {stage.id}")
            frames.insert(0, current if rows is None else current.select(rows.columns))
        if not any(frame.height for frame in frames):
            return None
        latest = pl.concat(frames).unique(subset=[HASH, *top.keys], keep="last", maintain_order=True)
        return latest.drop(TIME)

    owner = output_state_id(edge.target.name)
    ranking = SliceState(owner, here.task.collections.get(owner, {}), scope)
    candidates = None
    with here.failures.isolate(here.task.jobs_of(edge.target), here.task.job_seconds):
        candidates = top.process_slice(rows, ranking, refill)
        here.add_changes(owner, ranking)
    return candidates
