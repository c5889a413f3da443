"""A real ZooKeeper for the tests of this folder, where one is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.zookeeper_server import ZooKeeperServer, why_not


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()
