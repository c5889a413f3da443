"""The scan stage: a task reads its spans' raw bytes, decodes them once, runs the first steps of every job and
reduces what can be reduced before it travels.

Receives spans (never data) from the driver; hands addressed messages: rows for the slices of each edge, the
highest event time of each partition to every slice, and to the driver what was put aside and counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.decode.contract import ROW
from penstock.epoch.executor_identity import memory, whereabouts
from penstock.epoch.job_failures import Failures
from penstock.epoch.message import Aside, ScanReport, Times
from penstock.epoch.task import EpochTask, addressed
from penstock.epoch.template_groups import Told, best, chosen, prepared, read_by, results
from penstock.logs.contract import Chunk, Span
from penstock.operators.contract import DERIVED, FOREVER, NEVER, PARTITION, SEQUENCE, TIME
from penstock.operators.job_windows import JOB
from penstock.operators.lateness import classify_events
from penstock.query.edges import Edge, EdgeSource
from penstock.query.physical import ScanPlan
from penstock.state.ipc import from_stream

#: how many rows put aside per chunk of input are kept word for word; all are counted
KEPT_ASIDE = 1_000
#: how many events jobs choose among at a time: enough that what is done once a job and batch does not count
MOST_CHOSEN = 200_000


@dataclass
class _Sums:
    """What a scan task counts and collects."""

    events: int = 0
    bytes: int = 0
    late: int = 0
    bad: int = 0
    highest: dict[str, dict[str, int]] = field(default_factory=dict)
    #: the event times of the oldest and the newest event that is not late
    oldest: int | None = None
    newest: int | None = None
    aside: list[pl.DataFrame] = field(default_factory=list)
    #: prepared rows, by the edge they go by
    frames: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    #: events of which jobs choose theirs, by source
    selections: dict[EdgeSource, list[pl.DataFrame]] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    failures: Failures = field(default_factory=Failures)

    def report(self, seconds: float, cpu_seconds: float) -> ScanReport:
        return ScanReport(
            seconds,
            cpu_seconds,
            whereabouts().executor,
            memory(),
            self.failures.kept(),
            self.events,
            self.bytes,
            self.late,
            self.bad,
            self.oldest,
            self.newest,
        )


def scan(
    task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True
) -> Iterator[tuple[int, bytes]]:
    """One scan task's work: `spans` are (stream, span). The `first` task also takes what jobs told before."""
    began, cpu_began, sums = time.perf_counter(), time.thread_time(), _Sums()
    for job, rows in task.previous.items() if first else ():
        _told_before(task, job, from_stream(rows), sums)
    for stream, span in spans:
        _scan_span(task, task.plan.scans[stream], span, sums)
    for source in list(sums.selections):
        _choose(task, source, sums)
    yield from ((0, data) for data in sums.told.messages())
    yield from ((0, data) for data in sums.failures.messages())
    for edge in task.plan.edges:
        if frames := sums.frames.pop(edge.id, []):
            yield from _sent(task, edge, frames)
    for slice_ in range(task.slices):
        yield slice_, Times(sums.highest).to_bytes()
    yield 0, sums.report(time.perf_counter() - began, time.thread_time() - cpu_began).to_bytes()
    if sums.aside:
        yield 0, Aside(pl.concat(sums.aside)).to_bytes()


def _scan_span(task: EpochTask, scan_plan: ScanPlan, span: Span, sums: _Sums) -> None:
    stream = scan_plan.stream
    known = task.streams[stream.name]
    partition = known.partitions[span.partition]
    highest = NEVER if partition.highest is None else partition.highest
    floor = NEVER if known.late_before is None else known.late_before
    for chunk in stream.log.read(span):
        frame = _decoded(scan_plan, chunk, sums)
        sums.bytes += len(chunk.data)
        if not frame.height:
            continue
        frame = frame.with_columns(pl.lit(partition.ordinal, pl.UInt32).alias(PARTITION))
        bound = _latest_believed(task, scan_plan)
        frame, late, highest = _on_time(frame, highest, floor, bound, scan_plan, chunk, sums)
        sums.events += frame.height
        where = f"stream {stream.name}, partition {span.partition}, offsets {span.start} to {span.end}"
        _first_steps(task, EdgeSource("scan", stream.name), frame, where, sums)
        if late is not None:
            _first_steps(task, EdgeSource("late", stream.name), late, where, sums)
    if highest > NEVER:
        sums.highest.setdefault(stream.name, {})[span.partition] = highest


def _first_steps(task: EpochTask, source: EdgeSource, frame: pl.DataFrame, where: str, sums: _Sums) -> None:
    for edge in task.plan.edges_from(source):
        rows = prepared(task, edge, frame, where, sums.failures)
        if rows is not None:
            sums.frames.setdefault(edge.id, []).append(rows)
            if edge.target.output is not None:
                _tell_readers(task, edge.target.output, rows, where, sums)
    if task.plan.jobs is not None and source in task.plan.jobs.selections:
        waiting = sums.selections.setdefault(source, [])
        waiting.append(frame)
        if sum(frame.height for frame in waiting) >= MOST_CHOSEN:
            _choose(task, source, sums)


def _told_before(task: EpochTask, job: str, rows: pl.DataFrame, sums: _Sums) -> None:
    """What a job told in the epoch before; it happens as early as those who read it can take it in."""
    for edge in task.plan.edges_from(EdgeSource("previous", job)):
        sub = task.plan.stage_of(edge.target)
        marks = [task.streams[name].late_before for name in (() if sub is None else sub.streams)]
        now = min((NEVER if mark is None else mark for mark in marks), default=NEVER)
        placed = rows.with_columns(
            pl.lit(now, pl.Int64).alias(TIME),
            pl.lit(DERIVED, pl.UInt32).alias(PARTITION),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(SEQUENCE),
        )
        where = f"what {job} told in the epoch before"
        made = prepared(task, edge, placed, where, sums.failures)
        if made is not None:
            sums.frames.setdefault(edge.id, []).append(made)


