"""What a shipper does beside shipping does not hold it up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.ingest.shipper import Shipper
from penstock.ingest.spool import Spool
from tests.ingest.processes import Processes, until


def test_a_disk_that_is_slow_to_sync_does_not_hold_up_what_is_shipped(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.gateway()
    journal = Spool(tmp_path / "journal")
    syncing, disk, over = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        syncing.set()
        disk.wait(120)

    monkeypatch.setattr(journal, "sync", stuck)
    to = ("127.0.0.1", processes.port)
    shipper = Shipper(journal, to, "logs", linger_seconds=0.01, finished=over.is_set)
    thread = threading.Thread(target=shipper.run)
    thread.start()
    try:
        assert syncing.wait(60)
        for number in range(3):
            journal.append(b"line %d\n" % number)
            until(lambda: shipper.shipped.acknowledged >= journal.end, 60, "the acknowledgement")
    finally:
        disk.set()
        over.set()
        thread.join(60)
        monkeypatch.undo()
        journal.close()
    assert processes.lines() == [b"line 0", b"line 1", b"line 2"]
