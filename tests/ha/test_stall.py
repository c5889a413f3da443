"""When all processes stall, the leader is replaced, and the follower joins again instead of ending."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from penstock.ha.needs import find_returning
from penstock.ha.schemes import Scheme
from penstock.ha.unit import UnitEngine, UnitRecord
from tests.ha.unit_kit import Kit

pytestmark = pytest.mark.process

#: a process that has ended
GONE = 2**22 + 1


@pytest.mark.parametrize("scheme", [Scheme.active_standby, Scheme.passive_hot])
def test_after_a_stall_of_all_processes_the_follower_takes_over(tmp_path: Path, scheme: Scheme) -> None:
    kit = Kit(tmp_path, scheme, lease_seconds=2.5)
    try:
        kit.feeder.start()
        follower = kit.wait_until("there is a follower", kit.follower)
        kit.wait_for_epochs()
        first, pids = kit.leader(), [engine.pid for engine in kit.engines().values()]
        assert kit.coordinator is not None
        pids.insert(0, kit.coordinator.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4.0)  # longer than the lease
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
        assert kit.leader() == follower, kit.read_logs()
        kit.wait_for_epochs()
        assert "in the unit again" in kit.unit.log(follower).read_text()
        log = kit.unit.log(str(first)).read_text()
        assert "[LEASE_LOST]" in log or "[FENCED]" in log, "whichever it meets first"
        kit.finish()
    finally:
        kit.close()


def test_the_recovery_from_a_leader_that_hangs_is_measured(tmp_path: Path) -> None:
    """From its last result, or from when the coordinator noticed, if that was before its lease was taken."""
    kit = Kit(tmp_path, Scheme.active_standby)
    try:
        kit.feeder.start()
        kit.wait_until("there is a follower", kit.follower)
        kit.wait_for_epochs()
        hung = kit.engines()[str(kit.leader())].pid
        os.kill(hung, signal.SIGSTOP)
        kit.wait_until(
            "another has results",
            lambda: kit.record().recoveries[-1:] and kit.record().recoveries[-1].first_result_at,
        )
        os.kill(hung, signal.SIGCONT)
        (recovery,) = kit.record().recoveries
        assert recovery.detected_after is not None
        assert recovery.first_result_after is not None
        assert recovery.last_result_at is not None
        assert recovery.lease_at - recovery.last_result_at > 1.0, "its lease had to run out"
        assert 0.0 <= recovery.detected_after <= recovery.first_result_after < 60.0
    finally:
        kit.close()


def test_only_followers_whose_process_exists_are_expected_back() -> None:
    here, gone = (UnitEngine(pid, socket.gethostname(), "active") for pid in (os.getpid(), GONE))
    known = {"e1": here, "e2": here, "e3": gone, "e4": here}
    record = UnitRecord(Scheme.active_standby, "d", leader="e1", lost={"e1": 99.0, "e2": 99.0, "e4": 90.0})
    assert find_returning(record, known, {}, 100.0) == {"e2", "e4"}, "a former leader does not come back"
    assert find_returning(record, known, {}, 100.0, 2.0) == {"e2"}, "nobody is waited for much longer"
    assert find_returning(record, known, {"e5": here}, 100.0, 2.0) == set()
