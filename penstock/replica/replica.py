"""Runs one engine of an HA unit: it stands by or follows as the scheme asks, and leads once it has the lease.

Invariants:
- It leads only with the lease, and stops when the lease is lost: what it would still write is refused.
- A follower repeats the epochs of the unit's epoch records, on a state directory of its own. Its directory becomes the
  unit's only after it has delivered all rows it held back; if it fails before, the former directory is in force.
- An outage of the coordination store ends no engine. One that follows or stands by continues. One that led has stopped
  writing with its lease; it waits for the store and then takes part as if it was started again, with another lease and
  a higher generation.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.catalogue.program import Program
from penstock.coordination.lease import Lease
from penstock.engine.code_check import check_replica
from penstock.engine.engine import Engine
from penstock.engine.job_server import JobServer
from penstock.engine.load_gauge import LoadGauge
from penstock.engine.role import Assignment, FollowedLeader
from penstock.engine.status_server import RecentEpochs, StatusServer
from penstock.epoch.report import RunSummary
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, PenstockError
from penstock.ha.schemes import Scheme
from penstock.ha.seed import seed_and_measure
from penstock.ha.unit import KEPT, Kind, Unit, UnitRecord
from penstock.replica.copy_agreement import CopyReporter
from penstock.replica.follower import Follower
from penstock.replica.lag import is_left_behind, may_end_others
from penstock.replica.leader import Leader, LeadershipStart
from penstock.replica.outages import has_stopped, is_in_force, is_outage, rejoin_after_outage
from penstock.replica.registration import Registration
from penstock.replica.spare_capacity import Priority, behind_seconds
from penstock.replica.standby import Standby
from penstock.settings import INLINE, Settings
from penstock.spark.session import SparkSession, session, warm_up
from penstock.state.directory import StateDirectory
from penstock.state.durable import make_private

#: how often it looks at the unit, in seconds
LOOK_SECONDS = 0.1
#: how long an engine that is to stop may take for that, in seconds
STOP_SECONDS = 30.0


class Replica:
    """An engine of a unit. `run` returns when the unit is done or this engine is to leave."""

    def __init__(
        self,
        unit: Unit,
        name: str,
        kind: Kind,
        program: Callable[[], Program],
        settings: Settings,
        print_line: Callable[[str], None] = print,
    ) -> None:
        self._unit, self._name, self._kind, self._print = unit, name, kind, print_line
        self._program, self._settings = program, settings
        request = unit.record().pending.get(name)
        self._requested_at = time.time() if request is None else request[1]
        first = unit.store.start_session(unit.launch.lease_seconds)
        self._registration = Registration(unit, first, name, kind)
        self._registration.report(phase="starting")
        self._spark: SparkSession | None = None
        self._lease: Lease | None = None
        self._leader: Leader | None = None
        #: the engine that runs or ran last, and the thread that looks at the unit meanwhile
        self._engine: Engine | None = None
        self._watcher: threading.Thread | None = None
        #: the sockets for status and commands
        self._servers = contextlib.ExitStack()
        self._gauge, self._recent = LoadGauge(), RecentEpochs()
        #: whether Spark is started, where there is one; whether it has started and is not warmed up yet
        self._is_started = self._is_cold = False
        self._priority = Priority()
        #: the generation of the last leader whose code was compared with this engine's
        self._checked_generation = -1

    def run(self) -> None:
        """Be an engine of the unit until the unit ends or releases this one."""
        try:
            while (outage := self._take_part()) is not None:
                self._wait_for_store(outage)
        except PenstockError as error:
            if may_end_others(error, led=self._leader is not None):
                epoch = self._registration.entry.epoch
                ended = (self._name, error.exit_code, "\n".join(error.parts()), epoch)
                with contextlib.suppress(ExternalError):  # the error itself matters more
                    self._unit.change(lambda now: replace(now, errors=(*now.errors[1 - KEPT :], ended)))
            raise
        finally:
            self._registration.session.close()

    # -- outages of the store --------------------------------------------------------------------

    def _take_part(self) -> PenstockError | None:
        """Be what the unit needs until it ends or releases this engine; returns the error if an outage of the
        coordination store is the reason why this engine stopped before."""
        try:
            if not self._is_started:
                self._start_spark()
                self._is_started = True
            if self._kind == "active":
                self._follow()
            elif (lease := self._stand_by()) is not None:
                self._lead(lease)
        except PenstockError as error:
            is_over = is_outage(error, self._registration.session) and has_stopped(
                self._engine, self._watcher, STOP_SECONDS
            )
            if not is_over:
                raise
            return error
        return None

    def _wait_for_store(self, outage: PenstockError) -> None:
        """Wait until the coordination store is back, and join the unit again, as what the scheme asks for now."""
        self._print(
            f"waits until the coordination store is back, and writes nothing until then: {outage.text()}"
        )
        self._lease = self._leader = self._engine = self._watcher = None
        self._checked_generation = -1
        self._kind = rejoin_after_outage(self._unit, self._registration)
        self._print("the coordination store is back: it is in the unit again")

    def _start_spark(self) -> None:
        if self._unit.primary(self._name) is not None:
            self._priority.lower()
        if self._settings.master == INLINE:
            return
        if self._spark is None:
            self._print("starting Spark")
            log = self._unit.log(f"{self._name}-spark")
            make_private(log.parent)
            self._spark = session(self._settings, log)
        if (
            self._unit.primary(self._name) is None
        ):  # nobody leads: the first epoch is urgent, and warms up too
            self._is_cold = True
            return
        warm_up(self._spark.sparkContext, self._settings.master)
        self._report_ready(time.time())

    def _report_ready(self, at: float) -> None:
        self._is_cold = False
        seconds = at - self._requested_at
        self._unit.change(lambda now: now.add_measurements(start=seconds))
        self._print(f"ready after {seconds:.1f} s")

    # -- the unit --------------------------------------------------------------------------------

    def _is_dismissed(self, record: UnitRecord) -> bool:
        return record.phase != "running" or self._name in record.leaving

    def _retry_outage(self, look: Callable[[], Any]) -> Any:
        """Look at the unit. An outage of the coordination store stops no engine that does not lead."""
        try:
            return look()
        except ExternalError as error:
            if error.condition != "STORE_UNAVAILABLE" or self._lease is not None:
                raise
            self._unit.require_launch()
            time.sleep(LOOK_SECONDS)

    def _rejoin_if_lost(self) -> None:
        """Join the unit again if the session has ended: without a lease nothing is lost with it."""
        if not self._registration.session.is_held():
            self._registration.rejoin()
            self._print("its session had ended: it is in the unit again")

    def _acquire_lease(self, *own: Path) -> Lease | None:
        """The lease, if it is free within a moment."""
        self._rejoin_if_lost()
        lease = self._unit.lease(self._registration.session, own, LOOK_SECONDS)
        if lease is not None and self._is_dismissed(self._unit.record()):
            lease.resign()
            return None
        if lease is not None:
            self._priority.restore()
        return lease

    # -- standing by -----------------------------------------------------------------------------

    def _stand_by(self) -> Lease | None:
        """Wait for the lease, prepared as the scheme asks; None if this engine is not needed any more."""
        report = self._registration.report
        report(phase="ready")
        standby = Standby(self._name, self._unit, self._program, self._settings, self._spark, report)
        program = self._program()
        leases, copies = list[Lease](), CopyReporter(program, self._unit.shared_records, report)

        def look() -> bool:
            if (lease := self._acquire_lease()) is not None:
                leases.append(lease)
                return True
            record = self._unit.record()
            self._check_code(program.code, record)
            standby.look(record)
            copies.look()
            return self._is_dismissed(record)

        while not self._retry_outage(look):
            pass
        standby.complete()
        return leases[0] if leases else None

    def _check_code(self, code: Mapping[str, str], record: UnitRecord) -> None:
        """Compare this engine's code with that of each leader, once the leader has written it; raise if it differs."""
        if record.generation == self._checked_generation or self._unit.primary(self._name) is None:
            return
        leaders = self._unit.shared_records.read_code(record.generation)
        check_replica(code, leaders)
        if leaders is not None:
            self._checked_generation = record.generation

    # -- leading ---------------------------------------------------------------------------------

    def _lead(self, lease: Lease) -> None:
        """Lead on the directory in force."""
        directory, entry = Path(self._unit.record().directory), self._registration.entry
        has_warm_cache = entry.directory == str(directory) and entry.cached_bytes > 0
        assignment = Assignment(
            self._name, self._unit.shared_records, self._unit.root, has_warm_cache=has_warm_cache
        )
        engine = self._create_engine(directory, assignment, lease)
        self._lease = lease
        self._become_leader(lease, engine, time.time())
        self._finish(self._run_engine(engine), engine)

    def _become_leader(
        self, lease: Lease, engine: Engine, lease_at: float, *, was_following: bool = False
    ) -> None:
        start = LeadershipStart(
            self._name,
            lease.generation,
            engine.state.path,
            self._registration.entry.since,
            was_following=was_following,
            semantics=str(self._settings.semantics),
            lease_at=lease_at,
        )
        self._leader = Leader(
            self._unit,
            self._registration,
            engine,
            start,
            self._gauge,
            self._print,
            self._report_ready if self._is_cold else None,
        )

    def _create_engine(self, directory: Path, assignment: Assignment, lease: Lease | None) -> Engine:
        settings = replace(self._settings, state=directory, warm_up=self._is_cold)
        return Engine(self._program(), settings, self._spark, lease, assignment)

    def _run_engine(self, engine: Engine, look_too: Callable[[], None] | None = None) -> RunSummary:
        """Run an engine while a thread looks at the unit."""
        over, failures = threading.Event(), list[BaseException]()

        def watch() -> None:
            try:
                while not over.is_set():
                    self._retry_outage(partial(self._look, engine))
                    if look_too is not None:
                        self._retry_outage(look_too)
                    over.wait(LOOK_SECONDS)
            except BaseException as error:
                failures.append(error)
                engine.stop()
                if not over.wait(STOP_SECONDS):  # it hangs: the unit is to start another engine
                    self._registration.session.close()

        thread = threading.Thread(target=watch, name="unit", daemon=True)
        self._engine, self._watcher = engine, thread
        thread.start()

        def on_phase(phase: str) -> None:
            if phase != "running":
                return
            self._servers.enter_context(StatusServer(engine, self._recent))
            if self._leader is not None:
                self._leader.start.ready_at = time.time()
                self._accept_commands(engine)

        try:
            with self._servers:
                return engine.run(partial(self._on_epoch, engine), on_phase=on_phase)
        finally:
            over.set()
            thread.join(timeout=10)
            if failures:
                raise failures[0]

    def _look(self, engine: Engine) -> None:
        """Stop the engine when its lease is lost or it is dismissed; apply what the unit's record asks for."""
        if self._lease is None:
            self._rejoin_if_lost()
        elif not self._lease.is_held():
            engine.stop()
            self._lease.check()
        with contextlib.suppress(ExternalError):
            record = self._unit.record()
            if self._is_dismissed(record):
                engine.stop()
            engine.checkpoint_every(record.checkpoint_every)
            if self._leader is not None:
                self._leader.look(record)

    def _accept_commands(self, engine: Engine) -> None:
        """Accept commands at the directory that the unit was started on, which is the one that people know."""
        self._servers.enter_context(JobServer(engine.program, self._unit.root))

    def _on_epoch(self, engine: Engine, report: EpochReport) -> None:
        backlog = {} if engine.admission is None else engine.admission.backlog
        behind = round(behind_seconds(report.units, report.seconds, backlog), 1)
        self._registration.report(epoch=report.epoch, behind=behind, repeats=report.needs_replay)
        self._recent.add(report)
        if self._leader is not None:
            self._leader.on_epoch(report)

    def _finish(self, run: RunSummary, engine: Engine) -> None:
        """After an engine ended without an error, because all is read or it is dismissed: resign."""
        if self._lease is None:
            return
        drained = engine.admission is not None and engine.admission.drained.is_set()
        if drained:
            self._unit.change(lambda now: replace(now, phase="done") if now.phase == "running" else now)
        self._print(f"ends after {run.epochs} epochs, {'all is read' if drained else 'as requested'}")
        self._lease.resign()

    # -- following -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Repeat the leader's epochs on a directory of this engine's own until it is promoted."""
        own, code = self._unit.replica(self._name), self._program().code
        report = self._registration.report
        while True:
            report(phase="ready", directory=str(own), epoch=-1)
            # the first that is up leads
            while (
                self._runs_other_code(code)
                or is_in_force(self._unit, self._name, own)
                or not self._unit.is_followable()
            ):
                if (lease := self._acquire_lease(own)) is not None:
                    self._lead(lease)
                    return
                if self._is_dismissed(self._unit.record()):
                    return
            epoch, figures = seed_and_measure(own, StateDirectory(Path(self._unit.record().directory)))
            self._unit.change(lambda now, figures=figures: now.add_measurements(**figures))  # type: ignore[misc]
            self._print(f"follows from epoch {epoch} on")
            report(phase="following", epoch=epoch)
            assignment = Assignment(
                self._name,
                self._unit.shared_records,
                self._unit.root,
                leader=FollowedLeader.of(self._unit),
                holds_rows=self._unit.record().scheme is not Scheme.active_replication,
            )
            engine = self._create_engine(own, assignment, None)
            follower = Follower(self._name, self._unit, self._registration, engine, self._acquire_lease)
            try:
                run = self._run_engine(engine, partial(self._look_as_follower, follower, engine))
            except PenstockError as error:
                if self._lease is not None or not is_left_behind(error):
                    raise
            else:
                if not follower.must_resync:
                    self._finish(run, engine)
                    return
            self._print("is too far behind: copies the leader's state")

    def _runs_other_code(self, code: Mapping[str, str]) -> bool:
        """Whether this engine has other code than the last leader, so that it may lead but not follow. Raises if there
        is a leader."""
        if self._unit.primary(self._name) is not None:
            check_replica(code, self._unit.shared_records.read_code(self._unit.record().generation))
            return False
        last = self._unit.shared_records.read_code()
        return last is not None and last != code

    def _look_as_follower(self, follower: Follower, engine: Engine) -> None:
        if self._lease is None and (lease := follower.look()) is not None:
            self._promote(engine, lease)

    def _promote(self, engine: Engine, lease: Lease) -> None:
        started_at, lease_at = time.monotonic(), time.time()
        self._print(f"has the lease, generation {lease.generation}")
        self._lease = lease
        engine.promote(
            lease,
            lambda: self._become_leader(lease, engine, lease_at, was_following=True),
        )
        seconds = time.monotonic() - started_at
        self._registration.report(held=0)
        self._accept_commands(engine)
        with contextlib.suppress(ExternalError):
            self._unit.change(lambda now: now.add_measurements(deliver=seconds))
