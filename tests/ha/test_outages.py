"""A coordination store that is away never ends a unit: a real ZooKeeper is stopped for leases under real engines."""

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
        generation = kit.record().generation
        server.stop()
        time.sleep(AWAY_SECONDS)
        server.start()
        kit.wait_until("one leads again", lambda: kit.record().generation > generation and kit.leader(), 120)
        kit.wait_for_epochs()
        assert kit.record().phase == "running"
        assert not kit.record().errors
        kit.finish(120)
    finally:
        kit.close()
