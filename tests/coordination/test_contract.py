"""Every coordination store fulfils the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination.contract import Store
from penstock.coordination.files import FileStore
from penstock.coordination.zookeeper import ZooKeeperStore
from penstock.testing.coordination_contract import CoordinationContract
from penstock.testing.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.process


class TestFileStore(CoordinationContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "store")

    @staticmethod
    def open_store(address: str) -> Store:
        return FileStore(address)


class TestZooKeeperStore(CoordinationContract):
    @pytest.fixture
    def address(self, zookeeper: ZooKeeperServer) -> str:
        return f"{zookeeper.hosts}/penstock/tests"

    @staticmethod
    def open_store(address: str) -> Store:
        return ZooKeeperStore(address)
