"""Reads an agent's lines from standard input.

Receives a pipe (or anything that can be read); appends its bytes to the spool at once, whatever the network does.

`Overflow` decides what happens when the spool is full: wait, so that the writer waits too; or drop the oldest
lines, or the newest. Dropped lines are counted and reported; the newest also leave a gap in the producer's numbers,
by which the gateway learns of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import stat
import threading
import time
from pathlib import Path
from typing import Literal

from penstock.ingest.event_log import log_event
from penstock.ingest.spool import Spool, boot_id
from penstock.state.durable import write_whole

WhenFull = Literal["block", "drop-oldest", "drop-newest"]
#: how much is read at once
_MOST = 256 << 10
#: how long a pipe may fill up before the next read: few wake-ups, and no writer waits
_REST_SECONDS = 0.02
_PIPE_BYTES = 1 << 20
#: how long before the same is reported again
REPORT_SECONDS = 10.0


class Overflow:
    """Keeps a spool below a size."""

    def __init__(self, spool: Spool, most_bytes: int, when_full: WhenFull) -> None:
        self._spool = spool
        self._most_bytes = most_bytes
        self.when_full = when_full
        #: lines that were dropped
        self.dropped_lines = 0
        self.dropped_bytes = 0
        #: bytes of the newest lines that were dropped since the last that was appended
        self.skipped_bytes = 0
        self._full = False
        self._reported_at = -1e9
        self._reported_lines = 0

    def has_room(self) -> bool:
        """Whether more may be appended; makes room if that is the policy."""
        if self.when_full == "drop-newest":
            self._full = self._is_still_full()
            return not self._full
        while self._spool.disk_bytes >= self._most_bytes:
            if self.when_full == "block":
                self._report("spool full")
                return False
            dropped = self._spool.drop_oldest()
            if dropped is None:
                return True
            if dropped[1]:
                self._count(*dropped)
        return True

    def _is_still_full(self) -> bool:
        """Whether it is full; it stays so until a file's worth is free: few gaps, and no files of one line."""
        used = self._spool.disk_bytes
        if not self._full or self._spool.is_one_file:
            return used >= self._most_bytes
        return used > self._most_bytes - self._spool.file_bytes

    def count_dropped(self, lines: int, size: int) -> None:
        """Count dropped newest lines."""
        self.skipped_bytes += size
        self._count(lines, size)

    def write_gap(self) -> None:
        """Leave a gap in the numbers for the newest lines that were dropped."""
        if self.skipped_bytes:
            self._spool.give_up(self.skipped_bytes)
            self.skipped_bytes = 0

    def report_unwritable(self, error: OSError) -> None:
        """Report that the spool's disk is full, and free the space of what is acknowledged."""
        with contextlib.suppress(OSError):
            self._spool.free_space()
        self._report("spool cannot be written", reason=str(error))

    def report_drops(self) -> None:
        """Report the lines that were dropped since the last report."""
        if self.dropped_lines > self._reported_lines:
            self._report("lines dropped")

    def _count(self, lines: int, size: int) -> None:
        self.dropped_lines += lines
        self.dropped_bytes += size
        self.report_drops()

    def _report(self, event: str, **facts: object) -> None:
        if time.monotonic() - self._reported_at > REPORT_SECONDS:
            self._reported_at, self._reported_lines = time.monotonic(), self.dropped_lines
            log_event(
                event,
                when_full=self.when_full,
                dropped_lines=self.dropped_lines,
                dropped_bytes=self.dropped_bytes,
                producer=self._spool.producer,
                **facts,
            )


class PipeReader:
    """Reads standard input into a spool, until it ends or `stop` is set and it is empty."""

    def __init__(self, fd: int, spool: Spool, overflow: Overflow, stop: threading.Event) -> None:
        self._fd, self._spool, self._overflow, self._stop = fd, spool, overflow, stop
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._most = min(_MOST, spool.file_bytes)
        self._discarding = False  # inside of a line whose first part was dropped
        self._pending = b""  # read, but neither in the spool nor dropped
        self._resume_line()
        if self._is_pipe:
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def _resume_line(self) -> None:
        """Continue a line that an earlier run left unfinished if this is the same pipe, else end it."""
        status = os.fstat(self._fd)
        source = {"device": status.st_dev, "inode": status.st_ino, "boot": boot_id()}
        place: Path = self._spool.directory / "source.json"
        same = self._is_pipe and place.exists() and json.loads(place.read_bytes()) == source
        if not same:
            if self._spool.ends_inside_a_line:
                self._spool.append(b"\n")
            write_whole(place, json.dumps(source).encode())

    @property
    def pending_bytes(self) -> int:
        """How many bytes were read that the spool's full disk has not taken."""
        return len(self._pending)

    def run(self) -> None:
        """Read to the end."""
        while True:
            self._overflow.report_drops()
            if not self._pending and not select.select([self._fd], [], [], 0.2)[0]:
                if self._stop.is_set():
                    break
                continue
            try:
                count = self._move()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise
                self._overflow.report_unwritable(error)
                count = -1
            if count == 0:
                break
            if count < _PIPE_BYTES // 8:
                self._stop.wait(_REST_SECONDS)
        if self._spool.ends_inside_a_line and not self._stop.is_set():
            self._spool.append(b"\n")
        with contextlib.suppress(OSError):  # then only standard error reports it
            self._overflow.write_gap()

    def _move(self) -> int:
        """Read what is there; 0 at the end, less than 0 if there is no room."""
        if not self._overflow.has_room():
            if self._overflow.when_full == "block":
                return -1
            return self._discard()
        if not self._discarding:
            self._overflow.write_gap()
            if self._is_pipe and not self._pending:
                return self._spool.append_from(self._fd, self._most)
        data = self._read_pending(self._most)
        if self._discarding:
            end = data.find(b"\n") + 1
            self._drop(1 if end else 0, end or len(data))
            self._discarding = not end
        if self._pending:
            self._overflow.write_gap()
            self._append(len(self._pending))
        return len(data)

    def _discard(self) -> int:
        """Drop the newest lines; finish a started line first."""
        data = self._read_pending(_MOST)
        if not self._discarding and self._spool.ends_inside_a_line:
            self._append(data.find(b"\n") + 1 or len(data))
        if rest := self._pending:
            self._discarding = not rest.endswith(b"\n")
            self._drop(rest.count(b"\n"), len(rest))
        return len(data)

    def _read_pending(self, most: int) -> bytes:
        """Return what comes next: first what a full disk did not take."""
        self._pending = self._pending or os.read(self._fd, most)
        return self._pending

    def _append(self, count: int) -> None:
        """Append the first pending bytes to the spool; those that it does not take stay."""
        before = self._spool.end
        try:
            self._spool.append(self._pending[:count])
        finally:
            self._pending = self._pending[self._spool.end - before :]

    def _drop(self, lines: int, size: int) -> None:
        self._pending = self._pending[size:]
        self._overflow.count_dropped(lines, size)
