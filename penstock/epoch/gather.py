"""Gathers an epoch's messages on the driver: the rows of every output in a fixed order, and the next manifest. Pure.

With more than `FAN_IN` tasks a tree of tasks merges messages first (`merge_messages`), so that the driver's share does
not grow with their number.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from penstock.epoch.job_failures import JobsFailed
from penstock.epoch.message import (
    Envelope,
    EpochError,
    JobError,
    Message,
    Rows,
    ScanReport,
    SideOutput,
    SliceReport,
    TaskReport,
    Times,
    encode_rows,
    open_message,
)
from penstock.epoch.rate_control import PendingEmissions, sum_pending
from penstock.epoch.task import EpochTask
from penstock.errors import PenstockError
from penstock.operators.contract import NEVER, ORDER, TIME
from penstock.operators.job_windows import JOB
from penstock.query.physical import OutputPlan, Plan
from penstock.query.steps import JOBS, EdgeTarget, run_steps
from penstock.state.bucket_map import BucketMaps
from penstock.state.continuity import add_identities, drop_states_of_removed_jobs
from penstock.state.ipc import from_stream, stream_bytes
from penstock.state.manifest import Manifest

#: what scan tasks count, and the names of the sums in the manifest
Counter = Literal["events", "bytes", "late", "dead_letters"]
COUNTERS: dict[Counter, str] = {"events": "events", "bytes": "bytes", "late": "late", "dead_letters": "bad"}
#: of how many tasks one task of the tree merges the messages
FAN_IN = 16


@dataclass(frozen=True)
class EpochResult:
    """The result of an epoch: rows, the next manifest, and what its tasks report."""

    rows: dict[str, pl.DataFrame]
    #: how many of an output's rows, at their end, are its latest result, where it has one for every instant
    last: dict[str, int]
    manifest: Manifest
    #: dead letters and late events
    side_output: pl.DataFrame | None
    reports: Sequence[TaskReport]
    maps: BucketMaps
    #: what each stream's watermark has yet to decide
    pending: Mapping[str, PendingEmissions]

    @property
    def scans(self) -> list[ScanReport]:
        """The reports of the scan tasks."""
        return [report for report in self.reports if isinstance(report, ScanReport)]

    @property
    def slices(self) -> list[SliceReport]:
        """The reports of the slice tasks."""
        return [report for report in self.reports if isinstance(report, SliceReport)]

    @property
    def oldest(self) -> int | None:
        """The event time of the oldest event that was not late."""
        return min((one.oldest for one in self.scans if one.oldest is not None), default=None)

    @property
    def newest(self) -> int | None:
        """The event time of the newest event that was not late."""
        return max((one.newest for one in self.scans if one.newest is not None), default=None)

    def count(self, name: Counter) -> int:
        """A counter, summed over the scan tasks."""
        return _sum_counter(self.scans, name)

    def stage_seconds(self) -> dict[str, float]:
        """Task seconds of each phase (`scan`, `slice 1`, ...)."""
        sums: dict[str, float] = {}
        for report in self.reports:
            sums[report.stage] = sums.get(report.stage, 0.0) + report.seconds
        return dict(sorted(sums.items()))

    def run_bytes(self) -> int:
        """The bytes of the runs that were written."""
        return sum(
            entry.bytes for one in self.slices for _, _, change in one.changes for entry in change.added
        )

    def job_seconds(self) -> dict[int, float]:
        """How much longer each job's own code made the epoch: in each phase, as long as in its slowest task."""
        slowest: dict[tuple[str, int], float] = {}
        for report in self.reports:
            for job, seconds in report.job_seconds.items():
                slowest[report.stage, job] = max(seconds, slowest.get((report.stage, job), 0.0))
        sums: dict[int, float] = {}
        for (_, job), seconds in slowest.items():
            sums[job] = sums.get(job, 0.0) + seconds
        return sums

    def job_bytes(self) -> dict[int, int]:
        """By how many bytes each job's own code made a process grow at most."""
        most: dict[int, int] = {}
        for report in self.reports:
            for job, size in report.job_bytes.items():
                most[job] = max(size, most.get(job, 0))
        return most


def _sum_counter(scans: Iterable[ScanReport], name: Counter) -> int:
    return sum(getattr(one, name) for one in scans)


