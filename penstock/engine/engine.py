"""Runs an app's jobs as one Spark application, in a loop of epochs, until it is stopped.

Admission fixes the spans of the next epoch, and the runner executes it as one Spark job. The epoch records and
manifests in the state directory are the only log.

Guarantees: after `run` returns or raises, starting again with the same app and state directory continues where
it stopped; nothing is lost and nothing delivered twice.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.coordination.leadership import lead_unit
from penstock.delivery.side_output import SideOutputLimits
from penstock.engine.collect import Meter, Worker
from penstock.engine.elasticity import Elasticity, SparkCluster
from penstock.engine.map_changes import MapChanges
from penstock.engine.role import Assignment, EngineRole
from penstock.engine.state_location import clear_state_location, prepare_state_location
from penstock.epoch.admission import Admission, AdmissionSettings, Gate
from penstock.epoch.job_failures import JobShares, explain_failure
from penstock.epoch.job_memory import JobMemory
from penstock.epoch.migration import MapChange, MigrationResult
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.rate_control import new_rate_control
from penstock.epoch.report import RunSummary
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages
from penstock.epoch.task import StateLocation
from penstock.errors import InternalError, PenstockError, is_transient
from penstock.query.logical import App
from penstock.query.physical import Plan
from penstock.retries import Interrupted, Outage, Retries, RetryPolicy
from penstock.settings import INLINE, Settings, check_interval, cores_of
from penstock.spark.executors import Executors
from penstock.spark.session import SparkSession, session, warm_up
from penstock.spark.stages import SparkStages
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.state.buckets import check_bucket_count
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence

_LOG = logging.getLogger(__name__)
#: a run that ends when everything is read waits no longer for what is away, in seconds: somebody waits for its end
_LONGEST_OUTAGE_OF_DRAIN = 60.0
#: how long a run that is stopped waits for sinks that are not away, in seconds
_FINISH_SECONDS = 10.0
T = TypeVar("T")
Watcher = Callable[[EpochReport], None]
#: receives a phase of the start, in a word or two
OnPhase = Callable[[str], None]


# over 25 methods: it holds the parts of one run together, and each step of the epoch loop is one
class Engine:
    """Runs one application. `spark` is the session to use; by default one is started.

    With a `fence` (a lease: given, or from the coordination store that the settings name) it takes the state directory
    from any engine of a lower generation, and stops with FENCED or LEASE_LOST when it may no longer write.
    As part of an HA unit it has an `assignment`; a follower executes the leader's epochs until it is promoted.
    """

    def __init__(
        self,
        app: App | Program,
        settings: Settings | None = None,
        spark: SparkSession | None = None,
        fence: Fence | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        self.settings = settings or Settings()
        check_bucket_count(self.settings.buckets)
        check_interval(self.settings)
        self.program = program_of(app, self.settings.state) if isinstance(app, App) else app
        self.role = EngineRole(self.settings.state, assignment, self.settings.semantics)
        self.state = self.role.state
        self.admission: Admission | None = None
        self.executors: Executors | None = None
        self._spark = spark
        self._fence = fence
        self._failure: BaseException | None = None
        self._stop, self._paused = threading.Event(), threading.Event()
        #: when the run is to end, by the monotonic clock
        self._deadline = math.inf
        #: waits for what is away outside
        longest = _LONGEST_OUTAGE_OF_DRAIN if self.settings.drain else math.inf
        policy = RetryPolicy(longest_outage_seconds=longest)
        self.retries = Retries(self._is_over, self._wait_to_retry, policy=policy)
        self._busy = threading.Lock()
        self._ended_epoch = -1
        self._ready = threading.Event()
        self._runner: EpochRunner | None = None
        self.meter = Meter(self._backlog, self.settings.epoch_seconds)
        self.elasticity: Elasticity | None = None

    @property
    def last_epoch(self) -> int:
        """The epoch that ended last; -1 before the first."""
        return self._ended_epoch

    @property
    def plan(self) -> Plan:
        """The plan with all commands so far."""
        return self.program.epochs.plan(self.program.commands)

    @property
    def outage(self) -> Outage | None:
        """What is away outside and waited for; None if nothing is."""
        return self.retries.outage or self.program.deliveries.outage

    @property
    def retry_count(self) -> int:
        """How many attempts have failed because something outside was away, and were repeated."""
        return self.retries.count + self.program.deliveries.retry_count

    @property
    def maps(self) -> BucketMaps | None:
        """The bucket maps in force; None before there are any."""
        return None if self._runner is None else self._runner.maps

    def workers(self) -> list[Worker]:
        """The executors, or this process if the master is local."""
        if self.executors is not None and self.executors.can_change:
            return [Worker(one.id, one.cores) for one in self.executors.staying()]
        return [Worker("driver", cores_of(self.settings.master))]

    def _backlog(self) -> Mapping[str, int]:
        return {} if self.admission is None else self.admission.backlog

    # -- from any thread -------------------------------------------------------------------------

    def request_map_change(self, change: MapChange) -> Future[MigrationResult]:
        """Request a change of the bucket maps between two epochs; nothing stops for it."""
        if self._runner is None:
            raise InternalError("NOT_RUNNING", "the engine has no bucket maps yet: it has not started")
        return self._runner.request_map_change(change)

    def checkpoint_every(self, epochs: int) -> None:
        """Set the checkpoint interval, if the settings let it vary."""
        if self._runner is not None and self.settings.checkpoint_varies:
            self._runner.checkpoints.every = max(epochs, 1)

    def warm_up_executor(self, location: ExecutorLocation, cores: int = 1) -> None:
        """Have a new executor load what tasks need, so that its first epoch does not wait for that."""
        if self._runner is not None:
            self._runner.warm_up(location, cores)

    def stop(self) -> None:
        """End the run after the epoch under way. A signal handler may call this."""
        self._stop.set()

    def pause(self, paused: bool) -> None:
        """Start no further epoch, or continue. A leader never pauses."""
        self._paused.set() if paused and not self.role.is_leader else self._paused.clear()

    def promote(self, fence: Fence, on_released: Callable[[], None] = lambda: None) -> None:
        """Promote a follower to leader when the epoch under way has ended. From now on it delivers the rows it holds
        back; it calls `on_released`, executes the epochs that are recorded, and then decides its own."""
        self._ready.wait()
        with self._busy:
            if self._failure is not None:  # an engine whose last epoch failed must not lead
                raise explain_failure(self._failure)
            self.role.promote(fence, self.program)
            self._fence = fence
            self._paused.clear()
            if self._runner is not None:
                self._runner.fence = fence
            on_released()
            self.role.is_leader = True

    # -- the run ---------------------------------------------------------------------------------

    def run(
        self,
        watch: Watcher | None = None,
        *,
        for_seconds: float | None = None,
        on_phase: OnPhase = lambda _: None,
    ) -> RunSummary:
        """Run epochs until stopped, until `for_seconds` have passed, or (with `drain`) until all is read."""
        if self.settings.coordination is None or self._fence is not None or self.role.is_in_unit:
            return self._run_claimed(watch, for_seconds, on_phase)
        on_phase("waiting to lead")
        with lead_unit(
            self.settings.coordination,
            self.settings.unit or self.program.name,
            above=lambda: self.state.newest_generation,
            session_seconds=self.settings.session_seconds,
            wanted=lambda: not self._stop.is_set(),
        ) as lease:
            if lease is None:
                return RunSummary()
            self._fence = lease
            try:
                return self._run_claimed(watch, for_seconds, on_phase)
            finally:
                self._fence = None

    def _run_claimed(self, watch: Watcher | None, for_seconds: float | None, on_phase: OnPhase) -> RunSummary:
        """Run on the state directory, which is claimed meanwhile."""
        if for_seconds is not None:
            self._deadline = time.monotonic() + for_seconds
        try:
            logs = self.role.start(
                self.program,
                self._fence,
                self.settings.buckets,
                drops_state=self.settings.drop_state,
                on_phase=on_phase,
                retries=self.retries,
            )
        except Interrupted as interrupted:
            _end_waiting(interrupted, is_stopped=self._stop.is_set())
            return RunSummary()
        try:
            spark = self._spark
            if spark is None and self.settings.master != INLINE:
                on_phase("starting Spark")
                spark = session(self.settings, self.state.path / "engine.log")
            if spark is not None:
                self.executors = Executors(spark.sparkContext)
                self.executors.wait_for_first(self.settings.executors, self.settings.executors_seconds)
            master = "local" if spark is None else str(spark.sparkContext.master)
            location = prepare_state_location(self.role, self.settings, master)
            self._runner = self._create_runner(spark, location)
            self.admission = Admission(
                self.program,
                AdmissionSettings(self.settings.drain, self.settings.epoch_interval_seconds),
                lambda scan: new_rate_control(self.settings, scan, self.plan),
                self.role.recorded_end,
                gate=Gate(lambda: not self._paused.is_set(), lambda: self.role.is_leader),
                start_log=logs.start_one,
            )

            def get_ready() -> None:
                if self.settings.warm_up and spark is not None:
                    on_phase("warming up")
                    warm_up(spark.sparkContext, self.settings.master)
                with self._busy:
                    if self.role.is_leader:
                        # the clock of a live log starts when the engine is ready
                        logs.start(self.plan, again=True)
                on_phase("running")
                self._ready.set()

            try:
                return self._run(self._runner, self.admission, get_ready, watch, for_seconds)
            finally:
                clear_state_location(location)
        finally:
            self.role.close(self.program)

    def _create_runner(self, spark: SparkSession | None, location: StateLocation) -> EpochRunner:
        settings = self.settings
        cores = cores_of(settings.master)
        if self.executors is not None and self.executors.can_change:
            cores = self.executors.cores
        elif spark is not None and self._spark is not None:
            cores = int(spark.sparkContext.defaultParallelism)
        return EpochRunner(
            LocalStages() if spark is None else SparkStages(spark.sparkContext),
            self.program,
            self.state,
            RunnerSettings(
                Shape(cores, settings.slices or cores, settings.buckets, settings.small_epoch_bytes),
                location,
                settings.job_seconds,
                MigrationRules(settings.move_pause_seconds, settings.move_patience_seconds),
                JobShares(settings.job_share, settings.epoch_seconds),
                settings.checkpoint_every,
                None if spark is None else _job_memory(settings, location),
                settings.job_result_bytes,
                settings.result_log_bytes,
                SideOutputLimits(settings.side_output_bytes, settings.side_output_days),
            ),
            fence=self._fence,
            recovery=self.role.recovery.actions,
        )

    def _run(
        self,
        runner: EpochRunner,
        admission: Admission,
        get_ready: Callable[[], None],
        watch: Watcher | None,
        for_seconds: float | None,
    ) -> RunSummary:
        run, started_at = RunSummary(), time.monotonic()
        try:
            try:
                get_ready()
                started_at = time.monotonic()
                self._start_elasticity(runner)
                self._run_epochs(runner, admission, run, watch, for_seconds)
            except Interrupted as interrupted:
                _end_waiting(interrupted, is_stopped=self._stop.is_set())
            except BaseException as failure:
                self._failure = failure
                raise
            finally:
                self._ready.set()  # `promote` must not wait for an engine that failed
            self.retries.run("write the state", runner.checkpoint)
            self._finish_deliveries()
        except Interrupted as interrupted:
            raise explain_failure(interrupted.error) from interrupted.error
        except Exception as failure:
            if isinstance(failure, PenstockError):
                raise
            raise explain_failure(failure) from failure
        finally:
            if self.elasticity is not None:
                self.elasticity.close()
            runner.close()
        run.seconds = time.monotonic() - started_at
        run.counters = runner.manifest.counters
        return run

    def _finish_deliveries(self) -> None:
        """Wait for the sinks: until they have all, if the run ends because all is read, else for a while. What they
        lack then they get after the next start."""
        if self.settings.drain and not self._is_over():
            self.program.deliveries.finish(math.inf, _LONGEST_OUTAGE_OF_DRAIN)
            for error in (*self.program.deliveries.failures, *self.program.epochs.failed_outputs()):
                raise error
        else:
            self.program.deliveries.finish(_FINISH_SECONDS)

    def _start_elasticity(self, runner: EpochRunner) -> None:
        if self.settings.elastic is None or self.executors is None or not self.executors.can_change:
            return
        self.elasticity = Elasticity(
            self.settings.elastic,
            SparkCluster(self.executors),
            MapChanges(runner.request_map_change, lambda: runner.maps, lambda: self.plan),
            self.meter,
            runner.warm_up,
            self.state.path,
            self.settings.manager,
        )
        self.elasticity.start()

    def _run_epochs(
        self,
        runner: EpochRunner,
        admission: Admission,
        run: RunSummary,
        watch: Watcher | None,
        for_seconds: float | None,
    ) -> None:
        """The epoch loop: admit, execute, and again. An epoch that is under way always ends."""
        if for_seconds is not None:
            self._deadline = time.monotonic() + for_seconds
        reached = self.state.committed_end() or Offset()
        while not self._is_over():
            self._check_fence()  # also while there is nothing to write
            self.program.deliveries.check()
            start = reached
            end = self.retries.run("read the logs", lambda: admission.admit(start), self._check_fence)  # noqa: B023
            if end != reached:
                self._run_epoch(runner, admission, run, watch, reached, end)
                reached = end
            elif admission.drained.is_set():
                return

    def _run_epoch(
        self,
        runner: EpochRunner,
        admission: Admission,
        run: RunSummary,
        watch: Watcher | None,
        start: Offset,
        end: Offset,
    ) -> None:
        """Execute one epoch, again while something outside is away, and pass its report on. Between two attempts a
        follower may be promoted."""
        number = end.epoch

        def retry(step: str, action: Callable[[], T]) -> T:
            def attempt() -> T:
                with self._busy, self._note_failure():
                    return action()

            return self.retries.run(step, attempt, self._check_fence)

        def execute() -> EpochReport:
            try:
                self.role.follow(self.program, number, end.commands)
                return runner.run(number, start, end)
            except Exception as failure:  # Spark's own errors may be transient too
                if is_transient(explained := explain_failure(failure)):
                    raise explained from failure
                raise

        report = retry(f"execute epoch {number}", execute)
        with self._busy, self._note_failure():
            admission.observe(report.units, report.seconds, report.pending)
            run.add(report)
            self.meter.add(report)
            if end.commands > start.commands and self.role.logs is not None:
                self.role.logs.stop_unused(self.program.catalogue, self.plan)
                self.meter.registry.retain("job", self.plan.outputs.keys())
            if watch is not None:
                watch(report)
            self._ended_epoch = number
        retry("log the recovery", lambda: self.role.count_recovered(report))
        if number % 10 == 9:
            retry("remove old state", lambda: runner.remove_old_state(self.settings.manifests_kept))

    @contextlib.contextmanager
    def _note_failure(self) -> Iterator[None]:
        """Note what ends the run, before `promote` gets the lock."""
        try:
            yield
        except BaseException as failure:
            if not is_transient(failure):
                self._failure = failure
            raise

    def _is_over(self) -> bool:
        return self._stop.is_set() or time.monotonic() >= self._deadline

    def _wait_to_retry(self, seconds: float) -> None:
        self._stop.wait(max(min(seconds, self._deadline - time.monotonic()), 0.0))

    def _check_fence(self) -> None:
        if self._fence is not None:
            self._fence.check()


def _job_memory(settings: Settings, location: StateLocation) -> JobMemory | None:
    """How much memory jobs may take in workers; None where nothing bounds it."""
    if settings.job_memory_bytes == 0 or location.job_marks is None:
        return None
    return JobMemory(settings.job_memory_bytes, location.job_marks)


def _end_waiting(interrupted: Interrupted, *, is_stopped: bool) -> None:
    """End a run that waits for something: as usual if it was stopped, with the error if its time is up."""
    if not is_stopped:
        raise explain_failure(interrupted.error) from interrupted.error
    _LOG.warning("stopped while waiting to continue: %s", interrupted.error)
