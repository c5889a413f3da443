"""One engine of an HA unit: gets ready, stands by or follows as the scheme says, and leads once it has the lease.

Receives a unit, a name and the app; hands epochs to the sinks while it leads.

Invariants:
- It leads only with the lease, and ends when the lease is lost: what it would still write is refused.
- A follower repeats what the unit's book says, on a state directory of its own. Its directory comes to be the unit's
  only after it has delivered everything it held back; if it fails before, the former directory is still in force.
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
from penstock.engine.recent_epochs import Recent
from penstock.engine.role import Assignment, FollowedLeader
from penstock.engine.status_server import StatusServer
from penstock.epoch.report import RunSummary
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, PenstockError
from penstock.ha.schemes import Scheme
from penstock.ha.seed import seed_and_measure
from penstock.ha.unit import KEPT, Kind, Unit, UnitRecord
from penstock.replica.copy_agreement import Hearing, Reporter
from penstock.replica.lag import may_be_others, must_resync, was_left_behind
from penstock.replica.lead import Lead
from penstock.replica.membership import Voice
from penstock.replica.pace import Pace
from penstock.replica.rejoin import rejoined
from penstock.replica.spare_capacity import Priority, behind_seconds, pauses
from penstock.replica.standby import Standby
from penstock.settings import INLINE, Settings
from penstock.spark.session import SparkSession, session, warm_up
from penstock.state.directory import StateDirectory

#: how often it looks at the unit, in seconds
LOOK_SECONDS = 0.1


class EngineMember:
    """An engine of a unit. `run` returns when the unit is done or this engine is to leave."""

    def __init__(
        self,
        unit: Unit,
        name: str,
        kind: Kind,
        program: Callable[[], Program],
        settings: Settings,
        tell: Callable[[str], None] = print,
    ) -> None:
        self._unit, self._name, self._kind, self._tell = unit, name, kind, tell
        self._program, self._settings = program, settings
        asked = unit.record().pending.get(name)
        self._asked_at = time.time() if asked is None else asked[1]
        self._session = unit.store.start_session(unit.launch.lease_seconds)
        self._voice = Voice(unit, self._session, name, kind)
        self._say = self._voice.say
        self._say(phase="starting")
        self._spark: SparkSession | None = None
        self._lease: Lease | None = None
        self._leads: Lead | None = None
        self._hearing: Hearing | None = None
        #: where questions and commands come in
        self._serving = contextlib.ExitStack()
        self._gauge, self._pace, self._recent = LoadGauge(), Pace(), Recent()
        self._resync = False
        #: whether it has been started and not yet warmed up
        self._cold = False
        self._priority = Priority()

    def run(self) -> None:
        """Be an engine of the unit until it ends or lets this one go."""
        try:
            if self._unit.primary(self._name) is not None:
                self._priority.lower()
            self._get_ready()
            if self._kind == "active":
                self._follow()
            elif (lease := self._stand_by()) is not None:
                self._lead(lease)
        except PenstockError as error:
            if may_be_others(error, led=self._leads is not None):
                ended = (self._name, error.exit_code, "\n".join(error.parts()), self._voice.me.epoch)
                self._unit.change(lambda now: replace(now, errors=(*now.errors[1 - KEPT :], ended)))
            raise
        finally:
            self._session.close()

    def _get_ready(self) -> None:
        if self._settings.master != INLINE:
            self._tell("starting Spark")
            log = self._unit.log(f"{self._name}-spark")
            log.parent.mkdir(parents=True, exist_ok=True)
            self._spark = session(self._settings, log)
            if self._unit.primary(self._name) is None:  # the first epoch is waited for, and rehearsal enough
                self._cold = True
                return
            warm_up(self._spark.sparkContext, self._settings.master)
        self._started(time.time() - self._asked_at)

    def _started(self, took: float) -> None:
        self._unit.change(lambda now: now.add_measurements(start=took))
        self._tell(f"ready after {took:.1f} s")

    # -- standing by -----------------------------------------------------------------------------

    def _stand_by(self) -> Lease | None:
        """Wait for the lease, with as much at hand as the scheme asks for; None when there is no more need for us."""
        self._say(phase="ready")
        standby = Standby(self._name, self._unit, self._program, self._settings, self._spark, self._say)
        found, reporter = list[Lease](), Reporter(self._program(), self._unit.shared_records, self._say)

        def look() -> bool:
            if (lease := self._acquired()) is not None:
                found.append(lease)
                return True
            record = self._unit.record()
            standby.look(record)
            reporter.look()
            return self._dismissed(record)

        while not self._with_patience(look):
            pass
        standby.complete()
        return found[0] if found else None

    def _with_patience(self, look: Callable[[], Any]) -> Any:
        """Look at the unit; a coordination store that is away for a moment stops nobody whose session lives."""
        try:
            return look()
        except ExternalError as away:
            if (
                away.condition != "STORE_UNAVAILABLE"
                or self._lease is not None
                or not self._session.is_held()
            ):
                raise
            time.sleep(LOOK_SECONDS)

    def _acquired(self, *own: Path) -> Lease | None:
        """The lease, if it is free within a moment."""
        self._rejoin()
        lease = self._unit.lease(self._session, own, LOOK_SECONDS)
        if lease is not None and self._dismissed(self._unit.record()):
            lease.resign()
            return None
        if lease is not None:
            self._priority.restore()
        return lease

    def _rejoin(self) -> None:
        """Stand in the unit again if our session has ended: without a lease nothing is lost with it."""
        if not self._session.is_held():
            self._session = rejoined(self._unit, self._session, self._voice, self._name)
            self._tell("its session had ended: it is in the unit again")

    # -- leading ---------------------------------------------------------------------------------

    def _lead(self, lease: Lease) -> None:
        """Lead on the directory in force."""
        directory = Path(self._unit.record().directory)
        warm = self._voice.me.directory == str(directory) and self._voice.me.cached_bytes > 0
        assignment = Assignment(self._name, self._unit.shared_records, self._unit.root, has_warm_cache=warm)
        engine = self._engine(directory, assignment, lease)
        self._lease = lease
        self._installed(lease, engine, time.time())
        self._ended(self._watched(engine), engine)

    def _installed(self, lease: Lease, engine: Engine, began: float, *, promoted: bool = False) -> None:
        """Write down that we lead; what the others reach is heard before the first epoch is decided."""
        patience, directory = self._settings.straggler_seconds, engine.state.path
        self._hearing = Hearing(engine.program, self._unit, self._name, patience, self._say, self._tell)
        self._hearing.hear()
        lead = Lead(
            self._name,
            lease.generation,
            directory,
            self._voice.me.since,
            promoted=promoted,
            semantics=str(self._settings.semantics),
            began=began,
        )
        self._unit.change(lead.installed)
        self._leads = lead
        self._say(phase="primary", directory=str(directory), reach={})
        self._tell(f"leads, generation {lease.generation}, on {directory}")

    def _engine(self, directory: Path, assignment: Assignment, lease: Lease | None) -> Engine:
        settings = replace(self._settings, state=directory, warm_up=self._cold)
        return Engine(self._program(), settings, self._spark, lease, assignment)

    def _watched(self, engine: Engine, beside: Callable[[Engine], None] | None = None) -> RunSummary:
        """Run an engine while a thread looks at the unit, and does what there is to do beside."""
        over, failure = threading.Event(), []

        def look() -> None:
            try:
                while not over.is_set():
                    if self._lease is not None and not self._lease.is_held():
                        engine.stop()
                        self._lease.check()
                    elif self._lease is None:
                        self._rejoin()
                    with contextlib.suppress(ExternalError):
                        record = self._unit.record()
                        if self._dismissed(record):
                            engine.stop()
                        self._at_the_lead(engine, record)
                    if beside is not None:
                        self._with_patience(partial(beside, engine))
                    over.wait(LOOK_SECONDS)
            except BaseException as error:
                failure.append(error)
                engine.stop()

        thread = threading.Thread(target=look, name="unit", daemon=True)
        thread.start()

        def running(phase: str) -> None:
            if phase == "running":
                self._serving.enter_context(StatusServer(engine, self._recent))
            if phase == "running" and self._leads is not None:
                self._leads.ready_at = time.time()
                self._serve(engine)

        try:
            with self._serving:
                return engine.run(partial(self._epoch, engine), on_phase=running)
        finally:
            over.set()
            thread.join(timeout=10)
            if failure:
                raise failure[0]

    def _serve(self, engine: Engine) -> None:
        """Accept commands: people know the directory that the unit was started on."""
        self._serving.enter_context(JobServer(engine.program, self._unit.root))

    def _epoch(self, engine: Engine, report: EpochReport) -> None:
        waiting = {} if engine.admission is None else engine.admission.backlog
        behind = round(behind_seconds(report.units, report.seconds, waiting), 1)
        self._say(epoch=report.epoch, behind=behind, repeats=report.needs_replay)
        self._recent.add(report)
        lead = self._leads
        if lead is None:
            return
        self._gauge.add(report)
        wire, first = lead.wire(report), lead.is_first_result(report)
        if wire is not None and self._cold:  # it was still starting meanwhile
            self._started(lead.began + wire - self._asked_at)
            self._cold, wire = False, None
        if wire is None and not first:
            return

        def resulted(record: UnitRecord) -> UnitRecord:
            figures = {} if wire is None else {"wire": wire}
            if first:
                record, more = lead.resulted(record, report, engine.role.recovery)
                figures |= more
            return record.add_measurements(**figures)

        with contextlib.suppress(ExternalError):  # a store that is away stops nobody whose lease lives
            self._unit.change(resulted)

    def _at_the_lead(self, engine: Engine, record: UnitRecord) -> None:
        """Now and then, while it leads: say what it does, and do what the controller asks for."""
        engine.checkpoint_every(record.checkpoint_every)
        if self._hearing is not None:
            self._hearing.hear()
        if self._leads is not None and engine.admission is not None:
            seconds = self._pace.wanted(self._unit, record, engine.admission.last_admitted, engine.program)
            engine.admission.throttle_seconds = seconds
        if self._leads is None or not self._gauge.due:
            return
        if load := self._gauge.load():
            self._say(load=load)
        if figures := self._gauge.figures():
            self._unit.change(lambda now: now.add_measurements(**figures))

    def _ended(self, run: RunSummary, engine: Engine) -> None:
        """The engine came to its end without an error: all is read, or we are to leave."""
        if self._lease is None:
            return
        drained = engine.admission is not None and engine.admission.drained.is_set()
        if drained:
            self._unit.change(lambda now: replace(now, phase="done") if now.phase == "running" else now)
        self._tell(f"ends after {run.epochs} epochs, {'all is read' if drained else 'as asked'}")
        self._lease.resign()

    # -- following -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Repeat the leader's epochs on a directory of our own until we come to lead."""
        own, code = self._unit.replica(self._name), self._program().code
        while True:
            self._say(phase="ready", directory=str(own), epoch=-1)
            while self._is_other(code) or not self._unit.is_followable():  # whoever is up leads
                if (lease := self._acquired(own)) is not None:
                    self._lead(lease)
                    return
                if self._dismissed(self._unit.record()):
                    return
            epoch, figures = seed_and_measure(own, StateDirectory(Path(self._unit.record().directory)))
            self._unit.change(lambda now, figures=figures: now.add_measurements(**figures))  # type: ignore[misc]
            self._tell(f"follows from epoch {epoch} on")
            self._say(phase="following", epoch=epoch)
            self._resync = False
            assignment = Assignment(
                self._name,
                self._unit.shared_records,
                self._unit.root,
                leader=FollowedLeader.of(self._unit),
                holds_rows=self._unit.record().scheme is not Scheme.active_replication,
            )
            engine = self._engine(own, assignment, None)
            engine.role.leader_committed = self._unit.find_committed()
            reporter = Reporter(engine.program, self._unit.shared_records, self._say)
            try:
                run = self._watched(engine, partial(self._beside, reporter))
            except PenstockError as error:
                if self._lease is not None or not was_left_behind(error):
                    raise
            else:
                if not self._resync:
                    self._ended(run, engine)
                    return
            self._tell("is too far behind: takes over the leader's state")

    def _is_other(self, code: Mapping[str, str]) -> bool:
        """Whether our code is not that of the last leader, so that we may not follow but lead, since nobody does;
        raises if somebody does."""
        if self._unit.primary(self._name) is not None:
            check_replica(code, self._unit.shared_records.read_code(self._unit.record().generation))
            return False
        last = self._unit.shared_records.read_code()
        return last is not None and last != code

    def _beside(self, reporter: Reporter, engine: Engine) -> None:
        """What a follower does beside epochs: look for the lease, let go of rows that the sinks have."""
        if self._lease is not None:
            return
        reporter.look()
        record = self._unit.record()
        done, epochs = (
            StateDirectory(Path(record.directory)).manifests.epochs(),
            self._unit.shared_records.epochs(),
        )
        engine.role.leader_committed = self._unit.find_committed()
        primary = self._unit.primary(self._name)
        behind = primary.behind if primary is not None and primary.host == self._voice.me.host else None
        if (paused := pauses(self._voice.me.paused, behind)) != self._voice.me.paused:
            self._say(paused=paused)
            engine.pause(paused)
        if paused:
            return  # the one that leads is up, so there is no lease to be had
        every = max(record.checkpoint_every, self._settings.checkpoint_every)
        if must_resync(self._voice.me.epoch, epochs, done, every):
            self._resync = True  # before the lease: to lead from here it would need input that may be gone
            engine.stop()
            return
        if (lease := self._acquired(engine.state.path)) is not None:
            self._promote(engine, lease)
            return
        engine.delivery.drop_held(engine.role.leader_committed)
        if record.scheme is Scheme.active_replication:
            engine.delivery.release()
        else:
            engine.delivery.hold()
        held = len(engine.delivery.held_epochs)
        if held != self._voice.me.held or self._voice.unsaid:
            self._say(held=held)

    def _promote(self, engine: Engine, lease: Lease) -> None:
        began, on_released = (
            time.monotonic(),
            partial(self._installed, lease, engine, time.time(), promoted=True),
        )
        self._tell(f"has the lease, generation {lease.generation}")
        self._lease = lease
        engine.promote(lease, on_released)
        took = time.monotonic() - began
        self._say(held=0)
        self._serve(engine)
        with contextlib.suppress(ExternalError):
            self._unit.change(lambda now: now.add_measurements(deliver=took))

    # -- the unit --------------------------------------------------------------------------------

    def _dismissed(self, record: UnitRecord) -> bool:
        return record.phase != "running" or self._name in record.leaving
