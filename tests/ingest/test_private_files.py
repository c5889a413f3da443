"""What agents and gateways store only its owner can read, and an agent ships no file that a symbolic link leads to."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.ingest.frames import Frame
from penstock.ingest.pipe_reader import Overflow
from penstock.ingest.private_directories import make_private_directory
from penstock.ingest.readers import read_floors, write_bookmark
from penstock.ingest.spool import Spool
from penstock.ingest.store import Store
from penstock.ingest.tail import TailReader
from tests.ingest.processes import Processes, until

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def permissive() -> Iterator[None]:
    """The umask of most machines, which lets everybody read what is created."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def open_to_others(*tops: Path) -> list[str]:
    """The files and directories below that others can read, write or enter."""
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    assert len(paths) > len(tops)
    return [f"{path} {path.stat().st_mode:o}" for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_only_the_owner_can_read_what_an_agent_and_a_gateway_store(
    processes: Processes, tmp_path: Path
) -> None:
    processes.gateway("--segment-bytes", "2K", "--partitions", 2)
    (tmp_path / "access.log").write_bytes(b"".join(os.urandom(40).hex().encode() + b"\n" for _ in range(500)))
    spool = tmp_path / "new" / "spool"
    tail = ("--tail", tmp_path / "access.log", "--spool", spool, "--drain", "60s", "--once")
    assert processes.agent(*tail, "--spool-bytes", "40K").wait(120) == 0
    write_bookmark(processes.log / "logs", "engine", {"p0": 0})
    assert len(list((processes.log / "logs").rglob("*.seg"))) > 1
    assert open_to_others(processes.log, tmp_path / "new") == []


def test_directories_that_exist_keep_their_mode_and_are_reported(
    processes: Processes, tmp_path: Path
) -> None:
    store = Store(processes.log / "logs", partitions=1)
    store.append([Frame.of("a", 0, b"a\n")])
    store.close()
    spool = tmp_path / "spool"
    spool.mkdir()
    for directory in (processes.log, processes.log / "logs", spool):
        directory.chmod(0o750)
    gateway = processes.gateway()
    agent = processes.agent("--spool", spool)
    assert agent.wait() == 0
    reported = [
        report["path"] for one in (gateway, agent) for report in one.reports("directory open to others")
    ]
    assert reported == [str(processes.log), str(processes.log / "logs"), str(spool)]
    assert stat.S_IMODE(spool.stat().st_mode) == stat.S_IMODE(processes.log.stat().st_mode) == 0o750


def test_directories_are_created_for_the_owner_only(tmp_path: Path) -> None:
    make_private_directory(tmp_path / "a" / "b")
    make_private_directory(tmp_path / "a" / "b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")] == [
        0o700
    ] * 2


def test_a_reader_whose_file_cannot_be_read_may_need_everything(tmp_path: Path) -> None:
    write_bookmark(tmp_path, "known", {"p0": 7})
    assert read_floors(tmp_path) == {"p0": 7}
    (tmp_path / "readers" / "other.json").mkdir()
    assert read_floors(tmp_path) == {}


# -- symbolic links --------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"secret\n")
    return path


def test_a_file_that_is_a_symbolic_link_is_read_only_if_asked(
    processes: Processes, tmp_path: Path, secret: Path
) -> None:
    processes.gateway()
    (tmp_path / "access.log").symlink_to(secret)
    tail = ("--tail", tmp_path / "access.log", "--spool", tmp_path / "spool", "--drain", "60s", "--once")
    refused = processes.agent(*tail)
    assert refused.wait() == 3
    assert "[FILE_IS_SYMLINK]" in refused.text()
    assert "--follow-symlinks" in refused.text()
    assert not (processes.log / "logs").exists() or processes.lines() == []
    assert processes.agent(*tail, "--follow-symlinks").wait(120) == 0
    assert processes.lines() == [b"secret"]


@pytest.mark.parametrize("name", ["access.log", "access.log.1"])
def test_a_symbolic_link_that_appears_while_the_file_is_followed_is_not_read(
    processes: Processes, tmp_path: Path, secret: Path, name: str
) -> None:
    processes.gateway()
    path = tmp_path / "access.log"
    path.write_bytes(b"a\n")
    tail = ("--tail", path, "--spool", tmp_path / "spool", "--settle", "100ms", "--drain", "60s")
    agent = processes.agent(*tail)
    until(lambda: (processes.log / "logs").exists() and processes.lines() == [b"a"], 60, "the line")
    if name == "access.log":
        path.rename(tmp_path / "access.log.1")
        path.symlink_to(secret)
        assert agent.wait(60) == 3
        assert "[FILE_IS_SYMLINK]" in agent.text()
    else:
        (tmp_path / "access.log.1").symlink_to(secret)
        os.utime(secret, (2e9, 2e9))  # as if it had been written after the finished file
        path.rename(tmp_path / "access.log.2")
        path.write_bytes(b"b\n")
        until(lambda: processes.lines() == [b"a", b"b"], 60, "the next file's line")
        assert agent.stop() == 0
    assert b"secret" not in processes.lines()


def test_a_link_is_refused_before_it_is_measured(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "link").symlink_to(secret)
    spool = Spool(tmp_path / "spool")
    with pytest.raises(ExternalError, match="FILE_IS_SYMLINK"):
        TailReader(tmp_path / "link", spool, Overflow(spool, 1, "block"), threading.Event(), from_end=True)
    spool.close()
