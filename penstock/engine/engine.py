"""The engine: one Spark application that runs an app's jobs, epoch after epoch, until it is told to stop.

Receives an `App` and `Settings`; hands a report of every epoch to whoever watches, and results to the sinks.

Guarantees: after `run` returns or raises, starting again with the same app and state directory goes on where
it stopped; nothing is lost and nothing delivered twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.engine.admission import Admission
from penstock.engine.desk import SourceDesk
from penstock.engine.epoch import EpochReport, EpochRunner, Shape, state_place
from penstock.engine.job_shares import JobShares
from penstock.engine.logs import Logs
from penstock.engine.program import Fixed, Program
from penstock.engine.rate import RateControl
from penstock.engine.session import session, warm_up
from penstock.engine.settings import Settings, cores_of
from penstock.engine.source import FORMAT
from penstock.engine.stages import SparkStages
from penstock.query.compile import compiled
from penstock.query.logical import App
from penstock.query.physical import Plan, ScanPlan
from penstock.state.buckets import check_bucket_count
from penstock.state.cache import HostCache
from penstock.state.directory import StateDirectory
from penstock.state.generation import Fence
from penstock.words.errors import InternalError, PenstockError

Watcher = Callable[[EpochReport], None]
#: told in a word or two what the engine is about while there are no epochs yet
Teller = Callable[[str], None]


@dataclass
class Run:
    """What a run of the engine did."""

    epochs: int = 0
    events: int = 0
    late: int = 0
    bad: int = 0
    seconds: float = 0.0
    first_epoch: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


class Engine:
    """Runs one application. `spark` is the session to use; by default one is started.

    With a `fence` (a lease) it takes the state directory from any engine of a lower generation, and stops with FENCED
    or LEASE_LOST when it may no longer write.
    """

    def __init__(
        self,
        app: App | Program,
        settings: Settings | None = None,
        spark: SparkSession | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.settings = settings or Settings()
        check_bucket_count(self.settings.buckets)
        self.program: Program = Fixed(compiled(app)) if isinstance(app, App) else app
        self.state = StateDirectory(self.settings.state)
        self.admission: Admission | None = None
        self._spark = spark
        self._fence = fence
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._ended_epoch = -1
        self._ready = threading.Event()

    def stop(self) -> None:
        """Ask a run to end after the epoch under way. May be called from another thread or a signal handler."""
        self._stop.set()

    def run(
        self, watch: Watcher | None = None, *, for_seconds: float | None = None, tell: Teller | None = None
    ) -> Run:
        """Run epochs until stopped, until `for_seconds` have passed, or (with `drain`) until all is read."""
        tell = tell or (lambda _: None)
        generation = None if self._fence is None else self._fence.generation
        facts = self.state.claim(self.program.fingerprint, self.program.summary, generation)
        try:
            self.program.begun()
            logs = Logs(self.state, facts, self.settings.buckets)
            logs.start(self.plan)  # a wrong path is told before Spark is started
            self.program.opened(facts["id"], logs.start_one)
            tell("starting Spark")
            spark = self._spark or session(self.settings, self.state.path / "engine.log")

            def get_ready() -> None:
                if self.settings.warm_up:
                    tell("warming up")
                    warm_up(spark.sparkContext, self.settings.master)
                logs.start(self.plan, again=True)  # the clock of a live log begins when we are ready for it
                tell("running")
                self._ready.set()

            return self._run(spark, watch, for_seconds, get_ready, logs)
        finally:
            self.program.closed()
            self.state.release()

    @property
    def plan(self) -> Plan:
        """The plan with all commands so far."""
        return self.program.plan(self.program.commands)

    def _rate(self, scan: ScanPlan) -> RateControl:
        each = scan.stream.log.unit_bytes
        units, least = max(1, self.settings.first_epoch_units // each), max(1_000, 65_536 // each)
        most = self.settings.most_epoch_units
        if most is not None:
            units, least = min(units, most), min(least, most)
        return RateControl(
            self.settings.epoch_seconds,
            units,
            least,
            most or 1 << 60,
            catch_up_seconds=self.settings.catch_up_seconds,
            catch_up_most=self.settings.catch_up_bytes // each,
        )

    # -- running ---------------------------------------------------------------------------------

    def _run(
        self,
        spark: SparkSession,
        watch: Watcher | None,
        for_seconds: float | None,
        get_ready: Callable[[], None],
        logs: Logs,
    ) -> Run:
        cores = cores_of(self.settings.master)
        if self._spark is not None or not self.settings.master.startswith("local"):
            cores = int(spark.sparkContext.defaultParallelism)
        slices = self.settings.slices or cores
        place = state_place(
            self.state,
            self.settings.cache_root,
            self.settings.cache_bytes,
            one_host=str(spark.sparkContext.master).startswith("local"),
        )
        if place.cache is not None:
            cache = HostCache(Path(place.cache), 0)
            cache.clear()  # what an earlier life has left may be incomplete
            cache.claim()
        shape = Shape(cores, slices, self.settings.buckets, self.settings.small_epoch_bytes)
        runner = EpochRunner(
            SparkStages(spark.sparkContext),
            self.program,
            self.state,
            shape,
            place,
            self.settings.job_seconds,
            self._fence,
            JobShares(self.settings.job_share, self.settings.epoch_seconds),
        )
        admission = self.admission = Admission(
            self.program,
            self._rate,
            self.state.recorded_end,
            drain=self.settings.drain,
            least_interval_seconds=self.settings.epoch_interval_seconds,
            ready=self._ready.is_set,
            start_log=logs.start_one,
        )
        desk = SourceDesk(admission)
        run, began = Run(), time.monotonic()
        try:
            # Spark prepares the query while the workers warm up
            query = self._query(spark, desk, self._each_epoch(runner, admission, desk, run, watch))
            try:
                get_ready()
            except BaseException as failure:
                self._failure = failure
                admission.stop()
                self._ready.set()
                query.stop()
                raise
            began = time.monotonic()
            self._wait(query, admission, for_seconds)
        finally:
            desk.close()
            if place.cache is not None:
                HostCache(Path(place.cache), 0).clear()
        run.seconds = time.monotonic() - began
        run.counters = runner.manifest.counters
        return run

    def _each_epoch(
        self, runner: EpochRunner, admission: Admission, desk: SourceDesk, run: Run, watch: Watcher | None
    ) -> Callable[[DataFrame, int], None]:
        def epoch(_: DataFrame, number: int) -> None:
            self._ready.wait()
            if self._failure is not None:
                raise self._failure
            with self._busy:
                try:
                    planned = desk.planned
                    if planned is None or planned[1]["epoch"] != number:
                        raise InternalError(
                            "EPOCH_OUT_OF_STEP",
                            f"Spark runs epoch {number}, but planned {planned and planned[1]['epoch']}",
                            hint="The state directory and Spark's part of it do not belong together.",
                        )
                    report = runner.run(number, *planned)
                    admission.observed(report.units, report.seconds)
                    run.epochs += 1
                    run.events += report.events
                    run.late += report.late
                    run.bad += report.bad
                    run.first_epoch = number if run.first_epoch is None else run.first_epoch
                    self._keep_house(runner, number)
                    if watch is not None:
                        watch(report)
                except BaseException as failure:
                    self._failure = failure
                    raise
                finally:
                    self._ended_epoch = number

        return epoch

    def _keep_house(self, runner: EpochRunner, epoch: int) -> None:
        if epoch % 10 == 9:
            runner.recycle(self.settings.manifests_kept)

    def _query(
        self, spark: SparkSession, desk: SourceDesk, each: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        rows = spark.readStream.format(FORMAT).option("socket", desk.path).load()
        writer = rows.writeStream.foreachBatch(each).queryName(f"{self.program.name}-{os.urandom(3).hex()}")
        return writer.option("checkpointLocation", str(self.state.path / "spark")).start()

    def _wait(self, query: StreamingQuery, admission: Admission, for_seconds: float | None) -> None:
        deadline = None if for_seconds is None else time.monotonic() + for_seconds
        while query.isActive and not self._stop.is_set() and not admission.drained.is_set():
            if deadline is not None and time.monotonic() >= deadline:
                break
            self._stop.wait(0.05)
        admission.stop()
        self._let_end(query, admission)
        failure = None if query.isActive else query.exception()
        query.stop()
        self._raise(failure, admission)

    def _let_end(self, query: StreamingQuery, admission: Admission) -> None:
        """Wait for the epoch under way, also when Spark has its offsets and has not begun it yet."""
        deadline = time.monotonic() + 10
        while query.isActive and self._ended_epoch < admission.admitted and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._busy:
            pass

    def _raise(self, spark_says: Exception | None, admission: Admission) -> None:
        """Tell what ended the run, if it was not us: the first cause, in our own words."""
        cause = self._failure or admission.failure
        if isinstance(cause, PenstockError):
            raise cause
        if cause is not None:
            raise _explained(cause) from cause
        if spark_says is not None:
            raise _explained(spark_says) from spark_says


def _explained(failure: BaseException) -> PenstockError:
    text = str(failure).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind = "A task of the epoch failed" if isinstance(failure, PySparkException) else type(failure).__name__
    return InternalError(
        "EPOCH_FAILED",
        f"{kind}: {lines[-1] if lines else type(failure).__name__}",
        detail=text[-2000:] if len(lines) > 1 else None,
        hint="The epoch is not committed; start again with the same state directory to repeat it.",
    )
