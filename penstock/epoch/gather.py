"""The gather: one answer from what all tasks of an epoch sent, and the manifest that goes with it. Pure.

Receives the messages for the driver; hands the rows of every output in a fixed order, the next manifest, the
rows put aside, and what the tasks said of themselves.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from penstock.epoch.emission_limit import Due, dues
from penstock.epoch.job_failures import JobsFailed
from penstock.epoch.message import (
    Aside,
    EpochError,
    JobError,
    Message,
    Rows,
    ScanReport,
    SliceReport,
    TaskReport,
    Times,
    open_message,
)
from penstock.epoch.task import EpochTask
from penstock.errors import PenstockError
from penstock.operators.contract import NEVER, ORDER, TIME
from penstock.operators.job_windows import JOB
from penstock.query.edges import JOBS
from penstock.query.physical import OutputPlan
from penstock.query.steps import run_steps
from penstock.state.bucket_map import BucketMaps
from penstock.state.continuity import add_identities, drop_states_of_removed_jobs
from penstock.state.ipc import from_stream, stream_bytes
from penstock.state.manifest import Manifest

Counted = Literal["events", "bytes", "late", "bad"]
COUNTED: tuple[Counted, ...] = ("events", "bytes", "late", "bad")


@dataclass(frozen=True)
class Gathered:
    """What an epoch came to."""

    rows: dict[str, pl.DataFrame]
    #: how many of an output's rows, at their end, are its last answer, where it gives one for every instant
    last: dict[str, int]
    manifest: Manifest
    aside: pl.DataFrame | None
    reports: Sequence[TaskReport]
    maps: BucketMaps
    #: what each stream's time has yet to decide
    due: Mapping[str, Due]

    @property
    def scans(self) -> list[ScanReport]:
        """What the scan tasks did."""
        return [report for report in self.reports if isinstance(report, ScanReport)]

    @property
    def slices(self) -> list[SliceReport]:
        """What the slice tasks did."""
        return [report for report in self.reports if isinstance(report, SliceReport)]

    @property
    def oldest(self) -> int | None:
        """The event time of the oldest event that was not late."""
        return min((one.oldest for one in self.scans if one.oldest is not None), default=None)

    @property
    def newest(self) -> int | None:
        """The event time of the newest event that was not late."""
        return max((one.newest for one in self.scans if one.newest is not None), default=None)

    def total(self, name: Counted) -> int:
        """A count of the scan tasks, over all of them."""
        return total(self.scans, name)

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of work per stage, summed over its tasks."""
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
        """For how long jobs kept the epoch with what is their own: in each stage, as long as in its longest task."""
        stages: dict[tuple[str, int], float] = {}
        for report in self.reports:
            for job, seconds in report.job_seconds.items():
                stages[report.stage, job] = max(seconds, stages.get((report.stage, job), 0.0))
        sums: dict[int, float] = {}
        for (_, job), seconds in stages.items():
            sums[job] = sums.get(job, 0.0) + seconds
        return sums


def total(scans: Iterable[ScanReport], name: Counted) -> int:
    """A count of scan tasks, over all of them."""
    return sum(getattr(one, name) for one in scans)


def gathered(task: EpochTask, before: Manifest, encoded: list[bytes]) -> Gathered:
    """Put an epoch's messages together; raises the error that a task sent, if one did."""
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
    answers = {name: answer for name, answer in before.last_results.items() if name in task.plan.outputs}
    told, in_order = _told(task, messages)
    for name, frames in told.items():
        output = task.plan.outputs[name]
        try:
            end = _told_before(task, before, name) if before.gap else None
            made, answer = answered(output, frames, answers.get(name), in_order=name in in_order, after=end)
            if made is not None and name in task.plan.whole_result_outputs:
                last[name] = _count_rows_of_last_instant(made)
        except PenstockError as error:
            if output.job is None:
                raise
            failures[output.job] = error
            continue
        if answer is not None:
            answers[name] = answer
        if made is not None:
            rows[name] = made[[column for column in output.schema if column in made.columns]]
    if failures:
        raise JobsFailed(failures)
    aside = [message.frame for message in messages if isinstance(message, Aside)]
    before = drop_states_of_removed_jobs(before, task.plan.identities)
    seen = _seen(messages)
    manifest = before.advance(
        task.epoch,
        [change for report in slices for change in report.changes],
        streams=task.times_after(seen),
        last_results=answers,
        counters={name: before.counters.get(name, 0) + total(scans, name) for name in COUNTED},
    )
    manifest = add_identities(manifest, task.plan.identities)
    due = dues((one for report in slices for one in report.awaited), manifest.streams, task.sure_after(seen))
    return Gathered(rows, last, manifest, pl.concat(aside) if aside else None, reports, task.maps, due)


