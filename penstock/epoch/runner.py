"""Executes one epoch on the driver: record, stages, gather, emission, commit.

Guarantees:
- The epoch record is durable before anything executes, and an epoch that has one is repeated as recorded.
- The result log has an epoch's rows before its manifest is in place. Both are idempotent by epoch, so an epoch can be
  repeated from any point in between. With its manifest an epoch is over: the next start continues after the newest
  manifest, and sinks get from the result log what they lack.
- Where not every epoch has a durable manifest, the record of the next epoch shows that this one was emitted, since it
  is written afterwards.
- Records, manifests and sinks refuse an engine of a lower generation. Looking at the fence before each write only
  tells such an engine early.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from penstock.catalogue.program import Program
from penstock.delivery.side_output import SideOutputLimits
from penstock.epoch.checkpoint import Checkpoints
from penstock.epoch.emission import keep_last_results, plan_emission
from penstock.epoch.execution import Execution, describe_skips
from penstock.epoch.gather import EpochResult, gather_epoch
from penstock.epoch.job_failures import JobsFailed, JobShares
from penstock.epoch.job_memory import JobMemory, WorkerDeaths
from penstock.epoch.kill_points import reached
from penstock.epoch.migration import MapChange, MigrationResult, Migrations
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.recovery import RecoveryActions
from penstock.epoch.rehearsal import rehearsal_task, smallest_spans
from penstock.epoch.report import EpochReport
from penstock.epoch.stages import Stages, share_spans
from penstock.epoch.task import EpochTask, StateLocation
from penstock.errors import InternalError, PenstockError
from penstock.logs.contract import Span
from penstock.operators.watermark import add_partitions, forget_partitions
from penstock.query.physical import Plan, ScanPlan
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps
from penstock.state.cache import HostCache
from penstock.state.continuity import drop_stale_rankings
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset, WatermarksAndCounters
from penstock.state.generation import Fence
from penstock.state.manifest import Manifest, StreamTime
from penstock.state.shared_records import RECORDS_KEPT

__all__ = ["EpochReport", "EpochRunner", "RunnerSettings", "Shape"]

_LOG = logging.getLogger(__name__)
#: with state of up to so many bytes an epoch may be one task although slices are placed: that task has to read it all
SMALL_STATE_BYTES = 16_000_000
#: how often a new executor rehearses: Java is slow the first time, and not yet quick the second
REHEARSALS = 3
#: how long the report of an epoch that is delivered again waits for the sinks, in seconds, to count what they took
_REPEAT_SECONDS = 5.0


@dataclass(frozen=True)
class Shape:
    """How work is cut: tasks of the scan, slices at first, buckets of the state.

    An epoch of up to `small_bytes` (or a 200th as many records) is one task that does everything.
    """

    scan_tasks: int
    slices: int
    buckets: int
    small_bytes: int = 0

    def scan_task_count(self, maps: BucketMaps) -> int:
        """How many tasks scan: one for each slice that is placed, since that is a core."""
        return sum(place is not None for place in maps.locations) or self.scan_tasks

    def is_small(self, spans: list[tuple[str, Span]], scans: Mapping[str, ScanPlan]) -> bool:
        """Whether an epoch of these spans is one task."""
        logs = {name: scans[name].stream.log for name, _ in spans}
        load = sum(logs[n].units(s.partition, s.start, s.end) * logs[n].unit_bytes for n, s in spans)
        return bool(self.small_bytes) and load <= self.small_bytes


@dataclass(frozen=True)
class RunnerSettings:
    """How epochs are executed."""

    shape: Shape
    location: StateLocation
    #: how long a job's own code may take in a task, in seconds; 0 for no limit
    job_seconds: float = 0.0
    migration_rules: MigrationRules = field(default_factory=MigrationRules)
    #: how much of epochs each job may take
    job_shares: JobShares = field(default_factory=lambda: JobShares(0.0, 1.0))
    checkpoint_every: int = 1
    #: how much memory a job's own code may take in a worker; None: as much as there is
    job_memory: JobMemory | None = None
    #: how many bytes of rows a job may emit in a task; 0 for no limit
    job_result_bytes: int = 0
    #: how many bytes of results may wait for sinks and questions
    result_log_bytes: int = 2_000_000_000
    #: how much of dead letters, late events and skipped spans is kept
    side_output: SideOutputLimits = field(default_factory=SideOutputLimits)


@dataclass
class _CurrentEpoch:
    """How far the epoch under way has come, so that a step that fails for a transient reason is repeated alone."""

    epoch: int = -1
    maps: BucketMaps | None = None
    execution: Execution | None = None
    emitted: frozenset[str] | None = None


class EpochRunner:
    """Executes epochs, one after the other."""

    def __init__(
        self,
        stages: Stages,
        program: Program,
        state: StateDirectory,
        settings: RunnerSettings,
        *,
        fence: Fence | None = None,
        recovery: RecoveryActions | None = None,
    ) -> None:
        self._stages = stages
        self._program = program
        self._state = state
        self._shape, self._location = settings.shape, settings.location
        self._job_seconds, self._job_memory = settings.job_seconds, settings.job_memory
        self._job_result_bytes = settings.job_result_bytes
        self._result_log_bytes, self._side_output_limits = settings.result_log_bytes, settings.side_output
        self._worker_deaths = WorkerDeaths(settings.job_memory)
        #: how much of epochs jobs have taken so far
        self.shares = settings.job_shares
        #: checked before each write; None for an engine that follows, or has no lease
        self.fence = fence
        self._deliveries = program.deliveries
        self._deliveries.on_delivered = lambda epoch: reached("delivered", epoch)
        self.checkpoints = Checkpoints(state, self._location.memory, settings.checkpoint_every)
        self._recovery = recovery or RecoveryActions()
        if self._recovery.initial is not None:
            self.checkpoints.manifest = self._recovery.initial
        self._unused_runs: tuple[str, ...] = ()
        self._current = _CurrentEpoch()
        #: the last epoch that read something: its task, and what it read
        self._last: tuple[EpochTask, list[tuple[str, Span]]] | None = None
        maps = even_maps(self._shape.buckets, self._shape.slices)
        self._migrations = Migrations(
            replace(maps, version=1 + state.records.last_maps_version()),
            stages,
            self._location,
            settings.migration_rules,
        )

    @property
    def manifest(self) -> Manifest:
        """The state after the last committed epoch."""
        return self.checkpoints.manifest

    @property
    def maps(self) -> BucketMaps:
        """The bucket maps in force."""
        return self._migrations.maps

    def request_map_change(self, change: MapChange) -> Future[MigrationResult]:
        """Request other bucket maps, which come into force between two later epochs. From any thread."""
        return self._migrations.request(change)

    def set_slice_count(self, slices: int) -> None:
        """From the next epoch on, assign all buckets evenly to so many slices."""
        self._migrations.reset(even_maps(self._shape.buckets, slices, self._migrations.maps.locations))

    def warm_up(
        self, place: ExecutorLocation, cores: int = 1, is_alive: Callable[[], bool] = lambda: True
    ) -> None:
        """Have a new executor load what tasks need, and rehearse an epoch, so that its first real one is no slower.

        From any thread, while epochs continue. Stops when the executor is gone: a task for one that died waits for many
        seconds.
        """
        if is_alive():
            self._stages.warm(self._location, {place: ()})
        for _ in range(REHEARSALS):
            if self._last is None or not is_alive():
                return
            started, (task, spans) = time.perf_counter(), self._last
            self._stages.rehearse(rehearsal_task(task, place, cores), smallest_spans(spans))
            _LOG.info("%s has rehearsed in %.2f s", place, time.perf_counter() - started)

    def close(self) -> None:
        """No more epochs: cancel migrations that wait or are under way, and release what the stages hold."""
        self._migrations.close()
        self._stages.close()

    def checkpoint(self) -> None:
        """Make the state durable that is in memory only, at the end of a run."""
        if self.checkpoints.can_defer:
            self._check_fence()
            self.checkpoints.checkpoint()

    def run(self, epoch: int, start: Offset, end: Offset) -> EpochReport:
        """Execute an epoch: the events between two offsets. After an error it may be called again with the same
        arguments, and continues with the step that failed."""
        started = time.perf_counter()
        reached("planned", epoch)
        if epoch != self.manifest.epoch + 1 and epoch != self._current.epoch:
            raise InternalError(
                "STATE_GAP",
                f"the next epoch is {epoch}, but the state ends with {self.manifest.epoch}",
                detail=str(self._state.path),
                hint="Manifests are missing: `penstock state rollback` goes back to the last whole epoch.",
            )
        if self._current.epoch != epoch:
            self._current = _CurrentEpoch(epoch)
        current = self._current
        if current.execution is None:
            current.execution = self._execute(epoch, start, end)
        execution = current.execution
        reached("gathered", epoch)
        if current.emitted is None:
            current.emitted = self._emit(execution)
        reached("emitted", epoch)
        self._commit(execution)
        reached("committed", epoch)
        self._deliveries.add(epoch, current.emitted)
        if self._state.records.read(epoch + 1) is None:  # no recorded epoch needs the sinks of dropped jobs
            self._program.epochs.close_unused(execution.record.commands)
        repeated_rows = self._repeated_rows(execution)
        self._pause_expensive_jobs(execution, time.perf_counter() - started)
        seconds = time.perf_counter() - started
        migration = self._migrations.finish_epoch(seconds, execution.watermark)
        self._current = _CurrentEpoch()
        return execution.report(repeated_rows, self.checkpoints, migration, seconds)

    def _execute(self, epoch: int, start: Offset, end: Offset) -> Execution:
        """Record an epoch and execute its stages."""
        plan = self._program.epochs.plan(end.commands, self._program.epochs.failures(epoch, end.commands))
        if self._current.maps is None:
            self._current.maps = self._migrations.start_epoch(epoch, plan, self.manifest)
        maps = self._current.maps
        needs_replay = not self._recovery.all_skip([plan])
        self._check_fence()
        replayed = self._state.records.read(epoch) is not None
        record = self._state.records.write(
            epoch, self._new_record(start, end, maps, needs_replay=needs_replay)
        )
        can_defer = record.checkpoint_interval is not None
        already_delivered = (
            replayed
            and can_defer
            and self._state.records.read(epoch + 1) is not None
            and epoch > self._state.facts.former_query_last_epoch
        )
        skipping = self._recovery.skipping_outputs(epoch, plan)
        if (record.start, record.end) != (start, end):
            raise InternalError(
                "EPOCH_OUT_OF_STEP",
                f"epoch {epoch} was recorded with other offsets than it was admitted with",
                detail=str(self._state.path),
                hint="Another engine has written to this state directory. Stop both, and start one of them again.",
            )
        reached("recorded", epoch)
        to_suspend = self._recovery.outputs_to_suspend(epoch, plan)
        executed_plan, result = self._run_stages(epoch, record, maps, to_suspend)
        emission = plan_emission(result.rows, self._recovery, plan, skipping, already_delivered)
        return Execution(
            record,
            executed_plan,
            result,
            emission,
            replayed=replayed,
            already_delivered=already_delivered,
            needs_replay=needs_replay,
            skipping=skipping,
        )

    def _repeated_rows(self, execution: Execution) -> Mapping[str, int]:
        """How many rows sinks have taken again of an epoch that is delivered again, by output."""
        emission = execution.emission
        if not emission.redelivered:
            return {}
        taken = self._deliveries.take_repeated_rows(execution.epoch, _REPEAT_SECONDS)
        return {name: taken.get(name, 0) for name in emission.rows.keys() & emission.redelivered}

    def _new_record(self, start: Offset, end: Offset, maps: BucketMaps, *, needs_replay: bool) -> EpochRecord:
        before = None
        if not needs_replay:  # so that nothing is emitted twice if a recovery skips the epoch
            watermarks = {name: stream.late_before for name, stream in self.manifest.streams.items()}
            before = WatermarksAndCounters(watermarks, self.manifest.counters)
        return EpochRecord(
            start,
            end,
            slices=maps.slices,
            buckets=self._shape.buckets,
            maps=maps,
            checkpoint_interval=self.checkpoints.every if self.checkpoints.can_defer else None,
            before=before,
        )

    def _run_stages(
        self, epoch: int, record: EpochRecord, maps: BucketMaps, to_suspend: frozenset[str]
    ) -> tuple[Plan, EpochResult]:
        """Execute the stages; again without the jobs that fail alone, if some do."""
        commands = record.commands
        while True:
            plan = self._program.epochs.plan(
                commands, self._program.epochs.failures(epoch, commands), to_suspend
            )
            spans = [(stream, span) for stream, span in record.spans if stream in plan.scans]
            is_one_task = self._shape.is_small(spans, plan.scans) and self._can_be_one_task(maps)
            before = drop_stale_rankings(self.manifest, plan.identities)
            task = self._task(
                epoch, plan, before, record, even_maps(maps.buckets, 1) if is_one_task else maps
            )
            try:
                scan_tasks = 1 if is_one_task else self._shape.scan_task_count(maps)
                messages = self._stages.run(task, share_spans(spans, scan_tasks))
                self._last = (task, spans) if spans else self._last
                return plan, gather_epoch(task, before, messages)
            except JobsFailed as failed:
                self._leave_out(epoch, commands, failed.errors)
            except PenstockError:
                raise
            except Exception:  # of Spark, when a worker has died
                blamed = self._worker_deaths.blame(epoch)
                if blamed is None:
                    raise
                self._leave_out(epoch, commands, blamed)
            finally:
                if self._location.spill_directory is not None:
                    shutil.rmtree(self._location.spill_directory, ignore_errors=True)

    def _leave_out(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Record that jobs failed in an epoch, which is to be executed without them."""
        if errors:
            self._check_fence()
            self._program.epochs.record_failures(epoch, commands, errors)

    def _can_be_one_task(self, maps: BucketMaps) -> bool:
        """Whether one task can read all state without bringing much from one executor to another."""
        return len(set(maps.locations)) <= 1 or self.manifest.state_bytes() <= SMALL_STATE_BYTES

    def _task(
        self, epoch: int, plan: Plan, manifest: Manifest, record: EpochRecord, maps: BucketMaps
    ) -> EpochTask:
        end = record.end
        streams: dict[str, StreamTime] = {}
        partitions = [p for s in manifest.streams.values() for p in s.known_partitions]
        ordinal = 1 + max((partition.ordinal for partition in partitions), default=-1)
        for name in plan.scans:
            before = manifest.streams.get(name, StreamTime())
            if name in end.at:
                before = forget_partitions(before, end.at[name])
            streams[name] = add_partitions(before, list(end.at.get(name, {})), ordinal)
            ordinal += len(streams[name].partitions) - len(before.partitions)
        return EpochTask(
            plan=plan,
            epoch=epoch,
            streams=streams,
            finished={name: end.finished.get(name, ()) for name in plan.scans},
            idle={name: end.idle.get(name, ()) for name in plan.scans},
            closed={name: end.closed.get(name, False) for name in plan.scans},
            watermark_limits=end.watermark_limits,
            admitted_at=end.admitted_at,
            clocks=end.clocks,
            collections=manifest.collections,
            maps=maps,
            location=self._location,
            engine_pid=os.getpid(),
            flush=self._program.epochs.flushed_jobs(record.start.commands, end.commands),
            previous=self._program.epochs.previous_rows(epoch, end.commands, plan),
            job_seconds=self._job_seconds,
            job_memory=self._job_memory,
            job_result_bytes=self._job_result_bytes,
            unused_runs=self._unused_runs,
        )

    def _emit(self, execution: Execution) -> frozenset[str]:
        """Append what an epoch emits to the result log, which may have it; returns the outputs with rows."""
        self._check_fence()
        record, emission, result = execution.record, execution.emission, execution.result
        parts = (result.side_output, describe_skips(record))
        frames = [part for part in parts if part is not None]
        side_output = pl.concat(frames) if frames else None
        return self._program.epochs.emit(
            execution.epoch, record, emission.rows, emission.only_for_jobs, side_output, result.last
        )

    def _commit(self, execution: Execution) -> None:
        """Commit the state after an epoch."""
        self._check_fence()
        skipping = execution.skipping
        manifest = execution.result.manifest
        if skipping:
            before = drop_stale_rankings(self.manifest, execution.plan.identities)
            manifest = keep_last_results(before, manifest, skipping)
        if self.manifest.epoch < execution.epoch:
            self._unused_runs = self.checkpoints.commit(manifest)
        if skipping and execution.epoch == self._recovery.last_epoch:
            self.checkpoints.checkpoint()
        self._drop_cached(self._unused_runs)

    def _pause_expensive_jobs(self, execution: Execution, seconds: float) -> None:
        """Pause jobs that take more than their share. Measurements differ when an epoch is repeated; the decision is a
        command, which does not."""
        outputs = execution.plan.outputs.values()
        names = {output.job: output.name for output in outputs if output.job is not None}
        self.shares, errors = self.shares.after(execution.result.job_seconds(), seconds, names)
        if errors:
            self._program.epochs.pause_jobs(execution.record.commands, errors)

    def remove_old_state(self, keep: int) -> None:
        """Remove manifests beyond the newest `keep`, and the runs and results that nobody needs; have logs and the
        program forget what is before them."""
        self._check_fence()
        self._drop_cached(self._state.remove_old_state(keep))
        oldest = min(self._state.manifests.epochs(), default=0)
        end = self._state.records.read_end(oldest)
        if end is None:
            return
        followers_lack = 0 if self._state.shared_records is None else RECORDS_KEPT
        self._program.prune_results(oldest - followers_lack, self._result_log_bytes)
        self._program.prune_side_output(self._side_output_limits)
        if oldest:  # after epoch 0 a rollback can still go back to the start
            self._program.epochs.forget_before(end.commands, oldest - followers_lack)
        for name, scan in self._program.epochs.plan(self._program.commands).scans.items():
            if name in end.at:
                scan.stream.log.prune(end.at[name])

    def _check_fence(self) -> None:
        if self.fence is not None:
            self.fence.check()

    def _drop_cached(self, runs: Iterable[str]) -> None:
        """Drop runs from the host's cache that no later epoch reads; one that is rolled back to may."""
        if self._location.cache is not None:
            cache = HostCache(Path(self._location.cache), self._location.cache_bytes)
            for part in cache.executor_caches() if self._location.cache_per_executor else (cache,):
                part.forget(*runs)
