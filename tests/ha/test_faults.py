"""Faults beyond a killed engine: clocks, a store that is away, lost directories, ZooKeeper; the output is as if nothing
was. What is killed or paused alone is in `test_unit`.
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
from tests.ha.test_unit import Make, make, running, stands
from tests.ha.unit_kit import Kit

__all__ = ["make"]  # a fixture

pytestmark = [pytest.mark.kill, pytest.mark.timeout(400)]

#: lines of each file: at 30 a second they come for minutes, if engines take that long to start
MANY = 8_000

#: puts the clock of one engine of a unit forward: what time.time says, and what is made of it
CLOCK = """
import os, sys, time
name, seconds = os.environ["TEST_CLOCK_OF"].split(":")
if "--name" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("--name") + 1] == name:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + float(seconds)
    time.time_ns = lambda: right_ns() + int(float(seconds) * 1e9)
"""


def replaced(kit: Kit) -> str:
    """Kill the primary and wait until another leads."""
    first = kit.leader()
    assert first is not None
    kit.kill(first)
    kit.until("another leads", lambda: kit.leader() not in (None, first))
    return first


def test_a_follower_that_loses_its_state_directory_is_replaced(make: Make) -> None:
    kit = make(Scheme.active_standby, count=MANY)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_standby))
    kit.flowing()
    second = kit.until("there is one that follows", lambda: kit.secondary("following"))
    shutil.rmtree(kit.unit.replica(second), ignore_errors=True)
    kit.until("another follows", lambda: kit.secondary("following") not in (None, second))
    kit.flowing()
    replaced(kit)
    kit.flowing()
    kit.finish()


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_an_engine_whose_clock_is_an_hour_off_takes_over(seconds: int, make: Make, tmp_path: Path) -> None:
    """The second engine's clock is off while it stands by, while it leads, and when it is replaced."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    kit = make(
        Scheme.passive_hot,
        count=MANY,
        environment={"PYTHONPATH": str(tmp_path / "clock"), "TEST_CLOCK_OF": f"e2:{seconds}"},
    )
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.passive_hot))
    kit.flowing()
    replaced(kit)
    assert kit.leader() == "e2"
    kit.flowing()
    newest = max((kit.unit.shared_records.path / "epochs").glob("*.json"))
    off = json.loads(newest.read_bytes())["end"]["now"] / 1e6 - newest.stat().st_mtime
    assert abs(off - seconds) < 600, "its clock was off"
    kit.until("there is a second one again", lambda: stands(kit, Scheme.passive_hot))
    replaced(kit)
    kit.flowing()
    kit.finish()


def test_a_store_that_is_away_longer_than_leases_live_stops_the_engines_and_they_come_back(
    make: Make,
) -> None:
    kit = make(Scheme.passive_hot, count=MANY)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.passive_hot))
    kit.flowing()
    before, store = kit.members(), Path(kit.unit.launch.coordination)
    begin = kit.epoch()
    store.rename(kit.folder / "away")
    kit.until("it goes on while its lease lives", lambda: kit.epoch() > begin, 30)
    kit.until("all engines have ended", lambda: not any(running(one.pid) for one in before.values()))
    rested = kit.epoch()
    (kit.folder / "away").rename(store)
    kit.until("another leads", lambda: kit.leader() not in (None, *before))
    assert kit.record().generation > 1
    kit.until("it goes on", lambda: kit.epoch() > rested)
    kit.until("the unit stands again", lambda: stands(kit, Scheme.passive_hot))
    kit.finish()
    assert not kit.record().errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def test_a_unit_on_zookeeper_outlives_its_primary_and_a_restart_of_the_server(
    server: ZooKeeperServer, make: Make
) -> None:
    kit = make(
        Scheme.active_standby, count=MANY, coordination=f"zk://{server.hosts}/units", lease_seconds=20.0
    )
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_standby))
    kit.flowing()
    before = kit.members().keys()
    server.stop()
    server.start()
    kit.until("nobody has left", lambda: kit.members().keys() == before and kit.leader())
    kit.flowing()
    first = replaced(kit)
    assert kit.record().recoveries[-1].lost == first
    kit.flowing()
    kit.until("there is a second one again", lambda: stands(kit, Scheme.active_standby))
    kit.finish()


def test_a_follower_that_was_left_behind_takes_over_the_state(make: Make) -> None:
    """It is paused while the leader goes on so far that the log may have been pruned; it follows again from a newer
    state, and nothing is missing when it leads."""
    kit = make(Scheme.active_standby, count=MANY, manifests_kept=4, lease_seconds=60.0, pause_seconds=0.05)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_standby))
    second = kit.until("there is one that follows", lambda: kit.secondary("following"))
    pid = kit.members()[second].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        reached = kit.members()[second].epoch
        kit.until(
            "the leader has let go of what it needs",
            lambda: StateDirectory(kit.root).manifests.epochs()[0] > reached + 15,
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    log = kit.unit.log(second)
    kit.until("it takes over the state", lambda: "copies the leader's state" in log.read_text())
    kit.until("it follows again", lambda: kit.members()[second].epoch > reached + 15)
    replaced(kit)
    assert kit.leader() == second
    kit.finish()
