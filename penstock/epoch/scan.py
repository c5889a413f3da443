"""Scans the log: a task reads the raw bytes of its spans, decodes them once, applies the first steps of every job and
reduces rows before the exchange.

A task receives spans, never data. It sends rows to the slices of each edge, the highest event time of each partition to
every slice, and to the driver its counts, dead letters and late events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from penstock.decode.contract import ROW
from penstock.epoch.job_failures import JobFailures
from penstock.epoch.job_steps import (
    JobRows,
    apply_job_steps,
    prepare_rows,
    rank_rows,
    route_to_readers,
    select_job_events,
)
from penstock.epoch.message import ScanReport, SideOutput, Times
from penstock.epoch.routing import route_rows
from penstock.epoch.task import EpochTask, current_executor, measure_memory
from penstock.errors import ExternalError
from penstock.logs.contract import Chunk, Span
from penstock.operators.contract import DERIVED, FOREVER, NEVER, PARTITION, SEQUENCE, TIME
from penstock.operators.job_windows import JOB
from penstock.operators.watermark import classify_events
from penstock.query.physical import ScanPlan
from penstock.query.steps import Edge, EdgeSource
from penstock.state.ipc import from_stream

#: how many dead letters and late events of a chunk are kept word for word; all are counted
MOST_KEPT_ROWS = 1_000
#: how many events jobs select from at a time: enough that the work per job and batch does not count
SELECTION_ROWS = 200_000
#: errors of logs that no longer have what an epoch was planned to read
_GONE = frozenset({"LOG_SPAN_GONE", "LOG_TRUNCATED", "LOG_DAMAGED"})
#: columns of dead letters, late events and skipped spans; `why` is `dead`, `late` or `leaped`
SIDE_OUTPUT_SCHEMA = {
    "stream": pl.String,
    "why": pl.String,
    "partition": pl.String,
    "offset": pl.Int64,
    "reason": pl.String,
    "raw": pl.String,
}


@dataclass
class _Scan:
    """A scan task: its counts so far, and the rows that it will send."""

    task: EpochTask
    failures: JobFailures
    events: int = 0
    bytes: int = 0
    late: int = 0
    dead_letters: int = 0
    highest: dict[str, dict[str, int]] = field(default_factory=dict)
    #: the event times of the oldest and the newest event that is not late
    oldest: int | None = None
    newest: int | None = None
    side_output: list[pl.DataFrame] = field(default_factory=list)
    #: prepared rows, by edge
    frames: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    #: events from which jobs of template groups select theirs, by source
    unselected: dict[EdgeSource, list[pl.DataFrame]] = field(default_factory=dict)
    job_rows: JobRows = field(default_factory=JobRows)

    def report(self, seconds: float, cpu_seconds: float) -> ScanReport:
        return ScanReport(
            seconds,
            cpu_seconds,
            current_executor().executor,
            measure_memory(),
            self.failures.job_seconds(),
            self.failures.job_bytes(),
            self.events,
            self.bytes,
            self.late,
            self.dead_letters,
            self.oldest,
            self.newest,
        )


def run_scan(
    task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True
) -> Iterator[tuple[int, bytes]]:
    """Scan `spans`, pairs of (stream, span). The `first` task also reads what jobs emitted in the epoch before."""
    started, cpu_started = time.perf_counter(), time.thread_time()
    scan = _Scan(task, JobFailures.of(task.job_memory))
    for job, rows in task.previous.items() if first else ():
        _add_previous(scan, job, from_stream(rows))
    for stream, span in spans:
        _scan_span(scan, task.plan.scans[stream], span)
    for source in list(scan.unselected):
        _select(scan, source)
    yield from ((0, data) for data in scan.job_rows.messages(task, scan.failures))
    for edge in task.plan.edges:
        if frames := scan.frames.pop(edge.id, []):
            yield from _send(scan, edge, frames)
    yield from ((0, data) for data in scan.failures.messages())
    for slice_ in range(task.slices):
        yield slice_, Times(scan.highest).to_bytes()
    yield 0, scan.report(time.perf_counter() - started, time.thread_time() - cpu_started).to_bytes()
    if scan.side_output:
        yield 0, SideOutput(pl.concat(scan.side_output)).to_bytes()


def _scan_span(scan: _Scan, scan_plan: ScanPlan, span: Span) -> None:
    stream = scan_plan.stream
    before = scan.task.streams[stream.name]
    partition = before.partitions[span.partition]
    highest = NEVER if partition.highest is None else partition.highest
    floor = NEVER if before.late_before is None else before.late_before
    for chunk in _read(scan.task, scan_plan, span):
        frame = _decode(scan, scan_plan, chunk)
        scan.bytes += len(chunk.data)
        if not frame.height:
            continue
        frame = frame.with_columns(pl.lit(partition.ordinal, pl.UInt32).alias(PARTITION))
        frame, late, highest = _separate_late(scan, scan_plan, chunk, frame, highest, floor)
        scan.events += frame.height
        where = f"stream {stream.name}, partition {span.partition}, offsets {span.start} to {span.end}"
        _apply_first_steps(scan, EdgeSource("scan", stream.name), frame, where)
        if late is not None:
            _apply_first_steps(scan, EdgeSource("late", stream.name), late, where)
    if highest > NEVER:
        scan.highest.setdefault(stream.name, {})[span.partition] = highest


def _read(task: EpochTask, scan_plan: ScanPlan, span: Span) -> Iterator[Chunk]:
    """Read a span. Where the log no longer has it, the error says how to continue without."""
    try:
        yield from scan_plan.stream.log.read(span)
    except ExternalError as error:
        if error.condition not in _GONE:
            raise
        state, stream = Path(task.location.runs).parent, scan_plan.stream.name
        command = f"penstock recover skip-span {state} --stream {stream} --partition {span.partition}"
        advice = f"To continue without what it had, stop the engine, run `{command}`, and start again."
        raise ExternalError(
            error.condition,
            error.primary,
            detail=error.detail,
            where=error.where,
            hint=f"{error.hint or ''} {advice}".strip(),
        ) from error


def _apply_first_steps(scan: _Scan, source: EdgeSource, frame: pl.DataFrame, where: str) -> None:
    task = scan.task
    for edge in task.plan.edges_from(source):
        rows = prepare_rows(task, edge, frame, where, scan.failures)
        if rows is not None:
            scan.frames.setdefault(edge.id, []).append(rows)
            if edge.target.output is not None:
                _add_for_readers(scan, edge.target.output, rows, where)
    if task.plan.jobs is not None and source in task.plan.jobs.selections:
        waiting = scan.unselected.setdefault(source, [])
        waiting.append(frame)
        if sum(frame.height for frame in waiting) >= SELECTION_ROWS:
            _select(scan, source)


def _add_previous(scan: _Scan, job: str, rows: pl.DataFrame) -> None:
    """Add what a job emitted in the epoch before; its time is the earliest that its readers can take in."""
    for edge in scan.task.plan.edges_from(EdgeSource("previous", job)):
        stage = scan.task.plan.stage_of(edge.target)
        marks = [scan.task.streams[name].late_before for name in (() if stage is None else stage.streams)]
        now = min((NEVER if mark is None else mark for mark in marks), default=NEVER)
        timed = rows.with_columns(
            pl.lit(now, pl.Int64).alias(TIME),
            pl.lit(DERIVED, pl.UInt32).alias(PARTITION),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(SEQUENCE),
        )
        where = f"what {job} emitted in the epoch before"
        prepared = prepare_rows(scan.task, edge, timed, where, scan.failures)
        if prepared is not None:
            scan.frames.setdefault(edge.id, []).append(prepared)


def _select(scan: _Scan, source: EdgeSource) -> None:
    """Have jobs of template groups select theirs from the events of a source."""
    frame = pl.concat(scan.unselected.pop(source))
    if not frame.height:  # all events were late, or could not be decoded
        return
    edges = {
        edge.target.name: edge for edge in scan.task.plan.edges_from(EdgeSource("selection", source.name))
    }
    for group, rows in select_job_events(scan.task, source, frame, scan.failures):
        if group.target:
            scan.frames.setdefault(edges[group.target].id, []).append(rows)
            continue
        for member, results in apply_job_steps(scan.task, "", rows, scan.failures):
            scan.job_rows.add(results if member is None else rank_rows(scan.task, member.output, results))
            if member is not None:
                where = f"the results of {member.output}"
                _add_for_readers(scan, member.output, results.drop(JOB), where)


def _add_for_readers(scan: _Scan, output: str, rows: pl.DataFrame, where: str) -> None:
    """Add an output's rows for the jobs that read it."""
    for edge, prepared in route_to_readers(scan.task, output, rows, where, scan.failures):
        scan.frames.setdefault(edge.id, []).append(prepared)
        if edge.target.output is not None:
            _add_for_readers(scan, edge.target.output, prepared, where)


