"""Which ends of an engine are due to an outage of the coordination store, and how it joins its unit again."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord
from penstock.replica.outages import has_stopped, is_in_force, is_outage, rejoin_after_outage
from penstock.replica.registration import Registration
from tests.ha.waiting import wait_until

LEASE_SECONDS = 1.0


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    launch = Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path), lease_seconds=LEASE_SECONDS)
    made = Unit.create(tmp_path / "state", launch)
    made.create_record(UnitRecord(Scheme.active_standby, str(made.root), leader="e1", generation=1))
    return made


def take_away(unit: Unit) -> Path:
    store = Path(unit.launch.coordination)
    store.rename(store.with_name("away"))
    return store


def test_a_lease_that_is_lost_in_an_outage_is_waited_for(unit: Unit) -> None:
    session = unit.store.start_session(LEASE_SECONDS)
    lost, fenced = ExternalError("LEASE_LOST", "lost"), ExternalError("FENCED", "fenced")
    assert not is_outage(lost, session)
    store = take_away(unit)
    wait_until("the session has ended", lambda: not session.is_held())
    assert is_outage(lost, session)
    assert is_outage(fenced, session)
    assert is_outage(ExternalError("STORE_UNAVAILABLE", "away"), session)
    assert not is_outage(UserError("SINK_TABLE_MISSING", "no table"), session)
    store.with_name("away").rename(store)
    paused = unit.store.start_session(LEASE_SECONDS)
    unit.store.end_session(paused.id)  # as others do that see no heartbeats
    wait_until("the session has ended", lambda: not paused.is_held())
    assert not is_outage(lost, paused), "the store was there"
    session.close()
    paused.close()


def test_an_engine_joins_again_as_what_the_scheme_asks_for(unit: Unit) -> None:
    registration = Registration(unit, unit.store.start_session(LEASE_SECONDS), "e1", "passive")
    registration.report(phase="primary", directory="somewhere", epoch=7)
    unit.shared_records.take_over(1)
    store = take_away(unit)
    wait_until("the session has ended", lambda: not registration.session.is_held())
    back = threading.Timer(0.5, lambda: store.with_name("away").rename(store))
    back.start()
    assert rejoin_after_outage(unit, registration) == "active"
    entry = unit.engines()["e1"]
    assert (entry.kind, entry.phase, entry.directory, entry.epoch) == ("active", "starting", "", -1)
    assert unit.shared_records.generation == 0, "it only reads the records from now on"
    registration.session.close()


def test_an_engine_does_not_wait_for_a_unit_that_is_gone(unit: Unit) -> None:
    registration = Registration(unit, unit.store.start_session(LEASE_SECONDS), "e1", "passive")
    take_away(unit)
    (unit.shared / "unit.json").unlink()
    with pytest.raises(UserError, match="NO_UNIT"):
        rejoin_after_outage(unit, registration)
    registration.session.close()


def test_an_engine_does_not_follow_on_the_directory_that_is_in_force(unit: Unit) -> None:
    own = unit.replica("e1")
    assert not is_in_force(unit, "e1", own)
    unit.change(lambda now: replace(now, directory=str(own)))
    assert is_in_force(unit, "e1", own), "it leads there again, or another takes over first"
    unit.change(lambda now: replace(now, leader="e2"))
    other = Registration(unit, unit.store.start_session(LEASE_SECONDS), "e2", "passive")
    other.report(phase="primary")
    with pytest.raises(ExternalError, match="LEASE_LOST"):
        is_in_force(unit, "e1", own)
    other.session.close()


def test_a_watcher_that_hangs_has_not_stopped() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, daemon=True)
    thread.start()
    assert not has_stopped(None, thread, 0.05)
    gate.set()
    assert has_stopped(None, thread, 30.0)
