"""All logs of this package meet the log contract, in every form."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.logs import CallLog, FileLog, GeneratedLog, Log
from penstock.testing.log_contract import LogContract
from penstock.testing.manual_clock import ManualClock

LINES = b"".join(b"line %d %s\n" % (i, b"x" * (i * 7 % 90)) for i in range(600))


class TestFilesThatGrow(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        (tmp_path / "a.log").write_bytes(b"first of a\n" + LINES + b"half a li")
        (tmp_path / "b.log").write_bytes(b"\n\nfirst of b\n" + LINES[:3000].rpartition(b"\n")[0] + b"\n")
        return FileLog(str(tmp_path / "*.log"))


class TestFinishedFiles(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        (tmp_path / "a.log").write_bytes(LINES + b"the end without a newline")
        (tmp_path / "b.log").write_bytes(b"only this")
        return FileLog([str(tmp_path / "a.log"), str(tmp_path / "b*")], finished=True)


class TestArchives(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        (tmp_path / "a.log.gz").write_bytes(gzip.compress(LINES))
        (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"b\n" + LINES)[:-400])
        return FileLog(str(tmp_path / "*.gz"), gz_settle_seconds=0)


class TestGeneratedAtOnce(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        return GeneratedLog(partitions=3, total=2_000, live=False, users=500, disorder_seconds=2)


class TestGeneratedLive(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        clock = ManualClock(1_800_000_000)
        log = GeneratedLog(rate=300, users=500, clock=clock)
        memory = log.start(None, {})
        clock.turn(2.5)
        log.start(memory, {"p0": 300, "p1": 200})
        clock.turn(2.5)
        return log


class TestCallsAtOnce(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        return CallLog(partitions=3, total=2_000, live=False, callers=500, impossible=0.1, rate=100)


class TestCallsLive(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        clock = ManualClock(1_800_000_000)
        log = CallLog(rate=300, callers=500, clock=clock)
        memory = log.start(None, {})
        clock.turn(2.5)
        log.start(memory, {"p0": 300, "p1": 200})
        clock.turn(2.5)
        return log
