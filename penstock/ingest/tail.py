"""Reads an agent's lines from a file that grows, and is rotated by renaming or by copying and truncating.

Receives a path; appends its whole lines to the spool, each once.

The position in the file is not recorded line by line: lines go into the spool byte for byte, so the spool's
end is how far the file was read. Only a change of file is recorded (`source.json`): "from spool
position P on it is file F from offset O".

A renamed file is finished when it has not changed for a while: by its own times, so that neither a
restart nor an old rotation restarts the wait.

A file that is a symbolic link is refused unless `follow_symlinks`, also one that appears later or under a rotated name.

Does not guarantee: what is written to a file between its copy and its truncation, or to a file that was removed
or compressed before it was read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import threading
import time
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.event_log import log_event
from penstock.ingest.pipe_reader import Overflow
from penstock.ingest.spool import Spool
from penstock.state.durable import write_whole

_MOST = 256 << 10
_HEAD_BYTES = 256
#: a rotated file's number with as many digits is a date
_DATE_DIGITS = 6
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4")

#: the order of rotated files by their names: by the numbers in them, else by the name
_Age = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class _Place:
    """From position `journal` on, the spool holds the file of this inode from `offset` on.

    The names of the fields are those in `source.json`.
    """

    journal: int
    inode: int
    offset: int
    #: the file's first bytes, by count and checksum: a truncated file starts otherwise
    head_bytes: int = 0
    head_crc: int = 0


class TailReader:
    """Follows a file into a spool until `stop` is set."""

    # over 8 parameters: each is an option of the agent
    def __init__(
        self,
        path: Path,
        spool: Spool,
        overflow: Overflow,
        stop: threading.Event,
        *,
        settle_seconds: float = 5.0,
        poll_seconds: float = 0.1,
        follow_symlinks: bool = False,
        from_end: bool = False,
        once: bool = False,
    ) -> None:
        self._path, self._spool, self._overflow, self._stop = path, spool, overflow, stop
        self._follow_symlinks = follow_symlinks
        self._settle_seconds, self._poll_seconds, self._once = settle_seconds, poll_seconds, once
        self._record = spool.directory / "source.json"
        self._fd = -1
        self._place: _Place | None = None
        #: when the file was last touched, by its own times, and when that was seen
        self._touched, self._touched_seen = 0, 0.0
        #: the finished file, while the one after it is not open yet
        self._finished_file: os.stat_result | None = None
        self._seen = False
        #: whether it ended without ever having seen the file
        self.missing = False
        if self._record.exists():
            self._resume(_Place(**json.loads(self._record.read_bytes())))
        elif from_end and path.exists():
            self._open(path, path.stat().st_size)

    def run(self) -> None:
        """Follow the file."""
        while not self._stop.is_set():
            self._overflow.report_drops()
            try:
                if not self._step():
                    break
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._overflow.report_unwritable(error)
                self._stop.wait(self._poll_seconds)
        self._finish()

    def _finish(self) -> None:
        if self._place is not None:
            with contextlib.suppress(OSError):  # then only standard error reports it
                self._skip()

    def _step(self) -> bool:
        """Read a little further; False at the end."""
        if self._fd < 0:
            path = self._path if self._finished_file is None else self._find_next(self._finished_file)
            if self._open(path, 0):
                self._finished_file = None
            elif path == self._path:
                return self._wait_for_file()
            return True  # the next step searches for one that was renamed meanwhile
        if self._is_truncated():
            log_event("file truncated", path=self._path)
            self._close_file()
            return True
        copied = self._copy()
        if copied:
            return True
        if copied is None:
            self._stop.wait(self._poll_seconds)
        elif self._is_rotated():
            if self._is_settled():
                self._finish_line()
                self._finished_file = os.fstat(self._fd)
                self._close_file()
            else:
                self._stop.wait(self._poll_seconds)
        elif self._once and self._offset >= os.fstat(self._fd).st_size:
            self._finish_line()
            return False
        else:
            self._stop.wait(self._poll_seconds)
        return True

    def _wait_for_file(self) -> bool:
        """Wait for a file that does not exist; False if not to."""
        if not self._seen and not self.missing:
            self.missing = True
            log_event("file missing", path=self._path, waiting=not self._once)
        if not self._once:
            self._stop.wait(self._poll_seconds)
        return not self._once

    @property
    def _offset(self) -> int:
        """How far the file is in the spool."""
        assert self._place is not None
        return self._place.offset + max(self._spool.end - self._place.journal, 0)

    def _open(self, path: Path, offset: int) -> bool:
        try:
            self._fd = self._open_file(path)
        except FileNotFoundError:
            return False
        try:
            self._write_record(_Place(self._spool.end, os.fstat(self._fd).st_ino, offset))
        except OSError:
            self._close_file()
            raise
        self._seen, self.missing = True, False
        return True

    def _open_file(self, path: Path) -> int:
        """Open a file to read; raise for a symbolic link, unless they are followed."""
        try:
            return os.open(path, os.O_RDONLY | (0 if self._follow_symlinks else os.O_NOFOLLOW))
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP and not self._follow_symlinks:
                raise ExternalError(
                    "FILE_IS_SYMLINK",
                    f"{path} is a symbolic link",
                    detail="Whoever may write to its directory could make the agent ship any file that it can read.",
                    hint="Name the file that it leads to, or start the agent with --follow-symlinks.",
                ) from None
            raise _unreadable_error(path, error) from None

    def _stat(self, path: Path) -> os.stat_result:
        return path.stat(follow_symlinks=self._follow_symlinks)

    def _write_record(self, place: _Place) -> None:
        head = os.pread(self._fd, _HEAD_BYTES, 0)
        self._place = replace(place, head_bytes=len(head), head_crc=zlib.crc32(head))
        write_whole(self._record, json.dumps(asdict(self._place)).encode())

    def _close_file(self) -> None:
        os.close(self._fd)
        self._fd, self._place = -1, None

    def _resume(self, place: _Place) -> None:
        """Continue in the file of an earlier run, wherever it is now."""
        self._seen = True
        offset = place.offset + max(self._spool.found_end - place.journal, 0)
        for path in [self._path, *self._siblings()]:
            try:
                if self._stat(path).st_ino == place.inode:
                    self._fd = self._open_file(path)
                    break
            except FileNotFoundError:
                continue
        else:
            log_event("file gone", path=self._path, read=offset)
            if self._spool.ends_inside_a_line:
                self._spool.append(b"\n")
            return
        self._place = place
        if self._is_truncated(offset):
            log_event("file truncated", path=self._path)
            self._close_file()
            return
        self._write_record(_Place(self._spool.end, place.inode, offset))

    def _is_truncated(self, offset: int | None = None) -> bool:
        place = self._place
        assert place is not None
        size = os.fstat(self._fd).st_size
        head = os.pread(self._fd, _HEAD_BYTES, 0)
        if zlib.crc32(head[: place.head_bytes]) != place.head_crc or len(head) < place.head_bytes:
            return True
        reached = self._offset if offset is None else offset
        if size < reached - 1:  # a last line may have been ended by us
            return True
        if len(head) > place.head_bytes < _HEAD_BYTES and offset is None:
            self._write_record(replace(place, journal=self._spool.end, offset=reached))
        return False

    def _copy(self) -> bool | None:
        """Copy whole lines; False if there are none, None if there is no room."""
        most = min(_MOST, self._spool.file_bytes)
        data = os.pread(self._fd, most, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == most:
            end = len(data)  # a very long line, in parts
        if not end:
            return False
        if self._overflow.has_room():
            self._skip()
            self._spool.append(data[:end])
        elif self._overflow.when_full == "block":
            return None
        else:
            assert self._place is not None
            self._overflow.count_dropped(data[:end].count(b"\n"), end)
            self._write_record(replace(self._place, journal=self._spool.end, offset=self._offset + end))
        return True

    def _skip(self) -> None:
        """Leave a gap in the numbers for the lines that were dropped."""
        if skipped := self._overflow.skipped_bytes:
            assert self._place is not None
            # record it first: these numbers are no bytes of the file
            self._write_record(replace(self._place, journal=self._spool.end + skipped, offset=self._offset))
            self._overflow.write_gap()

    def _is_rotated(self) -> bool:
        try:
            return self._stat(self._path).st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False  # between the renaming and the next file

    def _is_settled(self) -> bool:
        """Whether a renamed file has not changed for so long that no writer has it open any more."""
        status = os.fstat(self._fd)
        # renaming counts too: the writer may not have reopened its file yet
        touched = max(status.st_mtime_ns, status.st_ctime_ns)
        if touched != self._touched:
            self._touched, self._touched_seen = touched, time.monotonic()
        unchanged = max(time.time() - touched / 1e9, time.monotonic() - self._touched_seen)
        return unchanged >= self._settle_seconds

    def _finish_line(self) -> None:
        """End the last line, which will not continue."""
        rest = os.pread(self._fd, _MOST, self._offset)
        if rest or self._spool.ends_inside_a_line:
            self._spool.append(rest.rstrip(b"\n") + b"\n")

    def _siblings(self) -> list[Path]:
        """The files that this one may have been renamed to."""
        found = self._path.parent.glob(f"{self._path.name}*")
        return [path for path in found if path != self._path and path.suffix not in _PACKED]

    def _parse_age(self, path: Path) -> _Age | None:
        """Parse the order of a rotated file from its name, None if it has no such name: later files are greater."""
        pattern = re.escape(self._path.name) + r"[.\-_]?(\d[\d.\-_:TZ]*|old|prev)"
        called = re.fullmatch(pattern, path.name)
        if called is None:
            return None
        numbers = tuple(map(int, re.findall(r"\d+", called[1])))
        if len(numbers) == 1 and len(called[1]) < _DATE_DIGITS:
            numbers = (-numbers[0],)  # .2 was written before .1
        return numbers, path.name

    def _find_next(self, done: os.stat_result) -> Path:
        """Find the file written after the finished one: mostly the path, after a long absence others before it.

        Of files with the same time the names decide which is later.
        """
        rotated: list[tuple[int, _Age, Path]] = []
        least: _Age = ((), "")  # finished and removed: then it was the oldest
        for path in self._siblings():
            age = self._parse_age(path)
            if age is None:
                continue
            try:
                status = self._stat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(status.st_mode):
                continue
            if status.st_ino == done.st_ino:
                least = age
            else:
                rotated.append((status.st_mtime_ns, age, path))
        later = [one for one in rotated if one[:2] > (done.st_mtime_ns, least)]
        return min(later)[2] if later else self._path


def _unreadable_error(path: Path, error: OSError) -> ExternalError:
    return ExternalError("FILE_UNREADABLE", f"{path} cannot be read", detail=str(error))
