"""A service that follows a unit whose coordination store no longer responds."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord
from penstock.server import unit_follower as module
from penstock.server.unit_follower import NO_LEADER, UnitFollower


def test_a_leader_that_was_not_seen_for_longer_than_its_lease_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    unit = Unit.create(
        tmp_path / "state", Launch("paper", str(tmp_path / "store"), "a.py", str(tmp_path), lease_seconds=2.0)
    )
    unit.create_record(UnitRecord(Scheme.deployed, str(unit.root), leader="e1", generation=1))
    session = unit.store.start_session(60.0)
    unit.join(
        session, "e1", UnitEngine(os.getpid(), socket.gethostname(), "passive", session.id, phase="primary")
    )
    host: Any = SimpleNamespace(phase="starting engines", follow=lambda *arguments: None)
    questions = SimpleNamespace(follow_results=lambda epoch: None)
    host.program = SimpleNamespace(commands=0, questions=questions)
    host.enter_phase = lambda phase: setattr(host, "phase", phase)
    follower = UnitFollower(unit, host)
    follower.committed = -1
    follower._read_leader()
    assert host.phase == "running"
    now[0] += 1.9
    follower._report_committed()
    assert host.phase == "running"
    now[0] += 0.2  # the next read hangs in a store that does not respond
    follower._report_committed()
    assert host.phase == NO_LEADER
    follower._read_leader()
    assert host.phase == "running", "it is back"
    session.close()
