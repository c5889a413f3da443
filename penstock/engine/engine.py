"""The engine: one Spark application that runs an app's jobs in a loop of epochs until it is stopped.

Receives an `App` and `Settings`; passes a report of every epoch to its watcher, and results to the sinks.

The loop is the engine's own. Admission fixes the spans of the next epoch, the runner executes it as one Spark job, and
the epoch records and manifests in the state directory are the only log.

Guarantees: after `run` returns or raises, starting again with the same app and state directory continues where
it stopped; nothing is lost and nothing delivered twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.coordination.leadership import lead_unit
from penstock.engine.collect import Meter, Worker
from penstock.engine.duty import Duty
from penstock.engine.elasticity import Elasticity
from penstock.engine.fleet import SparkFleet
from penstock.engine.role import Seat
from penstock.engine.state_continuity import continue_state
from penstock.engine.state_location import housed, vacated
from penstock.epoch.admission import Admission, AdmissionSettings, Gate
from penstock.epoch.job_failures import JobShares, explain_failure
from penstock.epoch.migration import MapChange, MigrationResult
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.open_logs import OpenLogs
from penstock.epoch.rate_control import new_rate_control
from penstock.epoch.report import RunSummary
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages
from penstock.errors import InternalError, PenstockError
from penstock.query.logical import App
from penstock.query.physical import Plan
from penstock.settings import INLINE, Settings, check_interval, cores_of
from penstock.spark.executors import Executors
from penstock.spark.session import SparkSession, session, warm_up
from penstock.spark.stages import SparkStages
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.state.buckets import check_bucket_count
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence

Watcher = Callable[[EpochReport], None]
#: told in a word or two what the engine is about while there are no epochs yet
Teller = Callable[[str], None]


class Engine:
    """Runs one application. `spark` is the session to use; by default one is started.

    With a `fence` (a lease: given, or got from the coordination store that the settings name) it takes the state
    directory from any engine of a lower generation, and stops with FENCED or LEASE_LOST when it may no longer write.
    As part of an HA unit it has a `duty`; one that follows carries out the leader's epochs until it is promoted.
    """

    def __init__(
        self,
        app: App | Program,
        settings: Settings | None = None,
        spark: SparkSession | None = None,
        fence: Fence | None = None,
        duty: Duty | None = None,
    ) -> None:
        self.settings = settings or Settings()
        check_bucket_count(self.settings.buckets)
        check_interval(self.settings)
        self.program = program_of(app, self.settings.state) if isinstance(app, App) else app
        self.seat = Seat(self.settings.state, duty, self.settings.semantics)
        self.state, self.delivery = self.seat.state, self.seat.delivery
        self.admission: Admission | None = None
        self.executors: Executors | None = None
        self._spark = spark
        self._fence = fence
        self._failure: BaseException | None = None
        self._stop, self._paused = threading.Event(), threading.Event()
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

    def workers(self) -> list[Worker]:
        """Who works: the executors, or this process where the master is local."""
        if self.executors is not None and self.executors.can_change:
            return [Worker(one.id, one.cores) for one in self.executors.staying()]
        return [Worker("driver", cores_of(self.settings.master))]

    def _backlog(self) -> Mapping[str, int]:
        return {} if self.admission is None else self.admission.backlog

    @property
    def maps(self) -> BucketMaps | None:
        """The bucket maps in force; None before there are any."""
        return None if self._runner is None else self._runner.maps

    def remap(self, change: MapChange) -> Future[MigrationResult]:
        """Have the bucket maps changed between two epochs to come, without stopping anything. From any thread."""
        if self._runner is None:
            raise InternalError("NOT_RUNNING", "the engine has no bucket maps yet: it has not begun")
        return self._runner.remap(change)

    def checkpoint_every(self, epochs: int) -> None:
        """Make the state durable so often from now on, if the settings let that vary. From any thread."""
        if self._runner is not None and self.settings.checkpoint_varies:
            self._runner.checkpoints.every = max(epochs, 1)

    def greet(self, place: ExecutorLocation, cores: int = 1) -> None:
        """Have an executor that has just come load what tasks need, so that its first epoch does not wait for that."""
        if self._runner is not None:
            self._runner.warm_up(place, cores)

    def stop(self) -> None:
        """Ask a run to end after the epoch under way. May be called from another thread or a signal handler."""
        self._stop.set()

    def run(
        self, watch: Watcher | None = None, *, for_seconds: float | None = None, tell: Teller | None = None
    ) -> RunSummary:
        """Run epochs until stopped, until `for_seconds` have passed, or (with `drain`) until all is read."""
        tell = tell or (lambda _: None)
        if self.settings.coordination is None or self._fence is not None or self.seat.has_duty:
            return self._run_claimed(watch, for_seconds, tell)
        tell("waiting to lead")
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
                return self._run_claimed(watch, for_seconds, tell)
            finally:
                self._fence = None

    def _run_claimed(self, watch: Watcher | None, for_seconds: float | None, tell: Teller) -> RunSummary:
        drops_state = self.settings.drop_state
        facts = self.seat.claimed(self.program, self._fence, drops_state=drops_state)
        try:
            leads = self.seat.decides.is_set()
            self.program.start(follows=not leads, fenced_directory=self.state.fenced_directory)
            continue_state(self.state, facts, self.program, leads=leads, drops_state=drops_state, tell=tell)
            self.seat.come_back(self.program)
            logs = self.seat.logs = OpenLogs(self.state, facts, self.settings.buckets, leads=leads)
            taken = self.seat.taken()
            # what newer commands read, the program itself finds out about: it may cost one job alone
            if leads and self.program.commands == taken:
                logs.start(self.plan)  # a wrong path is told before Spark is started
            self.program.open(facts["id"], logs.start_one, taken)
            spark = self._spark
            if spark is None and self.settings.master != INLINE:
                tell("starting Spark")
                spark = session(self.settings, self.state.path / "engine.log")

            def get_ready() -> None:
                if self.settings.warm_up and spark is not None:
                    tell("warming up")
                    warm_up(spark.sparkContext, self.settings.master)
                with self._busy:
                    if self.seat.decides.is_set():
                        # the clock of a live log begins when we are ready for it
                        logs.start(self.plan, again=True)
                tell("running")
                self._ready.set()

            return self._run(spark, watch, for_seconds, get_ready, logs)
        finally:
            with contextlib.suppress(PenstockError):
                for scan in self.plan.scans.values():
                    scan.stream.log.stopped()
            self.program.close()
            self.state.release()

    def pause(self, paused: bool) -> None:
        """Have no further epoch begin, or go on. Who leads is never paused."""
        self._paused.set() if paused and not self.seat.decides.is_set() else self._paused.clear()

    def promote(self, fence: Fence, on_released: Callable[[], None] = lambda: None) -> None:
        """Have an engine that follows lead, from the end of the epoch under way: it delivers what it held back, and
        goes on with the epochs that are recorded, then with its own. Call `on_released` when
        nothing is held any more."""
        self._ready.wait()
        with self._busy:
            if self._failure is not None:  # who has failed in the epoch that was under way leads nobody
                raise explain_failure(self._failure)
            self.seat.promoted(fence, self.program)
            self._fence = fence
            self._paused.clear()
            if self._runner is not None:
                self._runner.fence = fence
            on_released()
            self.seat.decides.set()

    @property
    def plan(self) -> Plan:
        """The plan with all commands so far."""
        return self.program.epochs.plan(self.program.commands)

    # -- running ---------------------------------------------------------------------------------

    def _run(
        self,
        spark: SparkSession | None,
        watch: Watcher | None,
        for_seconds: float | None,
        get_ready: Callable[[], None],
        logs: OpenLogs,
    ) -> RunSummary:
        if spark is not None:
            self.executors = Executors(spark.sparkContext)
            self.executors.begin(self.settings.executors, self.settings.executors_seconds)
        cores = cores_of(self.settings.master)
        if self.executors is not None and self.executors.can_change:
            cores = self.executors.cores
        elif spark is not None and self._spark is not None:
            cores = int(spark.sparkContext.defaultParallelism)
        slices = self.settings.slices or cores
        master = "local" if spark is None else str(spark.sparkContext.master)
        place = housed(self.seat, self.settings, master)
        runner = self._runner = EpochRunner(
            LocalStages() if spark is None else SparkStages(spark.sparkContext),
            self.program,
            self.state,
            RunnerSettings(
                Shape(cores, slices, self.settings.buckets, self.settings.small_epoch_bytes),
                place,
                self.settings.job_seconds,
                MigrationRules(self.settings.move_pause_seconds, self.settings.move_patience_seconds),
                JobShares(self.settings.job_share, self.settings.epoch_seconds),
                self.settings.checkpoint_every,
            ),
            fence=self._fence,
            delivery=self.delivery,
            recovery=self.seat.recovery.actions,
        )
        admission = self.admission = Admission(
            self.program,
            AdmissionSettings(self.settings.drain, self.settings.epoch_interval_seconds),
            lambda scan: new_rate_control(self.settings, scan, self.plan),
            self.seat.recorded_end,
            gate=Gate(lambda: not self._paused.is_set(), self.seat.decides.is_set),
            start_log=logs.start_one,
        )
        run, began = RunSummary(), time.monotonic()
        try:
            try:
                get_ready()
                began = time.monotonic()
                self._begin_elasticity(runner)
                self._run_epochs(runner, admission, run, watch, for_seconds)
            except BaseException as failure:
                self._failure = failure
                raise
            finally:
                self._ready.set()  # whoever promotes us is not to wait for an engine that failed
            runner.checkpoint()
        except Exception as failure:
            if isinstance(failure, PenstockError):
                raise
            raise explain_failure(failure) from failure
        finally:
            if self.elasticity is not None:
                self.elasticity.close()
            runner.close()
            vacated(place)
        run.seconds = time.monotonic() - began
        run.counters = runner.manifest.counters
        return run

    def _begin_elasticity(self, runner: EpochRunner) -> None:
        if self.settings.elastic is None or self.executors is None or not self.executors.can_change:
            return
        self.elasticity = Elasticity(
            self.settings.elastic,
            SparkFleet(self.executors),
            runner.remap,
            lambda: runner.maps,
            lambda: self.plan,
            self.meter,
            runner.warm_up,
            self.state.path,
            self.settings.manager,
        )
        self.elasticity.begin()

    def _run_epochs(
        self,
        runner: EpochRunner,
        admission: Admission,
        run: RunSummary,
        watch: Watcher | None,
        for_seconds: float | None,
    ) -> None:
        """The epoch loop: admit, execute, and again. An epoch that is under way is always finished."""
        deadline = None if for_seconds is None else time.monotonic() + for_seconds
        reached = self.state.committed_end() or Offset()
        while not self._stop.is_set() and (deadline is None or time.monotonic() < deadline):
            if self._fence is not None:
                self._fence.check()  # also while there is nothing to write
            end = admission.admit(reached)
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
        """One epoch, and what depends on its report."""
        number = end.epoch
        with self._busy:
            try:
                self.seat.follow(self.program, number, end.commands)
                report = runner.run(number, start, end)
                admission.observe(report.units, report.seconds, report.pending)
                run.add(report)
                self.meter.add(report)
                self.seat.came_on(report)
                if number % 10 == 9:
                    runner.recycle(self.settings.manifests_kept)
                if watch is not None:
                    watch(report)
            except BaseException as failure:
                self._failure = failure  # known to `promote` before it gets the lock
                raise
            finally:
                self._ended_epoch = number
