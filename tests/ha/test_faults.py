"""Faults beyond a killed engine: clocks, an unavailable store, lost directories, ZooKeeper; the output is that of an
undisturbed run. Engines that are only killed or paused are in `test_unit`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ha.schemes import Scheme
from penstock.state.directory import StateDirectory
from penstock.testing.zookeeper_server import ZooKeeperServer, why_not
from tests.ha.test_unit import Make, is_complete, make

__all__ = ["make"]  # a fixture

pytestmark = [pytest.mark.kill, pytest.mark.timeout(400)]

#: lines of each file: enough for minutes at 30 a second, if engines take that long to start
LINES = 8_000

#: sets the clock of one engine of a unit forward: `time.time` and what uses it
CLOCK = """
import os, sys, time
name, seconds = os.environ["TEST_CLOCK_OF"].split(":")
if "--name" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("--name") + 1] == name:
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + float(seconds)
    time.time_ns = lambda: true_time_ns() + int(float(seconds) * 1e9)
"""


def test_a_follower_that_loses_its_state_directory_is_replaced(make: Make) -> None:
    kit = make(Scheme.active_standby, count=LINES)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    kit.wait_for_epochs()
    follower = kit.wait_until("there is a follower", lambda: kit.follower("following"))
    shutil.rmtree(kit.unit.replica(follower), ignore_errors=True)
    kit.wait_until("another follows", lambda: kit.follower("following") not in (None, follower))
    kit.wait_for_epochs()
    kit.replace_leader()
    kit.wait_for_epochs()
    kit.finish()


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_an_engine_whose_clock_is_an_hour_off_takes_over(seconds: int, make: Make, tmp_path: Path) -> None:
    """The follower's clock is off while it stands by, while it leads, and when it is replaced."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    kit = make(
        Scheme.passive_hot,
        count=LINES,
        environment={"PYTHONPATH": str(tmp_path / "clock"), "TEST_CLOCK_OF": f"e2:{seconds}"},
    )
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.passive_hot))
    kit.wait_for_epochs()
    kit.replace_leader()
    assert kit.leader() == "e2"
    kit.wait_for_epochs()
    newest = max((kit.unit.shared_records.path / "epochs").glob("*.json"))
    offset = json.loads(newest.read_bytes())["end"]["now"] / 1e6 - newest.stat().st_mtime
    assert abs(offset - seconds) < 600, "its clock was off"
    kit.wait_until("there is a follower again", lambda: is_complete(kit, Scheme.passive_hot))
    kit.replace_leader()
    kit.wait_for_epochs()
    kit.finish()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def test_a_unit_on_zookeeper_survives_the_loss_of_its_leader_and_a_restart_of_the_server(
    server: ZooKeeperServer, make: Make
) -> None:
    kit = make(
        Scheme.active_standby, count=LINES, coordination=f"zk://{server.hosts}/units", lease_seconds=20.0
    )
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    kit.wait_for_epochs()
    before = kit.engines().keys()
    server.stop()
    server.start()
    kit.wait_until("no engine has left", lambda: kit.engines().keys() == before and kit.leader())
    kit.wait_for_epochs()
    first = kit.leader()
    kit.replace_leader()
    assert kit.record().recoveries[-1].lost == first
    kit.wait_for_epochs()
    kit.wait_until("there is a follower again", lambda: is_complete(kit, Scheme.active_standby))
    kit.finish()


def test_a_follower_that_lags_too_far_copies_the_leaders_state(make: Make) -> None:
    """It is paused until the leader has deleted the manifests that it needs; it follows again from a newer state, and
    nothing is missing when it leads."""
    kit = make(Scheme.active_standby, count=LINES, manifests_kept=4, lease_seconds=60.0, pause_seconds=0.05)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    follower = kit.wait_until("there is a follower", lambda: kit.follower("following"))
    pid = kit.engines()[follower].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        reached = kit.engines()[follower].epoch
        kit.wait_until(
            "the leader has deleted what it needs",
            lambda: StateDirectory(kit.root).manifests.epochs()[0] > reached + 15,
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    log = kit.unit.log(follower)
    kit.wait_until("it copies the state", lambda: "copies the leader's state" in log.read_text())
    kit.wait_until("it follows again", lambda: kit.engines()[follower].epoch > reached + 15)
    kit.replace_leader()
    assert kit.leader() == follower
    kit.finish()
