"""Where an agent's lines come from: standard input.

Receives a pipe (or anything that can be read); hands its bytes to the journal at once, whatever the network does.

`Overflow` says what happens when the spool is full: wait, so that the writer waits too; or give up the oldest
lines, or the newest. What is given up is counted and told; the newest also leave a hole in the producer's numbers, by
which the gateway learns of it.
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

from penstock.ingest.journal import Journal
from penstock.ingest.machine import boot_id
from penstock.ingest.tell import tell
from penstock.state.durable import write_whole

WhenFull = Literal["block", "drop-oldest", "drop-newest"]
#: how much is taken at once
_MOST = 256 << 10
#: how long a pipe may fill up before it is looked at again: few wake-ups, and none waits
_REST_SECONDS = 0.02
_PIPE_BYTES = 1 << 20
#: how long before the same is told again
TELL_SECONDS = 10.0


class Overflow:
    """Keeps a journal below a size."""

    def __init__(self, journal: Journal, most_bytes: int, when_full: WhenFull) -> None:
        self._journal = journal
        self._most_bytes = most_bytes
        self.when_full = when_full
        #: lines that were given up
        self.dropped_lines = 0
        self.dropped_bytes = 0
        #: bytes of the newest lines that were given up since the last that was kept
        self.skipped_bytes = 0
        self._full = False
        self._told_at = -1e9
        self._told_lines = 0

    def has_room(self) -> bool:
        """Whether more may be appended; makes room if that is the policy."""
        if self.when_full == "drop-newest":
            self._full = self._still_full()
            return not self._full
        while self._journal.disk_bytes >= self._most_bytes:
            if self.when_full == "block":
                self._tell("spool full")
                return False
            dropped = self._journal.drop_oldest()
            if dropped is None:
                return True
            if dropped[1]:
                self._count(*dropped)
        return True

    def _still_full(self) -> bool:
        """Once full it stays so until a file's worth is free: few holes, and no files of a line each."""
        used = self._journal.disk_bytes
        if not self._full or self._journal.is_one_file:
            return used >= self._most_bytes
        return used > self._most_bytes - self._journal.file_bytes

    def dropped(self, lines: int, size: int) -> None:
        """Count the newest lines, which were given up."""
        self.skipped_bytes += size
        self._count(lines, size)

    def skip(self) -> None:
        """Before what comes next: leave out the numbers of what was given up."""
        if self.skipped_bytes:
            self._journal.give_up(self.skipped_bytes)
            self.skipped_bytes = 0

    def unwritable(self, error: OSError) -> None:
        """The spool's disk takes nothing: tell it, and make room if something is there for nothing."""
        with contextlib.suppress(OSError):
            self._journal.relieve()
        self._tell("spool cannot be written", reason=str(error))

    def remind(self) -> None:
        """Tell what was given up since it was last told."""
        if self.dropped_lines > self._told_lines:
            self._tell("lines dropped")

    def _count(self, lines: int, size: int) -> None:
        self.dropped_lines += lines
        self.dropped_bytes += size
        self.remind()

    def _tell(self, event: str, **facts: object) -> None:
        if time.monotonic() - self._told_at > TELL_SECONDS:
            self._told_at, self._told_lines = time.monotonic(), self.dropped_lines
            tell(
                event,
                when_full=self.when_full,
                dropped_lines=self.dropped_lines,
                dropped_bytes=self.dropped_bytes,
                producer=self._journal.producer,
                **facts,
            )


class PipeInlet:
    """Reads standard input into a journal, until it ends or `stop` is set and it is empty."""

    def __init__(self, fd: int, journal: Journal, overflow: Overflow, stop: threading.Event) -> None:
        self._fd, self._journal, self._overflow, self._stop = fd, journal, overflow, stop
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._most = min(_MOST, journal.file_bytes)
        self._discarding = False  # inside of a line whose beginning was given up
        self._held = b""  # read, but neither in the journal nor given up
        self._begin()
        if self._is_pipe:
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def _begin(self) -> None:
        """A line that an earlier life left unfinished goes on if this is the same pipe, else it ends here."""
        status = os.fstat(self._fd)
        source = {"device": status.st_dev, "inode": status.st_ino, "boot": boot_id()}
        place: Path = self._journal.directory / "source.json"
        same = self._is_pipe and place.exists() and json.loads(place.read_bytes()) == source
        if not same:
            if self._journal.ends_inside_a_line:
                self._journal.append(b"\n")
            write_whole(place, json.dumps(source).encode())

    @property
    def held_bytes(self) -> int:
        """What was read and is not in the journal yet: its disk takes nothing."""
        return len(self._held)

    def run(self) -> None:
        """Read to the end."""
        while True:
            self._overflow.remind()
            if not self._held and not select.select([self._fd], [], [], 0.2)[0]:
                if self._stop.is_set():
                    break
                continue
            try:
                moved = self._move()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise
                self._overflow.unwritable(error)
                moved = -1
            if moved == 0:
                break
            if moved < _PIPE_BYTES // 8:
                self._stop.wait(_REST_SECONDS)
        if self._journal.ends_inside_a_line and not self._stop.is_set():
            self._journal.append(b"\n")
        with contextlib.suppress(OSError):  # then only standard error tells
            self._overflow.skip()

    def _move(self) -> int:
        """Take what is there; 0 at the end, less than 0 if there is no room."""
        if not self._overflow.has_room():
            if self._overflow.when_full == "block":
                return -1
            return self._discard()
        if not self._discarding:
            self._overflow.skip()
            if self._is_pipe and not self._held:
                return self._journal.append_from(self._fd, self._most)
        data = self._hold(self._most)
        if self._discarding:
            end = data.find(b"\n") + 1
            self._let_go(1 if end else 0, end or len(data))
            self._discarding = not end
        if self._held:
            self._overflow.skip()
            self._append(len(self._held))
        return len(data)

    def _discard(self) -> int:
        """Give up the newest lines; one that has begun is finished first."""
        data = self._hold(_MOST)
        if not self._discarding and self._journal.ends_inside_a_line:
            self._append(data.find(b"\n") + 1 or len(data))
        if rest := self._held:
            self._discarding = not rest.endswith(b"\n")
            self._let_go(rest.count(b"\n"), len(rest))
        return len(data)

    def _hold(self, most: int) -> bytes:
        """What comes next: first what a full disk did not take."""
        self._held = self._held or os.read(self._fd, most)
        return self._held

    def _append(self, count: int) -> None:
        """Move the first bytes that are held to the journal; those that it does not take stay."""
        before = self._journal.end
        try:
            self._journal.append(self._held[:count])
        finally:
            self._held = self._held[self._journal.end - before :]

    def _let_go(self, lines: int, size: int) -> None:
        self._held = self._held[size:]
        self._overflow.dropped(lines, size)