def _told_before(task: EpochTask, before: Manifest, output: str) -> int | None:
    """Before which time an output has told what the watermark decides, though the state does not know; None where
    events pass straight through it."""
    sources = [task.plan.stage_of(edge.source) for edge in task.plan.edges if edge.target.output == output]
    subs = [sub for sub in sources if sub is not None]
    if len(subs) < len(sources):
        return None
    streams = {stream for sub in subs for stream in sub.streams} or before.gap.keys()
    return min((before.gap.get(stream, NEVER) for stream in streams), default=None)


def _told(task: EpochTask, messages: list[Message]) -> tuple[dict[str, list[pl.DataFrame]], set[str]]:
    """The frames sent to each output, in the order of outputs, and those whose rows are in their order already: jobs
    that are worked on together."""
    in_order: set[str] = set()
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in task.plan.outputs}
    alike: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for message in messages:
        if not isinstance(message, Rows):
            continue
        if message.target == JOBS:
            alike.setdefault(_columns(message.frame), []).append(message.frame)
        else:
            found[message.target.name].append(message.frame)
    by_job = {output.job: name for name, output in task.plan.outputs.items()}
    for frames in alike.values():
        for job, rows in _apart(pl.concat(frames)):
            if job in by_job:
                found[by_job[job]].append(rows)
                in_order.add(by_job[job])
    some = {n: frames for n, frames in found.items() if frames or task.plan.outputs[n].top is not None}
    return some, in_order


def _columns(frame: pl.DataFrame) -> tuple[str, ...]:
    return tuple(f"{name} {dtype}" for name, dtype in frame.schema.items())


def _apart(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of each job, in their fixed order: put in order together, which is as much work as for one of them."""
    ordered = rows.sort(JOB, *(name for name in _order(rows) if name != JOB))
    jobs = ordered.drop_in_place(JOB).to_numpy()
    borders = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(jobs)]
    for start, end in itertools.pairwise(borders):
        yield int(jobs[start]), ordered.slice(start, end - start)


def _order(rows: pl.DataFrame) -> list[str]:
    """The columns by which an output's rows are put in order."""
    plain = [name for name, dtype in rows.schema.items() if not dtype.is_nested()]
    return [*(name for name in ORDER if name in plain), *(name for name in plain if name not in ORDER)]


def _seen(messages: list[Message]) -> dict[str, dict[str, int]]:
    """The highest event time of each partition, as the scan tasks told it."""
    seen: dict[str, dict[str, int]] = {}
    for message in messages:
        if isinstance(message, Times):
            for stream, partitions in message.seen.items():
                seen.setdefault(stream, {}).update(partitions)
    return seen


def answered(
    output: OutputPlan,
    frames: list[pl.DataFrame],
    last: str | None,
    *,
    in_order: bool = False,
    after: int | None = None,
) -> tuple[pl.DataFrame | None, str | None]:
    """An output's rows of the epoch, in a fixed order and with what they carry, and its last answer (Arrow, base64).
    `in_order`: each frame's rows are in that order already. Of rows before the time `after` it is known that they were
    told, or are lost."""
    answer = None
    if output.top is not None and not (frames or last):
        return None, None
    if output.top is not None:
        told = None if last is None else from_stream(base64.b64decode(last))
        rows, told = output.top.gather(frames, told)
        if told is not None and output.top.changes_only:
            answer = base64.b64encode(stream_bytes(told)).decode()
        order = [TIME, "rank"]
    elif in_order and len(frames) == 1 and after is None:
        return frames[0], None
    else:
        rows = pl.concat([_alike(output, frame) for frame in frames], how="diagonal") if frames else None
        order = [] if rows is None else _order(rows)
    if rows is not None and after is not None and TIME in rows.columns:
        rows = rows.filter(pl.col(TIME) >= after)
    if rows is None or not rows.height:
        return None, answer
    return run_steps(output.after, rows.sort(order), f"the rows of {output.name}"), answer


def _alike(output: OutputPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the output's columns only, in its order: the parts of a union come from unlike sources."""
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