def gather_epoch(task: EpochTask, before: Manifest, encoded: list[bytes]) -> EpochResult:
    """Gather an epoch's messages into its result. `before` is the manifest of the epoch before.

    On failure: raises the error that a task sent, or `JobsFailed` if jobs failed alone.
    """
    messages = [open_message(data) for data in encoded]
    for message in messages:
        if isinstance(message, EpochError):
            raise message.error
    failures = {message.job: message.error for message in messages if isinstance(message, JobError)}
    reports = [message for message in messages if isinstance(message, TaskReport)]
    scans = [report for report in reports if isinstance(report, ScanReport)]
    slices = [report for report in reports if isinstance(report, SliceReport)]
    rows: dict[str, pl.DataFrame] = {}
    last: dict[str, int] = {}
    ranked = {name for name, output in task.plan.outputs.items() if output.top is not None}
    last_results = {name: result for name, result in before.last_results.items() if name in ranked}
    frames_by_output, sorted_outputs = _frames_by_output(task, messages)
    for name, frames in frames_by_output.items():
        output = task.plan.outputs[name]
        try:
            since = _emitted_until(task, before, name) if before.gap else None
            finished, last_result = finish_output(
                output, frames, last_results.get(name), is_sorted=name in sorted_outputs, since=since
            )
            if finished is not None and name in task.plan.whole_result_outputs:
                last[name] = _count_rows_of_last_instant(finished)
        except PenstockError as error:
            jobs = task.jobs_of(EdgeTarget("output", name))
            if not jobs:
                raise
            failures |= dict.fromkeys(jobs, error)
            continue
        if last_result is not None:
            last_results[name] = last_result
        if finished is not None:
            rows[name] = finished[[column for column in output.schema if column in finished.columns]]
    if failures:
        raise JobsFailed(failures)
    side_output = [message.frame for message in messages if isinstance(message, SideOutput)]
    before = drop_states_of_removed_jobs(before, task.plan.identities)
    seen = _highest_times(message for message in messages if isinstance(message, Times))
    manifest = before.advance(
        task.epoch,
        [change for report in slices for change in report.changes],
        streams=task.times_after(seen),
        last_results=last_results,
        counters={
            key: before.counters.get(key, 0) + _sum_counter(scans, name) for name, key in COUNTERS.items()
        },
    )
    manifest = add_identities(manifest, task.plan.identities)
    pending = sum_pending(
        (one for report in slices for one in report.pending),
        manifest.streams,
        task.unlimited_times_after(seen),
    )
    return EpochResult(
        rows, last, manifest, pl.concat(side_output) if side_output else None, reports, task.maps, pending
    )


def _highest_times(messages: Iterable[Times]) -> dict[str, dict[str, int]]:
    """The highest event time of each partition, over these messages."""
    seen: dict[str, dict[str, int]] = {}
    for message in messages:
        for stream, partitions in message.seen.items():
            seen.setdefault(stream, {}).update(partitions)
    return seen


def _emitted_until(task: EpochTask, before: Manifest, output: str) -> int | None:
    """Until which time an output has emitted what the watermark decides although the state does not show it, because a
    recovery skipped epochs. None where events pass straight through to the output."""
    stages = [task.plan.stage_of(edge.source) for edge in task.plan.edges if edge.target.output == output]
    if any(stage is None for stage in stages):
        return None
    streams = {stream for stage in stages if stage is not None for stream in stage.streams}
    return min((before.gap.get(stream, NEVER) for stream in streams or before.gap.keys()), default=None)


def _frames_by_output(
    task: EpochTask, messages: list[Message]
) -> tuple[dict[str, list[pl.DataFrame]], set[str]]:
    """The frames sent to each output, in the order of outputs; and the outputs whose frames are sorted already: those
    of jobs of a template group."""
    sorted_outputs: set[str] = set()
    by_output: dict[str, list[pl.DataFrame]] = {name: [] for name in task.plan.outputs}
    of_jobs: list[pl.DataFrame] = []
    for message in messages:
        if not isinstance(message, Rows):
            continue
        if message.target == JOBS:
            of_jobs.append(message.frame)
        else:
            by_output[message.target.name].append(message.frame)
    names = {output.job: name for name, output in task.plan.outputs.items()}
    for frame in _concat_by_schema(of_jobs):
        for job, rows in _split_by_job(frame):
            if job in names:
                by_output[names[job]].append(rows)
                sorted_outputs.add(names[job])
    present = {n: frames for n, frames in by_output.items() if frames or task.plan.outputs[n].top is not None}
    return present, sorted_outputs