def _choose(task: EpochTask, source: EdgeSource, sums: _Sums) -> None:
    """Have jobs choose among the events that wait for it."""
    frame = pl.concat(sums.selections.pop(source))
    if not frame.height:  # all that came was late, or could not be read
        return
    edges = task.plan.edges_from(EdgeSource("selection", source.name))
    entries = {edge.target.name: edge for edge in edges}
    for group, rows in chosen(task, source, frame, sums.failures):
        if group.target:
            sums.frames.setdefault(entries[group.target].id, []).append(rows)
            continue
        for member, made in results(task, "", rows, sums.failures):
            sums.told.add(made if member is None else best(task, member.output, made))
            if member is not None:
                _tell_readers(task, member.output, made.drop(JOB), f"the results of {member.output}", sums)


def _tell_readers(task: EpochTask, output: str, rows: pl.DataFrame, where: str, sums: _Sums) -> None:
    for edge, made in read_by(task, output, rows, where, sums.failures):
        sums.frames.setdefault(edge.id, []).append(made)
        if edge.target.output is not None:
            _tell_readers(task, edge.target.output, made, where, sums)


def _latest_believed(task: EpochTask, scan_plan: ScanPlan) -> int:
    """The latest event time that is taken for true: a clock gone wrong must not close every window."""
    ahead = scan_plan.stream.ahead
    return FOREVER if ahead is None or task.admitted_at is None else task.admitted_at + ahead


def _decoded(scan_plan: ScanPlan, chunk: Chunk, sums: _Sums) -> pl.DataFrame:
    """The chunk's events with their event time and place; what does not fit is put aside."""
    if chunk.damage is not None:
        sums.bad += 1
        sums.aside.append(_damage(scan_plan, chunk))
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
        sums.bad += timeless.height
        sums.aside.append(_aside(scan_plan, chunk, timeless.head(KEPT_ASIDE), "dead", reason))
        frame = frame.filter(pl.col(TIME).is_not_null())
    if decoded.bad.height:
        sums.bad += decoded.bad.height
        kept = decoded.bad.head(KEPT_ASIDE)
        sums.aside.append(
            _aside(scan_plan, chunk, kept.select(ROW), "dead", "").with_columns(kept["reason"], kept["raw"])
        )
    return frame


def _on_time(
    frame: pl.DataFrame,
    highest: int,
    floor: int,
    bound: int,
    scan_plan: ScanPlan,
    chunk: Chunk,
    sums: _Sums,
) -> tuple[pl.DataFrame, pl.DataFrame | None, int]:
    """The events that are not late, those that are, and the highest event time seen so far in the partition.

    An event beyond `bound` is not believed and put with the late ones. A late event happens when it is
    noticed: at the newest time before it.
    """
    times, lateness = frame[TIME].to_numpy(), scan_plan.stream.lateness
    least, most = int(times.min()), int(times.max())
    late = None
    if most > bound or least < max(max(highest, most) - lateness, floor):
        found = classify_events(times, highest, floor, bound, lateness)
        ahead, behind, noticed = found.future, found.late, found.newest_before
        aside = ahead | behind
        if aside.any():
            rows = frame.filter(pl.Series(aside)).with_columns(pl.Series(TIME, noticed[aside]))
            sums.late += rows.height
            for mask, reason in ((behind & ~ahead, "late"), (ahead, "dated too far ahead")):
                if mask.any():
                    kept = frame.filter(pl.Series(mask)).head(KEPT_ASIDE)
                    sums.aside.append(_aside(scan_plan, chunk, kept, "late", reason))
            # before the stream's first believed event there is no time at which it could be noticed
            late = rows.filter(pl.col(TIME) > NEVER)
            frame = frame.filter(pl.Series(~aside))
            if not frame.height:
                return frame, late, found.highest
            least, most = int(frame[TIME].min()), int(frame[TIME].max())  # type: ignore[arg-type]
    if scan_plan.stream.time is None:
        return frame, late, max(highest, most)
    sums.oldest = least if sums.oldest is None else min(sums.oldest, least)
    sums.newest = most if sums.newest is None else max(sums.newest, most)
    return frame, late, max(highest, most)


def _aside(scan_plan: ScanPlan, chunk: Chunk, rows: pl.DataFrame, why: str, reason: str) -> pl.DataFrame:
    """Rows put aside, with their partition, exact offset and raw text."""
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
        schema=ASIDE_SCHEMA,
    )


def _damage(scan_plan: ScanPlan, chunk: Chunk) -> pl.DataFrame:
    row = [scan_plan.stream.name, "dead", chunk.partition, chunk.start + len(chunk.data), chunk.damage, ""]
    return pl.DataFrame([row], schema=ASIDE_SCHEMA, orient="row")


ASIDE_SCHEMA = {
    "stream": pl.String,
    "why": pl.String,
    "partition": pl.String,
    "offset": pl.Int64,
    "reason": pl.String,
    "raw": pl.String,
}


def _sent(task: EpochTask, edge: Edge, frames: list[pl.DataFrame]) -> Iterator[tuple[int, bytes]]:
    rows = pl.concat(frames) if len(frames) > 1 else frames[0]
    operator = task.operator_of(edge)
    if operator is not None and edge.reduce and len(frames) > 1:
        rows = operator.combine(rows, edge.port)
    yield from addressed(task, edge, rows)
