"""What was read and a full disk did not take is neither lost nor torn, wherever it comes from."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.ingest import pipe_reader, spool_files
from penstock.ingest.spool import Spool
from tests.ingest.processes import Processes, numbered, until

SENT = b"".join(line + b"\n" for line in numbered(0, 30_000))


class Disk:
    """Takes all, a part or nothing of what is written to a journal, by chance; nothing at all if it is full."""

    def __init__(self, journal: Spool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused, self.full = 0, False
        self._chance = random.Random(seed)
        self._write = os.write
        self._journal = journal
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(journal, "_start_file", self._refusing(journal._start_file))
        monkeypatch.setattr(spool_files, "write_whole", self._refusing(spool_files.write_whole))

    def write(self, fd: int, data: bytes) -> int:
        if fd != self._journal._fd:
            return self._write(fd, data)
        self._refuse()
        return self._write(fd, data[: self._chance.randint(1, len(data))])

    def _refusing(self, real: Callable[..., None]) -> Callable[..., None]:
        def refusing(*told: object, **named: object) -> None:
            self._refuse()
            real(*told, **named)

        return refusing

    def _refuse(self) -> None:
        if self.full or self._chance.random() < 0.4:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Fickle(pipe_reader.Overflow):
    """Has room or none, by chance."""

    chance = random.Random(1)

    def has_room(self) -> bool:
        return self.chance.random() < 0.6


def source(kind: str, tmp_path: Path) -> int:
    """Something to read `SENT` from."""
    if kind == "file":
        (tmp_path / "input").write_bytes(SENT)
        return os.open(tmp_path / "input", os.O_RDONLY)
    if kind == "pipe":
        out, into = os.pipe()
    else:
        ends = socket.socketpair()
        out, into = ends[0].detach(), ends[1].detach()

    def feed() -> None:
        with open(into, "wb") as file:
            file.write(SENT)

    threading.Thread(target=feed, daemon=True).start()
    return out


def held(journal: Spool) -> bytes:
    """All lines of a journal."""
    found, position = [], 0
    while (lines := journal.lines(position)) is not None:
        position = lines[0] + len(lines[1])
        found.append(lines[1])
    return b"".join(found)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_reader, "_REST_SECONDS", 0.0)
    monkeypatch.setattr(pipe_reader, "_MOST", 10_000)  # many steps


@pytest.mark.parametrize("kind", ["file", "socket"])
@pytest.mark.parametrize("seed", range(3))
def test_every_byte_is_in_the_journal_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    journal = Spool(tmp_path / "journal", file_bytes=50_000)
    overflow = pipe_reader.Overflow(journal, 1 << 30, "block")
    fd = source(kind, tmp_path)
    reader = pipe_reader.PipeReader(fd, journal, overflow, threading.Event())
    disk = Disk(journal, seed, monkeypatch)
    reader.run()
    assert disk.refused
    assert held(journal) == SENT
    assert (journal.end, reader.pending_bytes) == (len(SENT), 0)
    os.close(fd)
    journal.close()


@pytest.mark.parametrize("kind", ["file", "socket", "pipe"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_given_up_meanwhile_is_whole_lines_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    journal = Spool(tmp_path / "journal", file_bytes=20_000)
    overflow = Fickle(journal, 1, "drop-newest")
    overflow.chance = random.Random(seed)
    fd = source(kind, tmp_path)
    reader = pipe_reader.PipeReader(fd, journal, overflow, threading.Event())
    disk = Disk(journal, seed, monkeypatch)
    reader.run()
    assert disk.refused
    assert overflow.dropped_lines
    found, sent = held(journal).splitlines(), SENT.splitlines()
    kept = set(found)
    assert found == [line for line in sent if line in kept]
    assert len(found) + overflow.dropped_lines == len(sent)
    assert journal.end + overflow.skipped_bytes == len(SENT)
    os.close(fd)
    journal.close()


def test_the_last_bytes_are_written_without_any_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after it was told to stop."""
    journal = Spool(tmp_path / "journal")
    near, far = socket.socketpair()
    stop = threading.Event()
    reader = pipe_reader.PipeReader(
        near.fileno(), journal, pipe_reader.Overflow(journal, 1 << 30, "block"), stop
    )
    disk = Disk(journal, 0, monkeypatch)
    disk.full = True
    thread = threading.Thread(target=reader.run, daemon=True)
    thread.start()
    far.sendall(b"last\n")
    until(lambda: disk.refused > 2, what="a full disk")
    assert reader.pending_bytes == 5
    stop.set()
    disk.full = False
    thread.join(10)
    assert not thread.is_alive()
    assert held(journal) == b"last\n"
    near.close()
    far.close()
    journal.close()


def test_a_file_as_input_waits_for_the_disk(processes: Processes, tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "input").write_bytes(SENT)
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--spool", small_disk, "--drain", "20s", stdin=file)
    until(lambda: agent.said("spool cannot be written"), what="a full disk")
    processes.gateway()
    assert agent.wait() == 0
    assert processes.lines() == SENT.splitlines()
    assert "unwritten_bytes" not in agent.said("ended")[0]


def test_what_was_read_and_never_written_is_told(
    processes: Processes, tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "input").write_bytes(SENT)
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--spool", small_disk, "--drain", "0s", stdin=file)
        until(lambda: agent.said("spool cannot be written"), what="a full disk")
        agent.stop()
        read = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    written = sum(file.stat().st_size for file in (small_disk / "stdin").glob("*.raw"))
    assert agent.said("ended")[0]["unwritten_bytes"] == read - written > 0
