"""A coordination store that is away never ends a unit nor an engine of it: they stop writing, wait and continue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ha.schemes import Scheme
from penstock.testing.zookeeper_server import ZooKeeperServer, why_not
from tests.ha.test_unit import is_complete
from tests.ha.unit_kit import Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(400)]
#: shorter than usual: an outage of a minute would be six leases of ten seconds
LEASE_SECONDS = 3.0
AWAY_SECONDS = 6 * LEASE_SECONDS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def test_a_coordination_store_that_is_away_for_many_leases_ends_no_unit(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    scheme = Scheme.active_standby
    kit = Kit(
        tmp_path / "unit",
        scheme,
        count=8_000,
        coordination=f"zk://{server.hosts}/units",
        lease_seconds=LEASE_SECONDS,
    )
    try:
        kit.feeder.start()
        kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
        kit.wait_for_epochs()
        engines, generation = pids_of(kit), kit.record().generation
        server.stop()
        wait_for_silence(kit)
        time.sleep(AWAY_SECONDS)
        server.start()
        check_that_the_engines_continue(kit, engines, generation)
        kit.finish(120)
    finally:
        kit.close()


@pytest.mark.parametrize(
    "scheme",
    [Scheme.passive_replication, Scheme.passive_hot, Scheme.active_standby, Scheme.active_replication],
)
def test_engines_wait_for_files_that_are_away_and_none_is_started_again(
    tmp_path: Path, scheme: Scheme
) -> None:
    kit = Kit(tmp_path, scheme, count=6_000, lease_seconds=LEASE_SECONDS)
    store = kit.root / "ha" / "coordination"
    away = store.with_name("away")
    try:
        kit.feeder.start()
        kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
        kit.wait_for_epochs()
        for _ in range(2):
            engines, generation = pids_of(kit), kit.record().generation
            store.rename(away)
            wait_for_silence(kit)
            time.sleep(LEASE_SECONDS)
            away.rename(store)
            check_that_the_engines_continue(kit, engines, generation)
        kit.finish(120)
    finally:
        kit.close()


def pids_of(kit: Kit) -> dict[str, int]:
    return {name: engine.pid for name, engine in kit.engines().items()}


def wait_for_silence(kit: Kit) -> None:
    """Wait until no epoch is recorded for a lease: the leader has stopped."""
    seen, since = kit.epoch(), time.monotonic()
    deadline = since + 20 * LEASE_SECONDS
    while time.monotonic() - since < LEASE_SECONDS:
        assert time.monotonic() < deadline, "epochs continue without a lease"
        if kit.epoch() != seen:
            seen, since = kit.epoch(), time.monotonic()
        time.sleep(0.05)


def check_that_the_engines_continue(kit: Kit, engines: dict[str, int], generation: int) -> None:
    kit.wait_until("one leads again", lambda: kit.record().generation > generation and kit.leader(), 120)
    kit.wait_for_epochs()
    kit.wait_until("all have joined again", lambda: pids_of(kit) == engines, 120)
    kit.wait_until("the unit is complete", lambda: is_complete(kit, kit.record().scheme), 120)
    assert pids_of(kit) == engines, kit.read_logs()
    assert kit.record().started == len(engines), "no engine was started again"
    assert kit.record().phase == "running"
    assert not kit.record().errors
