"""The leader of a unit is interrupted: it loses its lease at once, and nothing that it still writes counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.ha.interruption import interrupt_leader
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from tests.ha.waiting import wait_until


def test_a_living_leader_is_fenced_and_the_next_one_has_a_higher_generation(tmp_path: Path) -> None:
    launch = Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path), lease_seconds=2.0)
    unit = Unit.create(tmp_path / "state", launch)
    unit.create_record(UnitRecord(Scheme.active_standby, str(unit.root)))
    session = unit.store.start_session(2.0)
    lease = unit.lease(session, (), 5.0)
    assert lease is not None
    unit.change(lambda now: replace(now, leader="e1", generation=lease.generation))
    unit.shared_records.take_over(lease.generation)
    former = StateDirectory(unit.root, unit.shared_records)
    former.take_over(lease.generation)
    other = Unit.at(unit.root)
    with interrupt_leader(other) as state:
        assert state.path == unit.root
        assert state.generation == lease.generation + 1
        wait_until("the leader notices", lambda: not lease.is_held())
        with pytest.raises(ExternalError, match="FENCED"):
            lease.check()
        with pytest.raises(ExternalError, match="FENCED"):
            unit.shared_records.write(0, EpochRecord(Offset(), Offset(0)))
        with pytest.raises(ExternalError, match="FENCED"):
            former.manifests.commit(replace(former.manifests.latest(), epoch=0))
        assert unit.lease(session, (), 0.2) is None, "nobody leads meanwhile"
    again = unit.lease(session, (), 5.0)
    assert again is not None
    assert again.generation == lease.generation + 2
    session.close()
    other.close()
    unit.close()
