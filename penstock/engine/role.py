"""An engine's role, leader or follower, with what depends on it: state directory, recovery, logs and delivery.

An engine by itself leads. An engine of an HA unit has an `Assignment`; one that follows leads once it is promoted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.program import Program
from penstock.coordination.lease import read_lease
from penstock.delivery.sink_progress import RecordedEpochs
from penstock.engine.code_check import check_replica
from penstock.engine.state_continuity import continue_state
from penstock.epoch.recovery import RecoveryActions, RecoveryOutcome, recover
from penstock.epoch.runner import EpochReport
from penstock.errors import InternalError, PenstockError
from penstock.ha.schemes import Semantics
from penstock.ha.unit import Unit
from penstock.logs.contract import Log
from penstock.query.physical import Plan, ScanPlan
from penstock.retries import Interrupted, Retries
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence
from penstock.state.rollback import roll_back
from penstock.state.shared_records import SharedRecords


@dataclass(frozen=True)
class FollowedLeader:
    """The leader of a unit, as its follower sees it."""

    #: the generation that leads now
    generation: Callable[[], int]
    #: what its logs remember
    log_memory: Callable[[], Mapping[str, Any]]

    @staticmethod
    def of(unit: Unit) -> FollowedLeader:
        """Whoever leads the unit at the moment."""

        def log_memory() -> Mapping[str, Any]:
            facts = StateDirectory(Path(unit.record().directory)).read_existing_facts()
            memory: Mapping[str, Any] = facts.logs
            return memory

        return FollowedLeader(lambda: read_lease(unit.store, unit.leader_path).generation, log_memory)


@dataclass(frozen=True)
class Assignment:
    """What an engine of a unit is started for: to lead on a state directory, or to follow on one of its own."""

    #: the engine's name in the unit; its cache has this name, as several engines may use one state directory
    engine: str
    shared_records: SharedRecords
    #: where dead letters and late events of the whole unit are
    side_output: Path
    #: whom it follows; None: it leads
    leader: FollowedLeader | None = None
    #: whether it holds its rows back while it follows
    holds_rows: bool = False
    #: whether its cache was filled before it leads
    has_warm_cache: bool = False


class EngineRole:
    """The role of one engine, on one state directory."""

    def __init__(
        self, directory: Path, assignment: Assignment | None = None, semantics: Semantics = Semantics.precise
    ) -> None:
        self._assignment = assignment
        self._leader = None if assignment is None else assignment.leader
        self._semantics = semantics
        #: what became of the epochs after the last durable manifest
        self.recovery = RecoveryOutcome(semantics, actions=RecoveryActions(semantics))
        self._is_recovery_reported = False
        self.state = StateDirectory(directory, None if assignment is None else assignment.shared_records)
        #: whether this engine decides what epochs consist of
        self.is_leader = False
        self.logs: OpenLogs | None = None
        self._followed_generation = -1
        #: the last epoch that the leader is known to have committed
        self.leader_committed = -1
        #: whether a job may fail alone in an epoch that applies so many commands
        self._isolates_failures: Callable[[int], bool] = lambda commands: False

    @property
    def cache_owner(self) -> str:
        """The owner of the cache, where several engines may use one state directory."""
        return "" if self._assignment is None else self._assignment.engine

    @property
    def is_in_unit(self) -> bool:
        return self._assignment is not None

    @property
    def has_warm_cache(self) -> bool:
        """Whether the cache was filled before the engine leads."""
        return self._assignment is not None and self._assignment.has_warm_cache

    # -- start and end ---------------------------------------------------------------------------

    def start(
        self,
        program: Program,
        fence: Fence | None,
        buckets: int,
        *,
        drops_state: bool = False,
        on_phase: Callable[[str], None] = lambda _: None,
        retries: Retries | None = None,
    ) -> OpenLogs:
        """Claim the state directory, continue with its state, recover after a loss, and start the logs.

        With `retries` it waits for logs and sinks that are away. On failure: the directory is released again.
        """
        waiting = retries or Retries(is_stopped=lambda: True)
        check = (lambda: None) if fence is None else fence.check
        self.claim(program, fence, drops_state=drops_state)
        try:
            program.start(follows=not self.is_leader, fenced_directory=self.state.fenced_directory)
            continue_state(
                self.state, program, leads=self.is_leader, drops_state=drops_state, on_phase=on_phase
            )
            if self.is_leader:
                self.recovery = recover(self.state, program, self._semantics, at_hand=self.has_warm_cache)
            self.logs = OpenLogs(self.state, buckets, leads=self.is_leader)
            self._deliver_as(program, check)
            applied = self.applied_commands()
            # the program starts the logs of newer commands itself: a failure there may cost one job alone
            logs = self.logs
            if self.is_leader and program.commands == applied:
                # reports a wrong path before Spark starts
                waiting.run("open the logs", lambda: logs.start(program.epochs.plan(applied)), check)
            self._start_deliveries(program, logs, applied, waiting, check)
        except Interrupted as interrupted:
            self.close(program)
            if retries is None:
                raise interrupted.error from None
            raise
        except BaseException:
            self.close(program)
            raise
        return self.logs

    def _deliver_as(self, program: Program, check: Callable[[], None]) -> None:
        """Deliver as the leader, as long as `check` raises nothing, or as a follower under the leader's generation."""
        deliveries, leader = program.deliveries, self._leader
        deliveries.check_lease = check
        deliveries.generation = (lambda: self.state.generation) if leader is None else leader.generation
        deliveries.recorded = RecordedEpochs(self.state.records.newest_epoch, self._digest_of_record)
        if leader is not None and self._assignment is not None and self._assignment.holds_rows:
            deliveries.hold()

    def _digest_of_record(self, epoch: int) -> str:
        """The digest of an epoch's record; empty where there is none any more."""
        record = self.state.records.read(epoch)
        return "" if record is None else record.digest()

    def _start_deliveries(
        self, program: Program, logs: OpenLogs, applied: int, waiting: Retries, check: Callable[[], None]
    ) -> None:
        """Open the sinks that are not away, and deliver what they lack."""
        durable, newest = self.state.manifests.latest().epoch, self.state.records.newest_epoch()
        # a former version recorded an epoch only after it had delivered the one before
        delivered = max(durable, newest - 1)
        former = self.state.facts.former_query_last_epoch
        if former > durable:  # sinks of the present query lack what is repeated of the former one's epochs
            delivered = durable
        waiting.run(
            "open the logs",
            lambda: program.open(
                self.state.facts.id,
                logs.start_one,
                applied,
                self._commands_of_waiting_epochs(program),
                delivered=delivered,
                repeats_after=durable if former > durable else None,
            ),
            check,
        )
        if self.is_leader and self.recovery.has_epochs:
            self._repeat_deliveries(program)

    def _repeat_deliveries(self, program: Program) -> None:
        """Deliver again what sinks got after the last durable epoch, to those that may get rows twice."""
        declared = program.epochs.recoveries(self.state.records.last_commands())
        repeated = [key for key, one in declared.items() if self.recovery.actions.repeats_results(one)]
        program.deliveries.repeat(repeated, self.recovery.durable_epoch)

    def claim(self, program: Program, fence: Fence | None, *, drops_state: bool = False) -> None:
        """Claim the state directory and, to lead a unit, the unit's epoch records before it."""
        generation = None if fence is None else fence.generation
        if self._leader is None:
            self.is_leader = True
            if generation is not None:
                self._claim_records(generation, program)
        else:
            if self.state.shared_records is not None:
                check_replica(program.code, self.state.shared_records.read_code(self._leader.generation()))
            self._isolates_failures = program.epochs.isolates_failures
        self.state.claim(
            program.fingerprint,
            program.summary,
            generation,
            former=program.former_fingerprint,
            drops_state=drops_state and program.app_plan is not None,
            use=None if program.app_plan is None else program.app_plan.identities,
        )
        try:
            if self.is_in_unit:
                self._roll_back_damaged_manifest()
        except PenstockError:
            self.state.release()
            raise

    def _claim_records(self, generation: int, program: Program) -> None:
        if self.state.shared_records is not None:
            self.state.shared_records.take_over(generation)
            self.state.shared_records.write_code(program.code)

    def _roll_back_damaged_manifest(self) -> None:
        """Go back to the manifest before a damaged newest one. In a unit nobody is there to decide this, and all epochs
        are recorded."""
        try:
            self.state.manifests.latest()
        except InternalError:
            roll_back(self.state)

    def close(self, program: Program) -> None:
        """Stop the logs, close the program and release the state directory."""
        with contextlib.suppress(PenstockError):
            for scan in program.epochs.plan(program.commands).scans.values():
                scan.stream.log.stopped()
        program.close()
        self.state.release()

    # -- epochs ----------------------------------------------------------------------------------

    def applied_commands(self) -> int:
        """How many commands the recorded epochs apply; in a follower, the epochs that it has executed."""
        if self.is_leader:
            return self.state.records.last_commands()
        end = self.state.records.read_end(self.state.manifests.latest().epoch)
        return 0 if end is None else end.commands

    def _commands_of_waiting_epochs(self, program: Program) -> list[int]:
        """How many commands each epoch executes that is recorded and has no durable manifest, or that sinks lack."""
        first = 1 + min(self.state.manifests.latest().epoch, program.deliveries.oldest_cursor())
        records = map(self.state.records.read, range(first, self.state.records.newest_epoch() + 1))
        return [record.commands for record in records if record is not None]

    def recorded_end(self, epoch: int) -> Offset | None:
        """The end of an epoch if it is recorded and may be executed here.

        The leader alone decides which jobs fail in an epoch. So where a job may fail alone, a follower waits until the
        leader has committed the epoch.
        """
        end = self.state.records.read_end(epoch)
        if (
            end is None
            or self.is_leader
            or epoch <= self.leader_committed
            or not self._isolates_failures(end.commands)
        ):
            return end
        records = self.state.shared_records  # an engine that records an epoch has committed the one before
        return end if records is not None and records.has(epoch + 1) else None

    def follow(self, program: Program, epoch: int, commands: int) -> None:
        """Before an epoch that another engine has recorded: apply its commands, and read the logs as that engine does.
        Each leader may have started the logs again."""
        if self.is_leader or self._leader is None or self.logs is None:
            return
        program.follow_commands(commands)
        plan, record = program.epochs.plan(commands), self.state.records.read(epoch)
        generation = 0 if record is None else record.generation
        is_new_leader = generation != self._followed_generation
        if is_new_leader and self.state.shared_records is not None:
            check_replica(program.code, self.state.shared_records.read_code(generation))
        if is_new_leader or self.logs.lacks(plan):
            self.logs.follow(plan, self._leader.log_memory())
            self._followed_generation = generation

    def count_recovered(self, report: EpochReport) -> None:
        """Count what the recovery repeats or loses in an epoch; when it is over, append it to the recovery log. To be
        called with every epoch."""
        if self._is_recovery_reported:
            return
        if not self.recovery.is_over:  # else only the line is missing, which could not be written before
            self.recovery.count(report)
        if self.recovery.has_epochs and self.recovery.is_over:
            self.recovery.append_to_log(self.state)
        self._is_recovery_reported = self.recovery.is_over or not self.recovery.has_epochs

    def promote(
        self,
        fence: Fence,
        program: Program,
    ) -> None:
        """Claim the directory and the unit's epoch records as the leader, and deliver the rows held back from now on.
        The caller sets `is_leader` when all is done."""
        self.state.take_over(fence.generation)
        self._claim_records(fence.generation, program)
        deliveries = program.deliveries
        deliveries.generation = lambda: self.state.generation
        deliveries.check_lease = fence.check
        if self.logs is not None:
            self.logs.lead(program.epochs.plan(program.commands), self._leader_log_memory())
        deliveries.follow()
        program.lead(self.state.records.last_commands(), self._commands_of_waiting_epochs(program))
        deliveries.lead()

    def _leader_log_memory(self) -> Mapping[str, Any]:
        """What the logs of the former leader remember; nothing if its directory is lost with it."""
        if self._leader is not None:
            with contextlib.suppress(PenstockError, OSError):
                return self._leader.log_memory()
        return {}