def _concat_by_schema(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames with the same columns and types, concatenated: jobs, and the parts of a union, may have different ones."""
    groups: dict[tuple[tuple[str, str], ...], list[pl.DataFrame]] = {}
    for frame in frames:
        schema = tuple((name, str(dtype)) for name, dtype in frame.schema.items())
        groups.setdefault(schema, []).append(frame)
    return [pl.concat(group) for group in groups.values()]


def _split_by_job(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of each job, sorted. Sorting all jobs at once costs as much as sorting one."""
    ordered = rows.sort(JOB, *(name for name in _sort_columns(rows) if name != JOB))
    jobs = ordered.drop_in_place(JOB).to_numpy()
    borders = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(jobs)]
    for start, end in itertools.pairwise(borders):
        yield int(jobs[start]), ordered.slice(start, end - start)


def _sort_columns(rows: pl.DataFrame) -> list[str]:
    """The columns by which an output's rows are sorted."""
    plain = [name for name, dtype in rows.schema.items() if not dtype.is_nested()]
    return [*(name for name in ORDER if name in plain), *(name for name in plain if name not in ORDER)]


def finish_output(
    output: OutputPlan,
    frames: list[pl.DataFrame],
    last: str | None,
    *,
    is_sorted: bool = False,
    since: int | None = None,
) -> tuple[pl.DataFrame | None, str | None]:
    """An output's rows of the epoch, sorted and after its last steps; and its latest result (Arrow, base64), given that
    of the epoch before.

    `is_sorted`: each frame is sorted already. `since`: rows of earlier times were emitted before, or are lost.
    """
    result = None
    if output.top is not None and not (frames or last):
        return None, None
    if output.top is not None:
        ranking = None if last is None else from_stream(base64.b64decode(last))
        rows, ranking = output.top.gather(frames, ranking)
        if ranking is not None and output.top.changes_only:
            result = base64.b64encode(stream_bytes(ranking)).decode()
        order = [TIME, "rank"]
    elif is_sorted and len(frames) == 1 and since is None:
        return frames[0], None
    else:
        rows = (
            pl.concat([_select_columns(output, frame) for frame in frames], how="diagonal")
            if frames
            else None
        )
        order = [] if rows is None else _sort_columns(rows)
    if rows is not None and since is not None and TIME in rows.columns:
        rows = rows.filter(pl.col(TIME) >= since)
    if rows is None or not rows.height:
        return None, result
    return run_steps(output.after, rows.sort(order), f"the rows of {output.name}"), result


def _select_columns(output: OutputPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the output's columns only, in its order: the parts of a union come from different stages."""
    return frame.select(*(name for name in ORDER if name in frame.columns), *output.schema)


def _count_rows_of_last_instant(rows: pl.DataFrame) -> int:
    """How many rows at the end are of the latest instant; all, if the rows do not show it."""
    if TIME not in rows.columns or rows.height < 2:
        return rows.height
    times = rows[TIME].to_numpy()
    earlier = np.flatnonzero(times != times[-1])
    if not len(earlier) or times[-1] != times.max():
        return rows.height
    return rows.height - int(earlier[-1]) - 1


# -- the tree --------------------------------------------------------------------------------------------


def merge_task_count(tasks: int) -> int:
    """How many tasks of the tree merge the messages of so many tasks."""
    return -(-tasks // FAN_IN)


def merge_messages(plan: Plan, incoming: Iterable[bytes]) -> Iterator[bytes]:
    """Merge the messages of several tasks: one frame an output, only its best rows for a top-k, and the times once."""
    frames: dict[EdgeTarget, list[pl.DataFrame]] = {}
    times: list[Times] = []
    for data in incoming:
        envelope = Envelope(data)
        target = envelope.target
        if envelope.kind != Times.kind and (target is None or target.output is None):
            yield data
            continue
        match envelope.open():
            case Times() as message:
                times.append(message)
            case Rows(to, frame):
                frames.setdefault(to, []).append(frame)
    yield Times(_highest_times(times)).to_bytes()
    for to, parts in frames.items():
        top = plan.outputs[to.name].top
        merged = [top.merge(parts)] if top is not None else _concat_by_schema(parts)
        for rows in merged:
            if rows is not None and rows.height:
                yield from encode_rows(to, rows)
