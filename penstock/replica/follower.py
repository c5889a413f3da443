"""Does what a follower does beside its epochs: pauses for the leader, drops delivered rows, and waits for the lease."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.coordination.lease import Lease
from penstock.engine.engine import Engine
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit
from penstock.replica.copy_agreement import CopyReporter
from penstock.replica.lag import must_resync
from penstock.replica.registration import Registration
from penstock.replica.spare_capacity import should_pause
from penstock.state.directory import StateDirectory


class Follower:
    """A follower that executes the leader's epochs."""

    def __init__(
        self,
        name: str,
        unit: Unit,
        registration: Registration,
        engine: Engine,
        acquire_lease: Callable[[Path], Lease | None],
    ) -> None:
        self._name, self._unit, self._registration, self._engine = name, unit, registration, engine
        self._acquire_lease = acquire_lease
        self._copies = CopyReporter(engine.program, unit.shared_records, registration.report)
        engine.role.leader_committed = unit.find_committed()
        #: whether it stops to copy the leader's state
        self.must_resync = False

    def look(self) -> Lease | None:
        """Look at the unit; returns the lease if it is free."""
        self._copies.look()
        record, engine, registration = self._unit.record(), self._engine, self._registration
        manifests = StateDirectory(Path(record.directory)).manifests.epochs()
        records = self._unit.shared_records.epochs()
        engine.role.leader_committed = self._unit.find_committed()
        leader = self._unit.primary(self._name)
        behind = leader.behind if leader is not None and leader.host == registration.entry.host else None
        is_paused = should_pause(registration.entry.paused, behind)
        if is_paused != registration.entry.paused:
            registration.report(paused=is_paused)
            engine.pause(is_paused)
        if is_paused:
            return None  # the leader is up, so the lease is not free
        every = max(record.checkpoint_every, engine.settings.checkpoint_every)
        if must_resync(registration.entry.epoch, records, manifests, every):
            self.must_resync = True  # before the lease: to lead from here could need input that is gone
            engine.stop()
            return None
        if (lease := self._acquire_lease(engine.state.path)) is not None:
            return lease
        deliveries = engine.program.deliveries
        deliveries.follow()
        if record.scheme is Scheme.active_replication:
            deliveries.release()
        else:
            deliveries.hold()
        held = len(deliveries.held_epochs)
        if held != registration.entry.held or registration.has_unreported:
            registration.report(held=held)
        return None
