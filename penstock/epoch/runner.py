"""One epoch, as the driver executes it: record, scan and slices, gather, sinks, manifest.

Receives the spans that admission has fixed; hands the sinks their rows and the state directory its next manifest.

Invariants:
- The epoch record is written before anything runs, and an epoch that has one is repeated as recorded.
- Sinks are written before the manifest. Both are idempotent by epoch, so the epoch can be repeated from any point in
  between. With its manifest an epoch is over: the next start continues after the newest manifest.
- Where not every epoch's manifest is durable, the record of the next epoch says that the sinks have this one: it is
  written after they took it. So an epoch that is repeated, and is not the last recorded, is not delivered again.
- Records, manifests and sinks take nothing from an engine once one of a higher generation has taken over. The fence,
  looked at before each write, only tells such an engine early.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from penstock.catalogue.program import Program
from penstock.epoch.checkpoint_interval import Interval
from penstock.epoch.delivery import Outlet
from penstock.epoch.gather import Gathered, gathered
from penstock.epoch.job_failures import JobsFailed
from penstock.epoch.job_shares import JobShares
from penstock.epoch.kill_points import reached
from penstock.epoch.migration import Change, Moved, Moves
from penstock.epoch.migration_cost import Rules
from penstock.epoch.recovery_actions import Fates, answers_kept, offer
from penstock.epoch.rehearsal import a_little, rehearsal
from penstock.epoch.report import EpochReport
from penstock.epoch.skipped_partitions import as_aside, begun_late, leaps
from penstock.epoch.stages import Stages, dealt
from penstock.epoch.task import EpochTask, StatePlace
from penstock.epoch.task_work import tasks_of, work_of
from penstock.epoch.watermark import introduced
from penstock.errors import InternalError
from penstock.logs.contract import Span
from penstock.query.physical import Plan, ScanPlan
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps
from penstock.state.cache import HostCache
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset, Progress
from penstock.state.generation import Fence
from penstock.state.manifest import Manifest, StreamTime

__all__ = ["EpochReport", "EpochRunner", "Shape"]

_LOG = logging.getLogger(__name__)


#: of how much state, in bytes, an epoch may be one task though slices have places, away from which all is to be read
SMALL_STATE = 16_000_000
#: as often does an executor that has come rehearse: Java is slow the first time, and not yet quick the second
REHEARSALS = 3


@dataclass(frozen=True)
class Shape:
    """How work is cut: tasks of the scan, slices of the slice stages at first, buckets of the state.

    An epoch of up to `small_bytes` (or a 200th as many records) is one task that does everything.
    """

    scan_tasks: int
    slices: int
    buckets: int
    small_bytes: int = 0

    def scan_tasks_at(self, maps: BucketMaps) -> int:
        """How many tasks scan: one for each slice that has a place, since that is a core."""
        return sum(place is not None for place in maps.locations) or self.scan_tasks

    def small(self, spans: list[tuple[str, Span]], scans: Mapping[str, ScanPlan]) -> bool:
        """Whether an epoch of these spans is one task."""
        logs = {name: scans[name].stream.log for name, _ in spans}
        load = sum(logs[n].units(s.partition, s.start, s.end) * logs[n].unit_bytes for n, s in spans)
        return bool(self.small_bytes) and load <= self.small_bytes


class EpochRunner:
    """Carries out epochs, one after the other."""

    def __init__(
        self,
        stages: Stages,
        program: Program,
        state: StateDirectory,
        shape: Shape,
        place: StatePlace,
        job_seconds: float = 0.0,
        rules: Rules | None = None,
        shares: JobShares | None = None,
        fence: Fence | None = None,
        outlet: Outlet | None = None,
        checkpoint_every: int = 1,
        fates: Fates | None = None,
    ) -> None:
        self._stages = stages
        self._program = program
        self._state = state
        self._shape = shape
        self._place = place
        self._job_seconds = job_seconds
        #: how much of epochs jobs have taken so far
        self.shares = shares or JobShares(0.0, 1.0)
        #: looked at before each write; None for one that follows, or has no lease
        self.fence = fence
        self.outlet = outlet or Outlet(lambda: state.generation, state.path)
        #: when the state is made durable
        self.interval = Interval(state, place.memory, checkpoint_every)
        self.fates = fates or Fates()
        if self.fates.begin is not None:
            self.interval.manifest = self.fates.begin
        self._gone: tuple[str, ...] = ()
        #: the last epoch that read something: what it was, and what it read
        self._last: tuple[EpochTask, list[tuple[str, Span]]] | None = None
        maps = replace(even_maps(shape.buckets, shape.slices), version=1 + state.records.last_maps_version())
        self._moves = Moves(maps, stages, place, rules)

    @property
    def manifest(self) -> Manifest:
        """The state after the last committed epoch."""
        return self.interval.manifest

    @property
    def maps(self) -> BucketMaps:
        """The bucket maps in force."""
        return self._moves.maps

    def remap(self, change: Change) -> Future[Moved]:
        """Have the maps changed between two epochs to come. May be called from any thread."""
        return self._moves.ask(change)

    def greet(
        self, place: ExecutorLocation, cores: int = 1, there: Callable[[], bool] = lambda: True
    ) -> None:
        """Have an executor that has just come load what tasks need, and rehearse an epoch, so that its first real one
        is like any other; as long as it is there: tasks for one that has died wait many seconds for it. From any
        thread, while epochs go on."""
        if there():
            self._stages.warm(self._place, {place: ()})
        for _ in range(REHEARSALS):
            if self._last is None or not there():
                return
            began, (task, spans) = time.perf_counter(), self._last
            self._stages.rehearse(rehearsal(task, place, cores), a_little(spans))
            _LOG.info("%s has rehearsed in %.2f s", place, time.perf_counter() - began)

    def resliced(self, slices: int) -> None:
        """From the next epoch on, deal all buckets out evenly over so many slices."""
        self._moves.reset(even_maps(self._shape.buckets, slices, self._moves.maps.locations))

    def close(self) -> None:
        """No epoch comes any more: moves that wait or are under way are given up."""
        self._moves.close()

    def checkpoint(self) -> None:
        """The run ends as it should: what is in memory only is made durable."""
        if self.interval.in_memory:
            self._may_write()
            self.interval.checkpoint()

    def run(self, epoch: int, start: Offset, end: Offset) -> EpochReport:
        """Execute an epoch."""
        began = time.perf_counter()
        reached("planned", epoch)
        if epoch != self.manifest.epoch + 1:
            raise InternalError(
                "STATE_GAP",
                f"the next epoch is {epoch}, but the state ends with {self.manifest.epoch}",
                detail=str(self._state.path),
                hint="Manifests are missing: `penstock state rollback` goes back to the last whole epoch.",
            )
        planned = self._program.plan(end.commands, self._program.failures(epoch, end.commands))
        maps = self._moves.before(epoch, planned, self.manifest)
        to_repeat = not self.fates.all_lose([planned])
        self._may_write()
        replayed = self._state.records.read(epoch) is not None
        record = self._state.records.write(epoch, self._record(start, end, maps, to_repeat=to_repeat))
        in_memory = record.checkpoint_interval is not None
        told_before = replayed and in_memory and self._state.records.read(epoch + 1) is not None
        told_before &= epoch > self._state.former_query_last_epoch
        lost = self.fates.lose(epoch, planned)
        if (record.start, record.end) != (start, end):
            raise InternalError(
                "EPOCH_OUT_OF_STEP",
                f"epoch {epoch} was recorded with other offsets than it was admitted with",
                detail=str(self._state.path),
                hint="Another engine has written to this state directory. Stop both, and start one of them again.",
            )
        reached("recorded", epoch)
        spans = list(record.spans)
        plan, result = self._carried_out(epoch, record, spans, maps, self.fates.rest(epoch, planned))
        offered = offer(result.rows, self.fates, planned, lost, told_before)
        reached("gathered", epoch)
        self._may_write()
        aside = [part for part in (result.aside, as_aside(start, end)) if part is not None]
        put_aside = pl.concat(aside) if aside else None
        taken: Mapping[str, int] = {}
        if not told_before or offered.again:
            taken = self.outlet.take(epoch, plan, offered.rows, None if told_before else put_aside)
        self._program.keep_results(epoch, end.commands, offered.kept, result.last)
        reached("delivered", epoch)
        self._may_write()
        self._gone = self.interval.commit(answers_kept(self.manifest, result.manifest, lost))
        if lost and epoch == self.fates.through:
            self.interval.checkpoint()
        self._forget(self._gone)
        reached("committed", epoch)
        self._share(plan, result, end.commands, time.perf_counter() - began)
        units: dict[str, int] = {}
        for stream, span in spans:
            log = plan.scans[stream].stream.log if stream in plan.scans else None
            read = log.units(span.partition, span.start, span.end) if log else span.end - span.start
            units[stream] = units.get(stream, 0) + read
        marks = {name: stream.watermark for name, stream in result.manifest.streams.items()}
        watermark = min((mark for mark in marks.values() if mark is not None), default=None)
        seconds = time.perf_counter() - began
        return EpochReport(
            epoch=epoch,
            events=result.total("events"),
            bytes=result.total("bytes"),
            late=result.total("late"),
            bad=result.total("bad"),
            seconds=seconds,
            stage_seconds=result.stage_seconds(),
            units=units,
            watermark=watermark,
            watermarks=marks,
            due=result.due,
            state_bytes=result.manifest.state_bytes(),
            rows={name: rows for name, rows in result.rows.items() if name not in lost},
            replayed=replayed,
            told_before=told_before,
            delivered_before=told_before and not offered.again,
            offered_again=offered.again,
            repeated_rows=taken if told_before else {},
            withheld_rows=offered.withheld,
            rested=plan.rested,
            to_repeat=to_repeat,
            durable_epoch=self.interval.durable_epoch,
            run_bytes=result.run_bytes(),
            checkpoint_bytes=self.interval.copied_bytes if self.interval.durable_epoch == epoch else 0,
            manifest_cpu_seconds=self.interval.cpu_seconds,
            oldest=result.oldest,
            newest=result.newest,
            committed_at=time.time(),
            tasks=tasks_of(result.reports),
            work=work_of(result.slices, plan, result.maps, result.manifest.collections),
            maps=result.maps,
            moved=self._moves.after(seconds, watermark),
            leaped=len(leaps(start, end)) + len(begun_late(end)),
        )

    def _record(self, start: Offset, end: Offset, maps: BucketMaps, *, to_repeat: bool) -> EpochRecord:
        """What is to be recorded of an epoch."""
        before = None
        if not to_repeat:  # so that nothing is told twice when epochs are left out
            watermarks = {name: stream.late_before for name, stream in self.manifest.streams.items()}
            before = Progress(watermarks, self.manifest.counters)
        return EpochRecord(
            start,
            end,
            slices=maps.slices,
            buckets=self._shape.buckets,
            maps=maps,
            checkpoint_interval=self.interval.every if self.interval.in_memory else None,
            before=before,
        )

    def _carried_out(
        self,
        epoch: int,
        record: EpochRecord,
        spans: list[tuple[str, Span]],
        maps: BucketMaps,
        resting: frozenset[str],
    ) -> tuple[Plan, Gathered]:
        """The epoch's stages; again without the jobs that failed alone, if some did."""
        commands = record.commands
        while True:
            plan = self._program.plan(commands, self._program.failures(epoch, commands), resting)
            wanted = [(stream, span) for stream, span in spans if stream in plan.scans]
            one_task = self._shape.small(wanted, plan.scans) and self._may_be_one_task(maps)
            task = self._task(epoch, plan, record, even_maps(maps.buckets, 1) if one_task else maps)
            try:
                tasks = 1 if one_task else self._shape.scan_tasks_at(maps)
                sent = self._stages.run(task, dealt(wanted, tasks))
                self._last = (task, wanted) if wanted else self._last
                return plan, gathered(task, self.manifest, sent)
            except JobsFailed as failed:
                self._may_write()
                self._program.record_failures(epoch, commands, failed.errors)
            finally:
                if self._place.shelf is not None:
                    shutil.rmtree(self._place.shelf, ignore_errors=True)

    def _may_be_one_task(self, maps: BucketMaps) -> bool:
        """Whether all state can be read by one task without bringing much from one executor to another."""
        return len(set(maps.locations)) <= 1 or self.manifest.state_bytes() <= SMALL_STATE

    def _share(self, plan: Plan, result: Gathered, commands: int, seconds: float) -> None:
        """Have jobs paused that take more than their share. What is measured is not the same when an epoch is repeated:
        the decision is a command, which is."""
        names = {output.job: output.name for output in plan.outputs.values() if output.job is not None}
        self.shares, over = self.shares.after(result.job_seconds(), seconds, names)
        if over:
            self._program.pause_jobs(commands, over)

    def recycle(self, keep: int) -> None:
        """Remove manifests beyond the newest `keep` and the runs nobody needs; logs and commands may forget what is
        behind."""
        self._may_write()
        self._forget(self._state.recycle(keep))
        oldest = min(self._state.manifests.epochs(), default=0)
        end = self._state.records.read_end(oldest)
        if end is None:
            return
        if oldest:  # after epoch 0 one can go back to the beginning
            self._program.forget_commands_before(end.commands)
        for name, scan in self._program.plan(self._program.commands).scans.items():
            if name in end.at:
                scan.stream.log.prune(end.at[name])

    def _may_write(self) -> None:
        if self.fence is not None:
            self.fence.check()

    def _forget(self, runs: Iterable[str]) -> None:
        """Make room in the host's cache: no epoch to come reads these runs, though one gone back to may."""
        if self._place.cache is not None:
            cache = HostCache(Path(self._place.cache), self._place.cache_bytes)
            for part in cache.executor_caches() if self._place.apart else (cache,):
                part.forget(*runs)

    def _task(self, epoch: int, plan: Plan, record: EpochRecord, maps: BucketMaps) -> EpochTask:
        end = record.end
        streams: dict[str, StreamTime] = {}
        known_ones = [p for s in self.manifest.streams.values() for p in s.partitions.values()]
        ordinal = 1 + max((partition.ordinal for partition in known_ones), default=-1)
        for name in plan.scans:
            known = self.manifest.streams.get(name, StreamTime())
            streams[name] = introduced(known, list(end.at.get(name, {})), ordinal)
            ordinal += len(streams[name].partitions) - len(known.partitions)
        return EpochTask(
            plan=plan,
            epoch=epoch,
            streams=streams,
            finished={name: end.finished.get(name, ()) for name in plan.scans},
            idle={name: end.idle.get(name, ()) for name in plan.scans},
            closed={name: end.closed.get(name, False) for name in plan.scans},
            watermark_limits=end.watermark_limits,
            admitted_at=end.admitted_at,
            collections=self.manifest.collections,
            maps=maps,
            place=self._place,
            engine_pid=os.getpid(),
            flush=self._program.flushed_jobs(record.start.commands, end.commands),
            previous=self._program.previous_rows(epoch, end.commands, plan),
            job_seconds=self._job_seconds,
            gone=self._gone,
        )
