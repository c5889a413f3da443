"""Input that a full disk did not take is neither lost nor torn, from any kind of source."""

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
    """A disk that takes all, a part or nothing of each write to a spool, at random; nothing if it is full."""

    def __init__(self, spool: Spool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused, self.full = 0, False
        self._chance = random.Random(seed)
        self._write = os.write
        self._spool = spool
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(spool, "_start_file", self._refusing(spool._start_file))
        monkeypatch.setattr(spool_files, "write_whole", self._refusing(spool_files.write_whole))

    def write(self, fd: int, data: bytes) -> int:
        if fd != self._spool._fd:
            return self._write(fd, data)
        self._refuse()
        return self._write(fd, data[: self._chance.randint(1, len(data))])

    def _refusing(self, real: Callable[..., None]) -> Callable[..., None]:
        def refusing(*args: object, **kwargs: object) -> None:
            self._refuse()
            real(*args, **kwargs)

        return refusing

    def _refuse(self) -> None:
        if self.full or self._chance.random() < 0.4:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Fickle(pipe_reader.Overflow):
    """Has room or none, at random."""

    chance = random.Random(1)

    def has_room(self) -> bool:
        return self.chance.random() < 0.6


def open_source(kind: str, tmp_path: Path) -> int:
    """Open a file, a pipe or a socket that `SENT` can be read from."""
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


def read_spool(spool: Spool) -> bytes:
    """Return all lines of a spool."""
    chunks, position = [], 0
    while (found := spool.lines(position)) is not None:
        position = found[0] + len(found[1])
        chunks.append(found[1])
    return b"".join(chunks)


@pytest.fixture(autouse=True)
def without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_reader, "_REST_SECONDS", 0.0)
    monkeypatch.setattr(pipe_reader, "_MOST", 10_000)  # many steps


@pytest.mark.parametrize("kind", ["file", "socket"])
@pytest.mark.parametrize("seed", range(3))
def test_every_byte_is_in_the_spool_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    spool = Spool(tmp_path / "spool", file_bytes=50_000)
    overflow = pipe_reader.Overflow(spool, 1 << 30, "block")
    fd = open_source(kind, tmp_path)
    reader = pipe_reader.PipeReader(fd, spool, overflow, threading.Event())
    disk = Disk(spool, seed, monkeypatch)
    reader.run()
    assert disk.refused
    assert read_spool(spool) == SENT
    assert (spool.end, reader.pending_bytes) == (len(SENT), 0)
    os.close(fd)
    spool.close()


@pytest.mark.parametrize("kind", ["file", "socket", "pipe"])
@pytest.mark.parametrize("seed", range(3))
def test_lines_dropped_meanwhile_are_whole_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    spool = Spool(tmp_path / "spool", file_bytes=20_000)
    overflow = Fickle(spool, 1, "drop-newest")
    overflow.chance = random.Random(seed)
    fd = open_source(kind, tmp_path)
    reader = pipe_reader.PipeReader(fd, spool, overflow, threading.Event())
    disk = Disk(spool, seed, monkeypatch)
    reader.run()
    assert disk.refused
    assert overflow.dropped_lines
    lines, sent = read_spool(spool).splitlines(), SENT.splitlines()
    arrived = set(lines)
    assert lines == [line for line in sent if line in arrived]
    assert len(lines) + overflow.dropped_lines == len(sent)
    assert spool.end + overflow.skipped_bytes == len(SENT)
    os.close(fd)
    spool.close()


def test_the_last_bytes_are_written_without_any_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the reader was asked to stop."""
    spool = Spool(tmp_path / "spool")
    near, far = socket.socketpair()
    stop = threading.Event()
    reader = pipe_reader.PipeReader(near.fileno(), spool, pipe_reader.Overflow(spool, 1 << 30, "block"), stop)
    disk = Disk(spool, 0, monkeypatch)
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
    assert read_spool(spool) == b"last\n"
    near.close()
    far.close()
    spool.close()


def test_a_file_as_input_waits_for_the_disk(processes: Processes, tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "input").write_bytes(SENT)
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--spool", small_disk, "--drain", "20s", stdin=file)
    until(lambda: agent.reports("spool cannot be written"), what="a full disk")
    processes.gateway()
    assert agent.wait() == 0
    assert processes.lines() == SENT.splitlines()
    assert "unwritten_bytes" not in agent.reports("ended")[0]


def test_bytes_read_but_never_written_are_reported(
    processes: Processes, tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "input").write_bytes(SENT)
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--spool", small_disk, "--drain", "0s", stdin=file)
        until(lambda: agent.reports("spool cannot be written"), what="a full disk")
        agent.stop()
        read = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    written = sum(file.stat().st_size for file in (small_disk / "stdin").glob("*.raw"))
    assert agent.reports("ended")[0]["unwritten_bytes"] == read - written > 0