class OpenLogs:
    """The logs that an engine reads: each is started once, and what it remembers is kept in the state directory."""

    def __init__(self, state: StateDirectory, buckets: int, *, leads: bool = True) -> None:
        known = state.facts.buckets
        if known is None:
            state.update_facts(buckets=buckets)
        elif known != buckets:
            raise InternalError(
                "BUCKETS_CHANGED",
                f"this state was made with {known} buckets, not {buckets}",
                hint=f"Start with buckets={known}: the number is fixed for the life of a state.",
            )
        self._state, self._leads = state, leads
        self._remembered, self._reached = state.facts.logs, state.records.last_offsets()
        self._identities = state.records.last_identities()
        self._started: dict[str, Log] = {}

    def start(self, plan: Plan, *, again: bool = False) -> None:
        """Start the logs of a plan's streams; `again`: also those that were started."""
        if again:
            self._started.clear()
        for name, scan in plan.scans.items():
            self.start_one(name, scan)

    def start_one(self, name: str, scan: ScanPlan) -> None:
        """Start the log of a stream, unless it is started. A log of its name may have been started for a command that
        was refused in the end. A follower starts none: it reads them as the leader does."""
        if self._leads and self._started.get(name) is not scan.stream.log:
            scan.stream.log.recognise(self._identities.get(name, {}))
            memory = scan.start_log(self._remembered.get(name), self._reached.get(name, {}))
            self._started[name] = scan.stream.log
            self._state.update_facts(logs={**self._state.facts.logs, name: memory})

    def follow(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Read the logs as the leader does, whose logs remember this."""
        for name, scan in plan.scans.items():
            if name in memory:
                scan.stream.log.resumed(memory[name])
                self._started[name] = scan.stream.log
        self._state.update_facts(logs={**self._state.facts.logs, **memory})

    def lacks(self, plan: Plan) -> bool:
        """Whether a plan has streams whose logs are neither started nor followed."""
        return any(self._started.get(name) is not scan.stream.log for name, scan in plan.scans.items())

    def stop_unused(self, catalogue: Catalogue, plan: Plan) -> None:
        """Stop the logs of streams that are dropped: no later epoch reads them."""
        needed = plan.scans.keys() | {entry.unique_name for entry in catalogue.streams.values()}
        unused = [self._started.pop(name) for name in self._started.keys() - needed]
        for log in unused:
            if all(log is not used for used in self._started.values()):
                log.stopped()

    def lead(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Start the logs where the records of the former leader end; `memory`: what its logs remember, also in epochs
        that this engine has not executed yet."""
        self._leads = True
        self._state.update_facts(logs={**memory, **self._state.facts.logs})
        self._remembered, self._reached = self._state.facts.logs, self._state.records.last_offsets()
        self._identities = self._state.records.last_identities()
        self.start(plan, again=True)
