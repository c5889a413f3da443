"""An engine that is cut off from the coordination store by the network: a ZooKeeper and two real engines, one of them
in a network namespace whose link goes down. Needs root; skipped where namespaces cannot be made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.ha.coordinator import Coordinator
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Unit
from penstock.testing.zookeeper_server import ZooKeeperServer, why_not
from tests.ha.test_unit import is_complete, is_running
from tests.ha.unit_kit import Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(400)]


class Namespace:
    """A network namespace with one link to this machine; call `remove` at the end."""

    def __init__(self) -> None:
        number = os.getpid() % 250 + 1
        self.name, self._link = f"penstock-{os.getpid()}", f"pst{os.getpid() % 100_000}"
        self.address, self._inside = f"10.231.{number}.1", f"10.231.{number}.2"
        self._ip("netns", "add", self.name)
        try:
            self._ip("link", "add", self._link, "type", "veth", "peer", "name", "inside", "netns", self.name)
            self._ip("addr", "add", f"{self.address}/30", "dev", self._link)
            self._ip("link", "set", self._link, "up")
            for words in (
                ["addr", "add", f"{self._inside}/30", "dev", "inside"],
                ["link", "set", "inside", "up"],
            ):
                self._ip("-n", self.name, *words)
        except BaseException:
            self.remove()
            raise

    def cut(self) -> None:
        """Cut the link in both directions."""
        self._ip("-n", self.name, "link", "set", "inside", "down")

    def mend(self) -> None:
        """Restore the link."""
        self._ip("-n", self.name, "link", "set", "inside", "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._link], check=False, capture_output=True)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip (Debian: iproute2)")
    try:
        made = Namespace()
    except (OSError, subprocess.SubprocessError) as failure:
        pytest.skip(f"no network namespace can be made here: {failure}")
    yield made
    made.remove()


@pytest.fixture
def server(namespace: Namespace, tmp_path: Path) -> Iterator[ZooKeeperServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper", namespace.address)
    server.start()
    yield server
    server.stop()


class PartitionedKit(Kit):
    """A unit of which one engine is in a namespace; its coordinator is a thread of the test."""

    def __init__(self, folder: Path, scheme: Scheme, namespace: str, apart: str, **settings: Any) -> None:
        self._namespace, self._apart = namespace, apart
        super().__init__(folder, scheme, **settings)

    def start_coordinator(self) -> None:
        self._coordinator = Coordinator(self.unit, start=self._start_engine, report=lambda _: None)
        self._thread = threading.Thread(target=self._coordinator.run, daemon=True)
        self._thread.start()

    def _start_engine(self, unit: Unit, name: str, kind: Kind) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.cli.engine_process"]
        prefix = ["ip", "netns", "exec", self._namespace] if name == self._apart else []
        unit.log(name).parent.mkdir(parents=True, exist_ok=True)
        with open(unit.log(name), "ab") as log:
            return subprocess.Popen(
                [*prefix, *command, "--state", str(unit.root), "--name", name, "--kind", kind],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def close(self) -> None:
        self._coordinator.stop()
        self._thread.join(60)
        super().close()


@pytest.mark.parametrize("apart", ["e1", "e2"], ids=["the leader", "the follower"])
def test_an_engine_cut_off_from_the_store_stops_and_the_other_one_leads(
    apart: str, namespace: Namespace, server: ZooKeeperServer, tmp_path: Path
) -> None:
    kit = PartitionedKit(
        tmp_path / "unit",
        Scheme.active_standby,
        namespace.name,
        apart,
        count=8_000,
        coordination=f"zk://{server.hosts}/units",
        lease_seconds=6.0,
    )
    try:
        kit.feeder.start()
        kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
        kit.wait_for_epochs()
        assert sorted(kit.engines()) == ["e1", "e2"]
        assert kit.leader() == "e1"
        pid = kit.engines()[apart].pid
        namespace.cut()
        other = {"e1": "e2", "e2": "e1"}[apart]
        kit.wait_until("the other leads", lambda: kit.leader() == other)
        kit.wait_for_epochs()
        kit.wait_until("its session has ended", lambda: apart not in kit.engines())
        kit.wait_until("there is a follower again", lambda: is_complete(kit, Scheme.active_standby))
        assert is_running(pid), "it waits for the store"
        namespace.mend()
        kit.wait_until("it has ended, as another was started in its place", lambda: not is_running(pid))
        kit.wait_for_epochs()
        kit.finish()
        assert "LEASE_LOST" in kit.unit.log(apart).read_text()
    finally:
        kit.close()
