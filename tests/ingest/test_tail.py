"""An agent follows files through renaming, truncating and its own restarts, and can end at the end of a file."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest

from penstock.ingest import tail as tail_module
from penstock.ingest.pipe_reader import Overflow
from penstock.ingest.spool import Spool
from penstock.ingest.tail import TailReader
from tests.ingest.processes import Processes, numbered, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "www" / "access.log"


@pytest.fixture
def tail(processes: Processes, path: Path, tmp_path: Path) -> tuple[object, ...]:
    path.parent.mkdir()
    return ("--tail", path, "--spool", tmp_path / "spool", "--settle", "100ms")


def test_an_agent_follows_renaming_truncating_and_unfinished_lines(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    processes.gateway()
    agent = processes.agent(*tail)
    path.write_bytes(b"a 1\na 2\na 3 begun")
    until(lambda: len(processes.lines()) == 2)
    with open(path, "ab") as file:
        file.write(b" and ended\na 4 never ended")
    until(lambda: len(processes.lines()) == 3)
    path.rename(path.with_name("access.log.1"))
    path.write_bytes(b"b 1\nb 2\n")
    until(lambda: len(processes.lines()) == 6)
    path.write_bytes(b"c 1\n")  # as copytruncate does
    until(lambda: len(processes.lines()) == 7)
    path.write_bytes(b"d 1, in a file longer than the one before it was truncated\n")
    until(lambda: len(processes.lines()) == 8)
    assert agent.stop() == 0
    assert processes.lines() == [
        b"a 1",
        b"a 2",
        b"a 3 begun and ended",
        b"a 4 never ended",
        b"b 1",
        b"b 2",
        b"c 1",
        b"d 1, in a file longer than the one before it was truncated",
    ]


def test_an_agent_reads_files_that_were_rotated_while_it_was_down(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    processes.gateway()
    path.write_bytes(b"a 1\n")
    agent = processes.agent(*tail)
    until(lambda: len(processes.lines()) == 1)
    agent.kill()
    with open(path, "ab") as file:
        file.write(b"a 2\n")
    for number, name in ((2, "b"), (1, "c")):
        path.rename(path.with_name(f"access.log.{number}"))
        path.write_bytes(name.encode() + b" 1\n")
        os.utime(path, ns=(0, path.with_name(f"access.log.{number}").stat().st_mtime_ns + 10**6))
    path.with_name("access.log_ssl").write_bytes(b"another file\n")
    processes.agent(*tail)
    until(lambda: len(processes.lines()) == 4, what="four lines")
    assert processes.lines() == [b"a 1", b"a 2", b"b 1", b"c 1"]


def test_a_file_waits_with_a_full_spool_also_when_it_is_rotated(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    sent = list(numbered(0, 10_000))
    path.write_bytes(b"\n".join(sent) + b"\n")
    agent = processes.agent(*tail, "--spool-bytes", "100K")
    until(lambda: agent.reports("spool full"), what="a full spool")
    path.rename(path.with_name("access.log.1"))
    path.write_bytes(b"after\n")
    processes.gateway()
    until(lambda: len(processes.lines()) > len(sent), what="all lines")
    assert processes.lines() == [*sent, b"after"]


def test_an_agent_can_start_at_the_end_and_stop_at_the_end(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    processes.gateway()
    path.write_bytes(b"old\n")
    assert processes.agent(*tail, "--from-end", "--once").wait() == 0
    with open(path, "ab") as file:
        file.write(b"new\n")
    assert processes.agent(*tail, "--from-end", "--once").wait() == 0
    assert processes.agent(*tail, "--from-end", "--once").wait() == 0
    assert processes.lines() == [b"new"]


def test_several_files_are_producers_of_their_own(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    gateway = processes.gateway()
    other = path.with_name("error.log")
    path.write_bytes(b"a 1\na 2\n")
    other.write_bytes(b"e 1\n")
    assert processes.agent(*tail, "--tail", other, "--once").wait() == 0
    assert sorted(processes.lines()) == [b"a 1", b"a 2", b"e 1"]
    assert gateway.stop() == 0
    assert gateway.reports("stopped")[0]["streams"]["logs"]["producers"] == 2


@pytest.mark.parametrize("settle", ["5s", "100ms"])
def test_once_continues_after_a_rotation_to_the_end_of_the_last_file(
    processes: Processes, path: Path, tail: tuple[object, ...], settle: str
) -> None:
    processes.gateway()
    path.write_bytes(b"a 1\n")
    once = (*tail, "--once", "--settle", settle)
    assert processes.agent(*once).wait() == 0
    with open(path, "ab") as file:
        file.write(b"a 2\n")
    path.rename(path.with_name("access.log.1"))
    path.write_bytes(b"b 1\n")
    agent = processes.agent(*once)
    assert agent.wait() == 0
    assert processes.lines() == [b"a 1", b"a 2", b"b 1"]
    assert agent.reports("ended")[0]["lines"] == 2
    assert processes.agent(*once).wait() == 0
    assert processes.lines() == [b"a 1", b"a 2", b"b 1"]


def rotate_twice(path: Path, spool: Spool) -> None:
    """Create three files, of which an earlier agent was reading the oldest."""
    path.parent.mkdir()
    for number, text in ((2, b"a\n"), (1, b"b\n")):
        path.write_bytes(text)
        path.rename(path.with_name(f"access.log.{number}"))
    path.write_bytes(b"c\n")
    source = {"journal": 0, "inode": path.with_name("access.log.2").stat().st_ino, "offset": 0}
    (spool.directory / "source.json").write_text(json.dumps(source))


@pytest.mark.slow
def test_a_renamed_file_settles_by_its_own_times(path: Path, tmp_path: Path) -> None:
    """Neither a restart of the agent nor a file that it has just reached restarts the wait."""
    spool = Spool(tmp_path / "spool")
    rotate_twice(path, spool)
    touched = path.with_name("access.log.1").stat().st_ctime
    until(lambda: time.time() > touched + 5, what="five seconds")
    overflow = Overflow(spool, 1 << 20, "block")
    started = time.monotonic()
    TailReader(path, spool, overflow, threading.Event(), settle_seconds=5, once=True).run()
    assert time.monotonic() - started < 5
    assert spool.lines(0) == (0, b"a\nb\nc\n")
    spool.close()


def test_no_file_is_skipped_while_the_disk_is_full(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    rotate_twice(path, spool)
    overflow = Overflow(spool, 1 << 20, "block")
    reader = TailReader(path, spool, overflow, threading.Event(), settle_seconds=0, once=True)
    write, full = tail_module.write_whole, [OSError(errno.ENOSPC, "full")] * 2

    def write_or_fail(*args: object) -> None:
        if full:
            raise full.pop()
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(tail_module, "write_whole", write_or_fail)
    reader.run()
    assert not full
    assert spool.lines(0) == (0, b"a\nb\nc\n")
    spool.close()


@pytest.mark.parametrize(
    "names",
    [["access.log.10", "access.log.9", "access.log.1"], ["access.log-20261109", "access.log-20261110"]],
)
def test_files_with_the_same_time_are_all_read_once(path: Path, tmp_path: Path, names: list[str]) -> None:
    """As copied files have, or those of a file system with coarse times; reading starts with any of them."""
    path.parent.mkdir()
    written = [path.with_name(name) for name in names] + [path]
    for number, file in enumerate(written):
        file.write_bytes(b"%d\n" % number)
        os.utime(file, (1e9, 1e9))
    for first, file in enumerate(written):
        spool = Spool(tmp_path / f"spool {first}")
        source = {"journal": 0, "inode": file.stat().st_ino, "offset": 0}
        (spool.directory / "source.json").write_text(json.dumps(source))
        overflow = Overflow(spool, 1 << 20, "block")
        TailReader(path, spool, overflow, threading.Event(), settle_seconds=0, once=True).run()
        assert spool.lines(0) == (0, b"".join(b"%d\n" % number for number in range(first, len(written))))
        spool.close()


def test_a_file_that_is_renamed_before_it_is_opened_is_found_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    rotate_twice(path, spool)
    overflow = Overflow(spool, 1 << 20, "block")
    reader = TailReader(path, spool, overflow, threading.Event(), settle_seconds=0, once=True)
    real_open = os.open
    renamed: list[Path] = []

    def open_after_rename(name: Path, *flags: int) -> int:
        if name == path.with_name("access.log.1") and not renamed:
            for number in (2, 1):
                renamed.append(path.with_name(f"access.log.{number}").rename(f"{path}.{number + 1}"))
        return real_open(name, *flags)

    monkeypatch.setattr(os, "open", open_after_rename)
    reader.run()
    assert renamed
    assert spool.lines(0) == (0, b"a\nb\nc\n")
    spool.close()


def test_a_file_that_was_renamed_just_now_may_still_be_written_to(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    """Also one that had been quiet for long: its writer may not know of the renaming yet."""
    processes.gateway()
    path.write_bytes(b"a 1\n")
    os.utime(path, (0, 0))
    assert processes.agent(*tail, "--once").wait() == 0
    writer = open(path, "ab", buffering=0)  # noqa: SIM115 - closed below
    path.rename(path.with_name("access.log.1"))
    path.write_bytes(b"b 1\n")
    agent = processes.agent(*tail, "--once", "--settle", "3s")
    until(lambda: agent.reports("started"), what="started")
    writer.write(b"a 2\n")
    writer.close()
    assert agent.wait() == 0
    assert processes.lines() == [b"a 1", b"a 2", b"b 1"]


def test_a_missing_file_is_reported_and_waited_for_unless_once(
    processes: Processes, path: Path, tail: tuple[object, ...]
) -> None:
    processes.gateway()
    agent = processes.agent(*tail, "--once")
    assert agent.wait() == 3
    assert "[FILE_MISSING]" in agent.text()
    agent = processes.agent(*tail)
    assert until(lambda: agent.reports("file missing"))[0]["path"] == str(path)
    path.write_bytes(b"a\n")
    until(lambda: (processes.log / "logs").exists() and processes.lines() == [b"a"], what="a line")
    assert len(agent.reports("file missing")) == 1
    assert agent.stop() == 0


def test_once_reports_lines_not_shipped(processes: Processes, path: Path, tail: tuple[object, ...]) -> None:
    path.write_bytes(b"a\n")
    agent = processes.agent(*tail, "--once", "--drain", "100ms")
    assert agent.wait() == 3
    assert "[NOT_SHIPPED]" in agent.text()
    assert agent.reports("ended")[0]["unacknowledged_bytes"] == 2
    processes.gateway()
    assert processes.agent(*tail, "--once").wait() == 0
    assert processes.lines() == [b"a"]


def test_tailing_needs_a_spool(processes: Processes, path: Path) -> None:
    agent = processes.agent("--tail", path)
    assert agent.wait() == 2
    assert "[SPOOL_NEEDED]" in agent.text()


def test_newest_lines_of_a_file_are_dropped_and_its_offset_is_kept(
    processes: Processes, tmp_path: Path
) -> None:
    path = tmp_path / "access.log"
    lines = [b"%d %s" % (n, os.urandom(20).hex().encode()) for n in range(20_000)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    options = ("--tail", path, "--spool", tmp_path / "spool", "--spool-bytes", "200K")
    agent = processes.agent(*options, "--when-full", "drop-newest", "--once", "--drain", "0s")
    assert agent.wait() == 3
    dropped = agent.reports("ended")[0]["dropped_lines"]
    assert 0 < dropped < len(lines)
    with open(path, "ab") as file:
        file.write(b"after\n")
    gateway = processes.gateway()
    assert processes.agent(*options, "--once").wait() == 0
    lines_in_log = processes.lines()
    arrived = set(lines_in_log)
    assert lines_in_log == [line for line in [*lines, b"after"] if line in arrived]
    assert len(lines_in_log) == len(lines) - dropped + 1
    assert gateway.stop() == 0
    given_up = gateway.reports("stopped")[0]["streams"]["logs"]["given_up_bytes"]
    assert given_up == sum(len(line) + 1 for line in lines if line not in arrived)
