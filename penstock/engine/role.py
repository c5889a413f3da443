"""An engine's seat: whether it leads or follows, and what goes with that: its state directory, its delivery, its logs.

Receives a duty, or none for an engine by itself; hands the engine a claimed state directory, and the lead when it is
promoted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.catalogue.program import Program
from penstock.engine.code_check import check_replica
from penstock.engine.duty import Duty
from penstock.epoch.delivery import Delivery
from penstock.epoch.open_logs import OpenLogs
from penstock.epoch.recovery import RecoveryOutcome, recover
from penstock.epoch.recovery_actions import RecoveryActions
from penstock.epoch.runner import EpochReport
from penstock.errors import InternalError, PenstockError
from penstock.ha.schemes import Semantics
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence
from penstock.state.rollback import roll_back


class Seat:
    """Where an engine sits. It decides epochs from the beginning unless its duty is to follow."""

    def __init__(self, path: Path, duty: Duty | None, semantics: Semantics = Semantics.precise) -> None:
        self._duty = duty
        self._semantics = semantics
        #: what became of the epochs after the last durable manifest
        self.recovery = RecoveryOutcome(semantics, actions=RecoveryActions(semantics))
        self._came_on = False
        self.state = StateDirectory(path, None if duty is None else duty.shared_records)
        self.delivery = Delivery(lambda: self.state.generation, path if duty is None else duty.aside)
        #: set while it is this engine that decides what epochs consist of
        self.decides = threading.Event()
        self.logs: OpenLogs | None = None
        self._followed_generation = -1
        #: the last epoch that whoever leads is known to have committed
        self.committed = -1
        #: whether a job may fail alone in an epoch that takes in so many commands
        self._waits: Callable[[int], bool] = lambda commands: False

    @property
    def owner(self) -> str:
        """Whose the cache is, where several engines may be on one directory."""
        return "" if self._duty is None else self._duty.member

    @property
    def has_duty(self) -> bool:
        return self._duty is not None

    @property
    def warm_cache(self) -> bool:
        """Whether the cache was filled before the engine came to lead."""
        return self._duty is not None and self._duty.warm_cache

    def claimed(self, program: Program, fence: Fence | None, *, drops_state: bool = False) -> dict[str, Any]:
        """Take the state directory, and where this engine leads a unit the unit's book before it."""
        generation = None if fence is None else fence.generation
        follows = None if self._duty is None else self._duty.follows
        if follows is None:
            self.decides.set()
            if self.state.shared_records is not None and generation is not None:
                self.state.shared_records.take_over(generation)
                self.state.shared_records.write_code(program.code)
        else:
            if self.state.shared_records is not None:
                check_replica(program.code, self.state.shared_records.read_code(follows.generation()))
            self._waits = program.epochs.isolates_failures
            self.delivery.generation = follows.generation
            if self._duty is not None and self._duty.holds:
                self.delivery.hold()
        facts = self.state.claim(
            program.fingerprint,
            program.summary,
            generation,
            former=program.former_fingerprint,
            drops_state=drops_state and program.app_plan is not None,
            use=None if program.app_plan is None else program.app_plan.identities,
        )
        try:
            if self._duty is not None:
                self._back_to_whole()
        except PenstockError:
            self.state.release()
            raise
        return facts

    def come_back(self, program: Program) -> RecoveryActions:
        """Make ready for the epochs to come, once the program has begun: what becomes of those after a loss."""
        if self._duty is None or self._duty.follows is None:
            self.recovery = recover(self.state, program, self._semantics, at_hand=self.warm_cache)
        return self.recovery.actions

    def _back_to_whole(self) -> None:
        """Go behind a newest manifest that is damaged: nobody is there to say so, and its epochs are all recorded."""
        try:
            self.state.manifests.latest()
        except InternalError:
            roll_back(self.state)

    def taken(self) -> int:
        """How many commands are taken in by recorded epochs; for one that follows, by those it has done."""
        if self.decides.is_set():
            return self.state.records.last_commands()
        done = self.state.records.read_end(self.state.manifests.latest().epoch)
        return 0 if done is None else done.commands

    def recorded_end(self, epoch: int) -> Offset | None:
        """What an epoch consists of, if it is recorded and may be carried out here. Of jobs that come and go some may
        fail in it alone, which is the leader's to say: who follows waits until that has committed it."""
        end = self.state.records.read_end(epoch)
        if end is None or self.decides.is_set() or epoch <= self.committed or not self._waits(end.commands):
            return end
        records = self.state.shared_records  # whoever records an epoch has committed the one before
        return end if records is not None and records.has(epoch + 1) else None

    def promoted(self, fence: Fence, program: Program) -> None:
        """Take the directory, the book and the sinks as the one that leads; what was held back is delivered."""
        self.state.take_over(fence.generation)
        if self.state.shared_records is not None:
            self.state.shared_records.take_over(fence.generation)
            self.state.shared_records.write_code(program.code)
        self.delivery.generation = lambda: self.state.generation
        self.delivery.release()
        if self.logs is not None:
            self.logs.lead(program.epochs.plan(program.commands), self._remembered())
        program.lead(self.state.records.last_commands())

    def _remembered(self) -> Mapping[str, Any]:
        """What the one that was followed remembers of the logs; nothing where its directory is lost with it."""
        if self._duty is not None and self._duty.follows is not None:
            with contextlib.suppress(PenstockError, OSError):
                return self._duty.follows.logs()
        return {}

    def follow(self, program: Program, epoch: int, commands: int) -> None:
        """Before an epoch that another has recorded: know the commands it takes in, and read the logs as that one did:
        with each leader a new life of theirs may have begun."""
        if self.decides.is_set() or self._duty is None or self._duty.follows is None or self.logs is None:
            return
        program.follow_commands(commands)
        plan, record = program.epochs.plan(commands), self.state.records.read(epoch)
        recorded = 0 if record is None else record.generation
        if recorded != self._followed_generation and self.state.shared_records is not None:
            check_replica(program.code, self.state.shared_records.read_code(recorded))
        if recorded != self._followed_generation or self.logs.lacks(plan):
            self.logs.follow(plan, self._duty.follows.logs())
            self._followed_generation = recorded

    def came_on(self, report: EpochReport) -> None:
        """Told every epoch: counts what the coming back repeats, and writes it down once that is over."""
        if self._came_on:
            return
        self.recovery.count(report)
        self._came_on = self.recovery.is_over or not self.recovery.has_epochs
        if self.recovery.has_epochs and self.recovery.is_over:
            self.recovery.append_to_log(self.state)