def _decode(scan: _Scan, scan_plan: ScanPlan, chunk: Chunk) -> pl.DataFrame:
    """The chunk's events with their event time and position. Dead letters go to the side output."""
    if chunk.damage is not None:
        scan.dead_letters += 1
        scan.side_output.append(_damage_row(scan_plan, chunk))
    if not chunk.data:
        return pl.DataFrame()
    decoded = scan_plan.stream.decoder.decode(chunk, scan_plan.columns)
    frame = decoded.good
    instant = pl.lit(0, pl.Int64).alias(TIME)
    if scan_plan.stream.time is not None:
        instant = pl.col(scan_plan.stream.time).dt.cast_time_unit("us").to_physical().alias(TIME)
    sequence: pl.Expr | pl.Series = (pl.col(ROW).cast(pl.Int64) + chunk.start).alias(SEQUENCE)
    if chunk.offsets is not None:
        sequence = pl.Series(SEQUENCE, chunk.offsets[frame[ROW].to_numpy()], dtype=pl.Int64)
    frame = frame.with_columns(instant, sequence)
    if frame[TIME].null_count():
        timeless = frame.filter(pl.col(TIME).is_null())
        reason = f"no event time in {scan_plan.stream.time}"
        scan.dead_letters += timeless.height
        scan.side_output.append(_side_rows(scan_plan, chunk, timeless.head(MOST_KEPT_ROWS), "dead", reason))
        frame = frame.filter(pl.col(TIME).is_not_null())
    if decoded.bad.height:
        scan.dead_letters += decoded.bad.height
        first = decoded.bad.head(MOST_KEPT_ROWS)
        rows = _side_rows(scan_plan, chunk, first.select(ROW), "dead", "")
        scan.side_output.append(rows.with_columns(first["reason"], first["raw"]))
    return frame


