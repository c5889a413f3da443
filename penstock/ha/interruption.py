"""Interrupts the leader of an HA unit, so that a person can decide something about the epochs that wait.

Takes the leader's lease, and the unit's records and the state directory in force with its generation. The former leader
ends, and no engine leads until the block is over; then one acquires the lease and continues.

Guarantees: nothing that the former leader still does puts an epoch record or a manifest of the directory in force in
place. The unit may run or not.
On failure: `ExternalError` STORE_UNAVAILABLE; FENCED if another engine leads all the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.coordination.contract import clock
from penstock.errors import ExternalError
from penstock.ha.unit import Unit
from penstock.state.directory import StateDirectory

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def interrupt_leader(unit: Unit) -> Iterator[StateDirectory]:
    """The state directory in force, while no engine leads."""
    session = unit.store.start_session(unit.launch.lease_seconds)
    try:
        lease = unit.lease(session, (), seconds=0.0, preempt=True)
        if lease is None:
            raise ExternalError(
                "LEASE_LOST",
                "the lease of the unit could not be taken from its leader",
                hint="Repeat the command.",
            )
        unit.shared_records.take_over(lease.generation)
        _wait_until_noticed(unit)
        state = StateDirectory(Path(unit.record().directory), unit.shared_records)
        state.take_over(lease.generation)
        yield state
        lease.check()
        lease.resign()
    finally:
        session.close()


def _wait_until_noticed(unit: Unit) -> None:
    """Wait until the former leader has noticed: by then it does not make another directory the one in force."""
    deadline = clock() + unit.launch.lease_seconds
    while clock() < deadline:
        leader = unit.engines().get(unit.record().leader or "")
        if leader is None or not leader.seems_up:
            return
        time.sleep(_POLL_SECONDS)
