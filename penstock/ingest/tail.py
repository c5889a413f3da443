"""Where an agent's lines come from: a file that grows, and is rotated by renaming or by copying and truncating.

Receives a path; hands its whole lines to the journal, each once.

The place in the file is not written down line by line: lines go into the journal byte for byte, so the
journal's end says how far the file was read. Only a change of file is recorded (`source.json`): "from journal
position J on it is file F from offset O".

A file that was renamed is done with when it has been left alone for a while: by its own times, so that neither a
restart nor a rotation long past begins the wait anew.

Does not guarantee: what is written to a file between its copy and its truncation, or to a file that was removed
or compressed before it was read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.inlet import Overflow
from penstock.ingest.journal import Journal
from penstock.ingest.tell import tell
from penstock.state.durable import write_whole

_MOST = 256 << 10
_HEAD_BYTES = 256
#: a rotated file's number with as many digits is a date
_DATE_DIGITS = 6
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4")

#: how a rotated file's name says when it was written: by numbers, else by itself
_Age = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class _Place:
    """From `journal` on, the journal holds the file of this inode from `offset` on."""

    journal: int
    inode: int
    offset: int
    #: the file's first bytes, by count and checksum: a file that was truncated begins otherwise
    head_bytes: int = 0
    head_crc: int = 0


class TailInlet:
    """Follows a file into a journal until `stop` is set."""

    def __init__(
        self,
        path: Path,
        journal: Journal,
        overflow: Overflow,
        stop: threading.Event,
        *,
        settle_seconds: float = 5.0,
        poll_seconds: float = 0.1,
        from_end: bool = False,
        once: bool = False,
    ) -> None:
        self._path, self._journal, self._overflow, self._stop = path, journal, overflow, stop
        self._settle_seconds, self._poll_seconds, self._once = settle_seconds, poll_seconds, once
        self._record = journal.directory / "source.json"
        self._fd = -1
        self._place: _Place | None = None
        #: when the file was last touched, by its own times, and when that was seen
        self._touched, self._touched_seen = 0, 0.0
        #: the file that is done with, while the one after it is not open yet
        self._done: os.stat_result | None = None
        self._met = False
        #: whether it ended without ever having met the file
        self.missing = False
        if self._record.exists():
            self._resume(_Place(**json.loads(self._record.read_bytes())))
        elif from_end and path.exists():
            self._open(path, path.stat().st_size)

    def run(self) -> None:
        """Follow the file."""
        while not self._stop.is_set():
            self._overflow.remind()
            try:
                if not self._step():
                    break
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._overflow.unwritable(error)
                self._stop.wait(self._poll_seconds)
        self._end()

    def _end(self) -> None:
        if self._place is not None:
            with contextlib.suppress(OSError):  # then only standard error tells
                self._skip()

    def _step(self) -> bool:
        """Go on by a little; False at the end."""
        if self._fd < 0:
            path = self._path if self._done is None else self._following(self._done)
            if self._open(path, 0):
                self._done = None
            elif path == self._path:
                return self._absent()
            return True  # one that was renamed meanwhile is looked for again
        if self._truncated():
            tell("file truncated", path=self._path)
            self._leave()
            return True
        copied = self._copy()
        if copied:
            return True
        if copied is None:
            self._stop.wait(self._poll_seconds)
        elif self._rotated():
            if self._settled():
                self._finish_line()
                self._done = os.fstat(self._fd)
                self._leave()
            else:
                self._stop.wait(self._poll_seconds)
        elif self._once and self._offset >= os.fstat(self._fd).st_size:
            self._finish_line()
            return False
        else:
            self._stop.wait(self._poll_seconds)
        return True

    def _absent(self) -> bool:
        """There is no file; whether to wait for it."""
        if not self._met and not self.missing:
            self.missing = True
            tell("file missing", path=self._path, waiting=not self._once)
        if not self._once:
            self._stop.wait(self._poll_seconds)
        return not self._once

    @property
    def _offset(self) -> int:
        """How far the file is in the journal."""
        assert self._place is not None
        return self._place.offset + max(self._journal.end - self._place.journal, 0)

    def _open(self, path: Path, offset: int) -> bool:
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(path, error) from None
        try:
            self._note(_Place(self._journal.end, os.fstat(self._fd).st_ino, offset))
        except OSError:
            self._leave()
            raise
        self._met, self.missing = True, False
        return True

    def _note(self, place: _Place) -> None:
        head = os.pread(self._fd, _HEAD_BYTES, 0)
        self._place = replace(place, head_bytes=len(head), head_crc=zlib.crc32(head))
        write_whole(self._record, json.dumps(asdict(self._place)).encode())

    def _leave(self) -> None:
        os.close(self._fd)
        self._fd, self._place = -1, None

    def _resume(self, place: _Place) -> None:
        """Go on in the file of an earlier life, wherever it is now."""
        self._met = True
        offset = place.offset + max(self._journal.found_end - place.journal, 0)
        for path in [self._path, *self._siblings()]:
            try:
                if path.stat().st_ino == place.inode:
                    self._fd = os.open(path, os.O_RDONLY)
                    break
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unreadable(path, error) from None
        else:
            tell("file gone", path=self._path, read=offset)
            if self._journal.ends_inside_a_line:
                self._journal.append(b"\n")
            return
        self._place = place
        if self._truncated(offset):
            tell("file truncated", path=self._path)
            self._leave()
            return
        self._note(_Place(self._journal.end, place.inode, offset))

    def _truncated(self, offset: int | None = None) -> bool:
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
            self._note(replace(place, journal=self._journal.end, offset=reached))
        return False

    def _copy(self) -> bool | None:
        """Copy whole lines; False if there are none, None if there is no room."""
        most = min(_MOST, self._journal.file_bytes)
        data = os.pread(self._fd, most, self._offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == most:
            end = len(data)  # a very long line, in parts
        if not end:
            return False
        if self._overflow.has_room():
            self._skip()
            self._journal.append(data[:end])
        elif self._overflow.when_full == "block":
            return None
        else:
            assert self._place is not None
            self._overflow.dropped(data[:end].count(b"\n"), end)
            self._note(replace(self._place, journal=self._journal.end, offset=self._offset + end))
        return True

    def _skip(self) -> None:
        """Leave out the numbers of the lines that were given up."""
        if skipped := self._overflow.skipped_bytes:
            assert self._place is not None
            # first the note: these numbers are no bytes of the file
            self._note(replace(self._place, journal=self._journal.end + skipped, offset=self._offset))
            self._overflow.skip()

    def _rotated(self) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False  # between the renaming and the next file

    def _settled(self) -> bool:
        """Whether a renamed file has been left alone for so long that nobody writes to it any more."""
        status = os.fstat(self._fd)
        # renaming counts too: the writer may not know of it yet
        touched = max(status.st_mtime_ns, status.st_ctime_ns)
        if touched != self._touched:
            self._touched, self._touched_seen = touched, time.monotonic()
        left_alone = max(time.time() - touched / 1e9, time.monotonic() - self._touched_seen)
        return left_alone >= self._settle_seconds

    def _finish_line(self) -> None:
        """The last line will not go on: it ends here."""
        rest = os.pread(self._fd, _MOST, self._offset)
        if rest or self._journal.ends_inside_a_line:
            self._journal.append(rest.rstrip(b"\n") + b"\n")

    def _siblings(self) -> list[Path]:
        """The files that this one may have been renamed to."""
        found = self._path.parent.glob(f"{self._path.name}*")
        return [path for path in found if path != self._path and path.suffix not in _PACKED]

    def _age(self, path: Path) -> _Age | None:
        """Where a file stands among the rotated ones by its name, if it is called as one: later ones are more."""
        pattern = re.escape(self._path.name) + r"[.\-_]?(\d[\d.\-_:TZ]*|old|prev)"
        called = re.fullmatch(pattern, path.name)
        if called is None:
            return None
        numbers = tuple(map(int, re.findall(r"\d+", called[1])))
        if len(numbers) == 1 and len(called[1]) < _DATE_DIGITS:
            numbers = (-numbers[0],)  # .2 was written before .1
        return numbers, path.name

    def _following(self, done: os.stat_result) -> Path:
        """What was written after the file that is done with: mostly the path, after a long absence others before it.

        Of files with the same time the names tell which is later.
        """
        rotated: list[tuple[int, _Age, Path]] = []
        least: _Age = ((), "")  # done with and removed: then it was the oldest
        for path in self._siblings():
            age = self._age(path)
            if age is None:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if status.st_ino == done.st_ino:
                least = age
            else:
                rotated.append((status.st_mtime_ns, age, path))
        later = [one for one in rotated if one[:2] > (done.st_mtime_ns, least)]
        return min(later)[2] if later else self._path


def _unreadable(path: Path, error: OSError) -> ExternalError:
    return ExternalError("FILE_UNREADABLE", f"{path} cannot be read", detail=str(error))