def _separate_late(
    scan: _Scan, scan_plan: ScanPlan, chunk: Chunk, frame: pl.DataFrame, highest: int, floor: int
) -> tuple[pl.DataFrame, pl.DataFrame | None, int]:
    """The events that are not late, those that are, and the highest event time so far in the partition.

    A future event is not believed and comes with the late ones: a wrong clock must not close every window. The time of
    a late event is the newest time before it.
    """
    stream = scan_plan.stream
    now = scan.task.clocks.get(stream.name, scan.task.admitted_at)
    bound = FOREVER if stream.ahead is None or now is None else now + stream.ahead
    times = frame[TIME].to_numpy()
    oldest, newest = int(times.min()), int(times.max())
    late = None
    if newest > bound or oldest < max(max(highest, newest) - stream.lateness, floor):
        found = classify_events(times, highest, floor, bound, stream.lateness)
        is_late = found.future | found.late
        if is_late.any():
            rows = frame.filter(pl.Series(is_late)).with_columns(
                pl.Series(TIME, found.newest_before[is_late])
            )
            scan.late += rows.height
            # the reasons are in files of state directories: they stay as they are
            for mask, reason in ((found.late & ~found.future, "late"), (found.future, "dated too far ahead")):
                if mask.any():
                    kept = frame.filter(pl.Series(mask)).head(MOST_KEPT_ROWS)
                    scan.side_output.append(_side_rows(scan_plan, chunk, kept, "late", reason))
            # before the stream's first believed event there is no time at which it could be noticed
            late = rows.filter(pl.col(TIME) > NEVER)
            frame = frame.filter(pl.Series(~is_late))
            if not frame.height:
                return frame, late, found.highest
            oldest, newest = int(frame[TIME].min()), int(frame[TIME].max())  # type: ignore[arg-type]
    if stream.time is None:
        return frame, late, max(highest, newest)
    scan.oldest = oldest if scan.oldest is None else min(scan.oldest, oldest)
    scan.newest = newest if scan.newest is None else max(scan.newest, newest)
    return frame, late, max(highest, newest)


def _side_rows(scan_plan: ScanPlan, chunk: Chunk, rows: pl.DataFrame, why: str, reason: str) -> pl.DataFrame:
    """Rows for the side output, with their partition, exact offset and raw text."""
    lines = chunk.data.split(b"\n")
    numbers = rows[ROW].to_list()
    if chunk.offsets is not None:
        offsets = [int(chunk.offsets[number]) for number in numbers]
    elif scan_plan.stream.log.unit == "records":
        offsets = [chunk.start + number for number in numbers]
    else:
        ends = np.cumsum([len(line) + 1 for line in lines])
        offsets = [chunk.start + (int(ends[number - 1]) if number else 0) for number in numbers]
    return pl.DataFrame(
        {
            "stream": [scan_plan.stream.name] * len(numbers),
            "why": [why] * len(numbers),
            "partition": [chunk.partition] * len(numbers),
            "offset": offsets,
            "reason": [reason] * len(numbers),
            "raw": [lines[number][:4096].decode("utf-8", "replace") for number in numbers],
        },
        schema=SIDE_OUTPUT_SCHEMA,
    )


def _damage_row(scan_plan: ScanPlan, chunk: Chunk) -> pl.DataFrame:
    row = [scan_plan.stream.name, "dead", chunk.partition, chunk.start + len(chunk.data), chunk.damage, ""]
    return pl.DataFrame([row], schema=SIDE_OUTPUT_SCHEMA, orient="row")


def _send(scan: _Scan, edge: Edge, frames: list[pl.DataFrame]) -> Iterator[tuple[int, bytes]]:
    task, rows = scan.task, pl.concat(frames) if len(frames) > 1 else frames[0]
    operator = task.operator_of(edge)
    if operator is not None and edge.reduce and len(frames) > 1:
        rows = operator.combine(rows, edge.port)
    yield from route_rows(task, edge, rows, scan.failures)
