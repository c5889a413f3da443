"""An epoch after its stages: what the runner delivers and commits, and the report that follows from it.

A *skipped partition* is an idle one that the others do not wait for. When it comes back, what it has from before may be
late. The spans become rows of the side output; they are in the log as before, so whoever wants them reads them there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import polars as pl

from penstock.epoch.checkpoint import Checkpoints
from penstock.epoch.emission import Emission
from penstock.epoch.gather import EpochResult
from penstock.epoch.migration import MigrationResult
from penstock.epoch.report import EpochReport
from penstock.epoch.scan import SIDE_OUTPUT_SCHEMA
from penstock.epoch.task_work import list_tasks, sum_stage_work
from penstock.query.physical import Plan
from penstock.state.epoch_record import EpochRecord, Offset

#: the name in the state directory of the rows about skipped partitions
LEAPED = "leaped"


class SkippedSpan(NamedTuple):
    """A partition that is skipped from an offset on; `end` is how far it was read when it came back."""

    stream: str
    partition: str
    start: int
    end: int | None = None


def newly_skipped(start: Offset, end: Offset) -> list[SkippedSpan]:
    """The idle partitions that an epoch is the first to skip."""
    new = sorted(_skipped_partitions(end) - _skipped_partitions(start))
    return [SkippedSpan(stream, partition, end.at[stream].get(partition, 0)) for stream, partition in new]


def returned_spans(start: Offset, end: Offset) -> list[SkippedSpan]:
    """The spans that an epoch reads of partitions that had been skipped."""
    spans = []
    for stream, partition in sorted(_skipped_partitions(start)):
        before, after = (offset.at.get(stream, {}).get(partition, 0) for offset in (start, end))
        if after > before:
            spans.append(SkippedSpan(stream, partition, before, after))
    return spans


def late_starts(end: Offset) -> list[SkippedSpan]:
    """The spans before the first offsets of new partitions: nobody reads them, only a copy that is away has them."""
    return [
        SkippedSpan(stream, partition, 0, end.starts[stream][partition])
        for stream, partitions in sorted(end.started_late.items())
        for partition in partitions
    ]


def _skipped_partitions(offset: Offset) -> set[tuple[str, str]]:
    """Idle partitions of streams that have others which continue; where all are idle none is skipped."""
    skipped = set()
    for stream, idle in offset.idle.items():
        active = offset.at.get(stream, {}).keys() - set(idle)
        if active - set(offset.finished.get(stream, ())):
            skipped |= {(stream, partition) for partition in idle}
    return skipped


def describe_skips(record: EpochRecord) -> pl.DataFrame | None:
    """The spans that an epoch skips, or reads after they were skipped, as rows of the side output; None if none."""
    start, end = record.start, record.end
    # the texts are in files of state directories: they stay as they are
    reasons = [(span, "silent: passed over") for span in newly_skipped(start, end)]
    reasons += [(span, f"came back, with what lies before {span.end}") for span in returned_spans(start, end)]
    reasons += [
        (span, f"begun at {span.end}: what lies before is left out, which a copy may have that is away")
        for span in late_starts(end)
    ]
    reasons += [
        (SkippedSpan(stream, span.partition, span.start), f"given up to {span.end}: the log no longer has it")
        for stream, span in record.skipped_spans
    ]
    rows = [(span.stream, LEAPED, span.partition, span.start, reason, "") for span, reason in reasons]
    return pl.DataFrame(rows, schema=SIDE_OUTPUT_SCHEMA, orient="row") if rows else None


@dataclass(frozen=True)
class Execution:
    """An epoch whose stages are executed."""

    record: EpochRecord
    plan: Plan
    result: EpochResult
    emission: Emission
    #: whether it was recorded before; and whether the result log is known to have had it
    replayed: bool
    already_delivered: bool
    needs_replay: bool
    #: the outputs that skip it
    skipping: frozenset[str]

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.record.end.epoch

    @property
    def delivery_skipped(self) -> bool:
        """Whether it was emitted before, and sinks receive nothing again."""
        return self.already_delivered and not self.emission.redelivered

    @cached_property
    def watermarks(self) -> Mapping[str, int | None]:
        """The watermark of each stream after it."""
        return {name: stream.watermark for name, stream in self.result.manifest.streams.items()}

    @property
    def watermark(self) -> int | None:
        """The least of the watermarks."""
        return min((mark for mark in self.watermarks.values() if mark is not None), default=None)

    def _units(self) -> dict[str, int]:
        """What it read of each stream, in the log's units."""
        units: dict[str, int] = {}
        for stream, span in self.record.spans:
            log = self.plan.scans[stream].stream.log if stream in self.plan.scans else None
            read = log.units(span.partition, span.start, span.end) if log else span.end - span.start
            units[stream] = units.get(stream, 0) + read
        return units

    def _job_bytes(self) -> dict[str, int]:
        """By how many bytes a worker grew in the own code of each job."""
        grown = self.result.job_bytes()
        jobs = {name: one.job for name, one in self.plan.outputs.items() if one.job is not None}
        for target, (number, *_) in self.plan.isolated.items():
            if target.output is not None:
                jobs[target.output] = number
        return {name: grown[number] for name, number in jobs.items() if number in grown}

    def report(
        self,
        repeated_rows: Mapping[str, int],
        checkpoints: Checkpoints,
        migration: MigrationResult | None,
        seconds: float,
    ) -> EpochReport:
        """The report of the epoch, once it is committed."""
        record, result = self.record, self.result
        is_durable = checkpoints.durable_epoch == self.epoch
        return EpochReport(
            epoch=self.epoch,
            events=result.count("events"),
            bytes=result.count("bytes"),
            late=result.count("late"),
            bad=result.count("dead_letters"),
            seconds=seconds,
            stage_seconds=result.stage_seconds(),
            units=self._units(),
            watermark=self.watermark,
            watermarks=self.watermarks,
            pending=result.pending,
            state_bytes=result.manifest.state_bytes(),
            rows={name: rows for name, rows in result.rows.items() if name not in self.skipping},
            replayed=self.replayed,
            already_delivered=self.already_delivered,
            delivery_skipped=self.delivery_skipped,
            redelivered=bool(self.emission.redelivered),
            repeated_rows=repeated_rows,
            withheld_rows=self.emission.withheld_rows,
            suspended=self.plan.suspended_outputs,
            job_bytes=self._job_bytes(),
            needs_replay=self.needs_replay,
            durable_epoch=checkpoints.durable_epoch,
            run_bytes=result.run_bytes(),
            checkpoint_bytes=checkpoints.copied_bytes if is_durable else 0,
            manifest_cpu_seconds=checkpoints.cpu_seconds,
            oldest=result.oldest,
            newest=result.newest,
            committed_at=time.time(),
            tasks=list_tasks(result.reports),
            work=sum_stage_work(result.slices, self.plan, result.maps, result.manifest.collections),
            maps=result.maps,
            migration=migration,
            skipped_partitions=len(newly_skipped(record.start, record.end))
            + len(late_starts(record.end))
            + len(record.skipped_spans),
        )
