"""Other work of a shipper does not delay its shipping."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.ingest.shipper import Shipper
from penstock.ingest.spool import Spool
from tests.ingest.processes import Processes, until


def test_a_disk_that_is_slow_to_sync_does_not_delay_shipping(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.gateway()
    spool = Spool(tmp_path / "spool")
    syncing, disk, finished = threading.Event(), threading.Event(), threading.Event()

    def wait_for_disk() -> None:
        syncing.set()
        disk.wait(120)

    monkeypatch.setattr(spool, "sync", wait_for_disk)
    to = ("127.0.0.1", processes.port)
    shipper = Shipper(spool, to, "logs", linger_seconds=0.01, finished=finished.is_set)
    thread = threading.Thread(target=shipper.run)
    thread.start()
    try:
        assert syncing.wait(60)
        for number in range(3):
            spool.append(b"line %d\n" % number)
            until(lambda: shipper.shipped.acknowledged >= spool.end, 60, "the acknowledgement")
    finally:
        disk.set()
        finished.set()
        thread.join(60)
        monkeypatch.undo()
        spool.close()
    assert processes.lines() == [b"line 0", b"line 1", b"line 2"]
