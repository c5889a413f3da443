"""An engine that does not lead joins its unit again after its session has ended, unless it was replaced."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord
from penstock.replica.registration import Registration

LEASE_SECONDS = 6.0


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    launch = Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path), lease_seconds=LEASE_SECONDS)
    made = Unit.create(tmp_path / "state", launch)
    made.create_record(UnitRecord(Scheme.active_standby, str(made.root), leader="e1", generation=1))
    return made


@pytest.mark.parametrize("how", ["is up", "is on the way"])
def test_an_engine_that_was_replaced_ends(unit: Unit, how: str) -> None:
    former = unit.store.start_session(LEASE_SECONDS)
    registration = Registration(unit, former, "e2", "active")
    registration.report(phase="following")
    other = unit.store.start_session(LEASE_SECONDS)
    if how == "is up":
        Registration(unit, other, "e3", "active").report(phase="starting")
    else:
        unit.change(lambda now: replace(now, pending={"e3": ("active", time.time())}))
    with pytest.raises(ExternalError, match=r"LEASE_LOST.*in its place"):
        registration.rejoin()
    assert "e2" not in unit.engines()
    other.close()


def test_an_engine_of_the_other_kind_does_not_replace_it(unit: Unit) -> None:
    former = unit.store.start_session(LEASE_SECONDS)
    registration = Registration(unit, former, "e2", "active")
    registration.report(phase="following")
    unit.change(lambda now: replace(now, pending={"e3": ("passive", time.time())}))
    registration.rejoin()
    again = registration.session
    assert unit.engines()["e2"].session == again.id != former.id
    assert unit.engines()["e2"].phase == "following"
    again.close()
