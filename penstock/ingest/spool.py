"""Stores an agent's spool: the lines of one producer that the gateway has not acknowledged yet, in files.

A reader of a pipe or file appends bytes; the shipper reads frames from any position on. A position counts the
producer's bytes.

    SPOOL/NAME/producer.json            who the producer is (`identity`)
    SPOOL/NAME/00000000000000000000.raw lines as they came; the name is the position of the first byte
    SPOOL/NAME/00000000000000000000.seg the same packed into frames, once the gateway was unreachable for a while
    SPOOL/NAME/dropped                  up to where the oldest lines were dropped
    SPOOL/NAME/spare                    reserved space for a new file on a full disk
    SPOOL/NAME/skipped                  the numbers left out for newest lines that were dropped

Invariants:
- Only the owner can read what is created here.
- Every file but the last ends with the end of a line. The last is always raw.
- What was appended is read again after kill -9; after a power loss all but what came since the last `sync`, and
  the numbering jumps ahead, so that no position ever means two things.
Used by two threads: one appends, one reads and releases.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.frames import Frame
from penstock.ingest.identity import Identity
from penstock.ingest.private_directories import make_private_directory
from penstock.ingest.spool_files import Lines, SkippedSpans, SpoolFile, list_files
from penstock.state.durable import sync_directory, write_whole

#: what a frame holds at most, unpacked
FRAME_BYTES = 256 << 10
#: how far the numbering jumps ahead after a power loss
_JUMP = 1 << 32
#: how far back a new file looks for the start of its first line
_BACK = 64 << 10
_COPY_HINT = (
    "Start the agent once with --new-producer: it takes its own name and ships what was read since the copy."
)


# over 25 methods: the reader's half and the shipper's half share the list of files and its lock
class Spool:
    """The spool of one producer."""

    def __init__(self, directory: Path, *, file_bytes: int = 4 << 20, boot: str | None = None) -> None:
        self.directory = directory
        #: how large a file grows
        self.file_bytes = file_bytes
        self._lock = threading.Lock()
        make_private_directory(directory)
        boot = boot_id() if boot is None else boot
        self.identity = Identity(directory, boot)
        self._skipped = SkippedSpans(directory / "skipped")
        self._files: list[SpoolFile] = []
        self._released = 0
        self._fd = -1
        self._open_files()
        #: where it ended when it was opened, before any jump in the numbers
        self.found_end = self.end
        moved_at = self._start_place() if self.identity.is_moved else None
        if self.identity.is_rebooted:
            self.skip_to((self.end // _JUMP + 2) * _JUMP)
        self.identity.save(moved_at)
        self._spare = _ReservedSpace(directory / "spare", _BACK)

    @property
    def producer(self) -> str:
        """The producer's name."""
        return self.identity.producer

    @property
    def first(self) -> int:
        """The position of the oldest byte."""
        return self._files[0].first

    @property
    def end(self) -> int:
        """The position after the newest byte."""
        return self._files[-1].end

    @property
    def disk_bytes(self) -> int:
        """The bytes of the files on disk."""
        with self._lock:
            return sum(file.size for file in self._files)

    @property
    def ends_inside_a_line(self) -> bool:
        """Whether the newest line is not whole yet."""
        size = self._files[-1].size
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    @property
    def dropped_until(self) -> int:
        """The position up to which the oldest lines were dropped."""
        try:
            return int((self.directory / "dropped").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    @property
    def is_one_file(self) -> bool:
        """Whether there is only the file that is written to."""
        return len(self._files) == 1

    def bytes_after(self, position: int) -> int:
        """How many bytes there are from a position on."""
        position = max(position, self.identity.start)
        with self._lock:
            return sum(max(file.end - max(file.first, position), 0) for file in self._files)

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._count_growth(written)
            view = view[written:]

    def append_from(self, pipe: int, most: int) -> int:
        """Move bytes from a pipe to the end, past this process: a kill in between loses none. 0 at the pipe's end."""
        moved = os.splice(pipe, self._fd, most)
        self._count_growth(moved)
        return moved

    def _count_growth(self, count: int) -> None:
        with self._lock:
            last = self._files[-1]
            self._files[-1] = self._raw(last.first, last.size + count)
        if last.size + count >= self.file_bytes:
            self.roll()

    def roll(self) -> None:
        """Start a new file with the line that is not whole; what is before it stays."""
        first, size = self._files[-1].first, self._files[-1].size
        back = min(size, _BACK)
        tail = os.pread(self._fd, back, size - back)
        whole = tail.rfind(b"\n") + 1
        if not whole:
            return  # a line this long stays where it is
        old, at = self._fd, size - back + whole
        self._start_file(first + at, tail[whole:], before=self._raw(first, at))
        os.ftruncate(old, at)
        os.close(old)

    def _start_file(self, first: int, content: bytes = b"", before: SpoolFile | None = None) -> None:
        """Start a new last file; `before`: what the one that was last is from now on."""
        fd = os.open(self._raw(first, 0).path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.write(fd, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(fd)
            self._raw(first, 0).path.unlink()
            raise
        with self._lock:
            if before is not None:
                self._files[-1] = before
            self._files.append(self._raw(first, len(content)))
            self._fd = fd

    def skip_to(self, position: int) -> None:
        """Continue the numbering at a later position."""
        if self.ends_inside_a_line:
            self.append(b"\n")
        if position > self.end:
            old = self._fd
            self._start_file(position)
            os.close(old)

    def give_up(self, count: int) -> None:
        """Leave out the numbers of bytes that were dropped before they were appended."""
        position = self.end + count
        if self.ends_inside_a_line:
            self.append(b"\n")
        self._skipped.add(self.end, position, self._released)
        self.skip_to(position)

    def has_given_up(self, position: int, first: int) -> bool:
        """Whether lines between a position and the first that follows were dropped."""
        if position < self.identity.start == first:
            return False  # what is before is another producer's
        dropped = position < self.dropped_until or self.has_position(position)
        return dropped or self._skipped.covers(position, first, _JUMP)

    def sync(self) -> None:
        """Force what was appended to disk."""
        with contextlib.suppress(OSError):
            os.fdatasync(self._fd)

    def frame(self, position: int, most: int = FRAME_BYTES) -> Frame | None:
        """Read the next whole lines at or after a position, `most` bytes of them, or None if there are none yet.

        A line longer than `most` is left out: then the frame starts after it.
        """
        found = self._next(position, most)
        if isinstance(found, Frame):  # packed before the producer took another name
            return replace(found, producer=self.producer)
        return self._build_frame(found) if found is not None else None

    def lines(self, position: int, most: int = FRAME_BYTES) -> tuple[int, bytes] | None:
        """Read the same as bytes: their position, and the lines."""
        found = self._next(position, most)
        return (found.first, found.lines()) if isinstance(found, Frame) else found

    def _build_frame(self, found: Lines) -> Frame:
        return Frame.of(self.producer, found.first, found.data, made_at=int(time.time() * 1e6))

    def _next(self, position: int, most: int) -> Frame | Lines | None:
        position = max(position, self.identity.start)
        while True:
            with self._lock:
                following = [file for file in self._files if file.end > position]
            if not following:
                return None
            file = following[0]
            position = max(position, file.first)
            found: Frame | Lines | None
            try:
                if file.packed:
                    found, position = file.read_frame(position, most, self.producer), file.end
                else:
                    found, position = file.read_lines(position, most)
                    if found is None and len(following) == 1:
                        return None
            except FileNotFoundError:
                continue  # packed, or dropped, meanwhile
            if found is not None:
                return found

    def check_position(self, position: int) -> None:
        """Raise unless this spool can have sent the bytes before a position. If others sent some, none is released."""
        with self._lock:
            is_known = position <= self._files[0].first or any(
                file.first <= position <= file.end for file in self._files
            )
        if not is_known or (position > self.identity.since and not self.identity.is_accepted):
            raise ExternalError(
                "POSITION_NOT_OURS",
                f"the gateway has {self.producer} up to {position}, which this agent never sent",
                detail="Another agent sent under its name, or the spool was restored from an older copy. "
                "No line of this spool was removed.",
                hint=_COPY_HINT,
            )

    def take_new_name(self) -> None:
        """Become another producer, which starts with the lines that were read at this place."""
        self.identity.rename()
        (self.directory / "dropped").unlink(missing_ok=True)  # of the former name's numbers
        self.release(self.identity.start)

    def has_position(self, position: int) -> bool:
        """Whether the byte at a position is still here."""
        with self._lock:
            return any(file.first <= position < file.end for file in self._files)

    def pack(self) -> bool:
        """Pack the oldest raw file that is whole; False if there is none."""
        with self._lock:
            raw = [file for file in self._files[:-1] if not file.packed]
        if not raw:
            return False
        file, pieces, position = raw[0], [], raw[0].first
        packed = SpoolFile(file.first, file.end, True, 0, self.directory)
        try:
            while position < file.end:
                lines, position = file.read_lines(position, FRAME_BYTES)
                pieces.append(self._build_frame(lines).encoded() if lines else b"")
            write_whole(packed.path, *pieces)
        except FileNotFoundError:
            return True  # dropped meanwhile
        except OSError:
            return False  # no room for both: it stays as it is
        with self._lock:
            is_present = file in self._files
            if is_present:
                size = packed.path.stat().st_size
                self._files[self._files.index(file)] = packed._replace(size=size)
        (file if is_present else packed).path.unlink()
        return True

    def release(self, position: int) -> None:
        """Remove the files that hold only what is before a position: it is on the gateway's disk."""
        with self._lock:
            self._released = max(self._released, position)
            while len(self._files) > 1 and self._files[0].end <= position:
                self._files.pop(0).path.unlink(missing_ok=True)

    def free_space(self) -> None:
        """Free space on a full disk: if all whole lines are acknowledged, remove the file that they are in."""
        if self.is_one_file and self._released > self.first:
            tail = os.pread(self._fd, _BACK, self._released - self.first)
            if len(tail) < _BACK and b"\n" not in tail:
                with self._spare.free_temporarily():
                    self.roll()
                    self.release(self._released)

    def drop_oldest(self) -> tuple[int, int] | None:
        """Drop the oldest file; return how many lines and bytes were lost, without the acknowledged ones."""
        if len(self._files) == 1:
            self.roll()
        with self._lock:
            if len(self._files) == 1:
                return None
            file = self._files.pop(0)
        start = max(file.first, min(self._released, file.end))
        lines = file.count_lines(start)
        write_whole(self.directory / "dropped", str(file.end).encode())
        file.path.unlink()
        return lines, file.end - start

    def close(self) -> None:
        """Close the file."""
        self.sync()
        os.close(self._fd)

    def _start_place(self) -> int:
        """Start a file for what is read at this place, and return its first position."""
        self.roll()
        last = self._files[-1]
        return last.first if last.size < _BACK else last.end

    def _raw(self, first: int, size: int) -> SpoolFile:
        return SpoolFile.raw(self.directory, first, size)

    def _open_files(self) -> None:
        """Find the files of an earlier run; start one if there is none to append to."""
        self._files = list_files(self.directory)
        if not self._files or self._files[-1].packed:
            self._start_file(self._files[-1].end if self._files else 0)
            sync_directory(self.directory)
            return
        self._fd = os.open(self._files[-1].path, os.O_RDWR)
        os.lseek(self._fd, 0, os.SEEK_END)


class _ReservedSpace:
    """A file that reserves space for when the disk is full."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._reserve()

    @contextlib.contextmanager
    def free_temporarily(self) -> Iterator[None]:
        """Free the space within a `with` block; reserve it again afterwards if possible."""
        self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._reserve()

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)


def boot_id() -> str:
    """The id of the host's current boot; "" if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
