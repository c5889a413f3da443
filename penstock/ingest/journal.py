"""The agent's spool: the bytes of one producer in files, from what the gateway has not acknowledged on.

Receives bytes from the reader of a pipe or file; hands frames from any position on. A position counts the
producer's bytes.

    SPOOL/NAME/producer.json            the producer's id, and the machine's boot it last ran in
    SPOOL/NAME/00000000000000000000.raw lines as they came; the name is the position of the first byte
    SPOOL/NAME/00000000000000000000.seg the same packed into frames, once the gateway has been away for a while
    SPOOL/NAME/dropped                  up to where the oldest lines were given up

Invariants:
- Every file but the last ends with the end of a line. The last is always raw.
- What was appended is read again after kill -9; after a power loss all but what came since the last `sync`, and
  numbering goes on further up, so that no position ever means two things.
Used by two threads: one appends, one reads and releases.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path

from penstock.ingest.frames import Frame
from penstock.ingest.segments import frames_from
from penstock.state.durable import sync_directory, write_whole

#: what a frame holds at most, unpacked
FRAME_BYTES = 256 << 10
#: how much further numbering goes on after a power loss
_JUMP = 1 << 32


class Journal:
    """The spool of one producer."""

    def __init__(self, directory: Path, *, file_bytes: int = 4 << 20, boot: str | None = None) -> None:
        self.directory = directory
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        boot = boot_id() if boot is None else boot
        facts = directory / "producer.json"
        known = json.loads(facts.read_bytes()) if facts.exists() else {}
        self.producer: str = known.get("producer") or f"{_host()}-{uuid.uuid4().hex[:12]}"
        #: (first position, is it packed, its bytes)
        self._files: list[tuple[int, bool, int]] = []
        self._fd = -1
        self._find()
        #: where it ended when it was opened, before any jump in the numbers
        self.found_end = self.end
        if known.get("boot", boot) != boot:
            self.skip_to((self.end // _JUMP + 2) * _JUMP)
        write_whole(facts, json.dumps({"producer": self.producer, "boot": boot}).encode())

    @property
    def first(self) -> int:
        """The position of the oldest byte."""
        return self._files[0][0]

    @property
    def end(self) -> int:
        """The position after the newest byte."""
        return self._files[-1][0] + self._files[-1][2]

    @property
    def disk_bytes(self) -> int:
        """What the files take."""
        with self._lock:
            return sum(size for _, _, size in self._files)

    @property
    def ends_inside_a_line(self) -> bool:
        """Whether the newest line is not whole yet."""
        size = self._files[-1][2]
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    @property
    def dropped_until(self) -> int:
        """Up to where the oldest lines were given up."""
        try:
            return int((self.directory / "dropped").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._grown(written)
            view = view[written:]

    def append_from(self, pipe: int, most: int) -> int:
        """Move bytes from a pipe to the end, past this process: a kill in between loses none. 0 at the pipe's end."""
        moved = os.splice(pipe, self._fd, most)
        self._grown(moved)
        return moved

    def _grown(self, count: int) -> None:
        with self._lock:
            first, packed, size = self._files[-1]
            self._files[-1] = (first, packed, size + count)
        if size + count >= self._file_bytes:
            self.roll()

    def roll(self) -> None:
        """Begin a new file with the line that is not whole; what is before it stays."""
        first, _, size = self._files[-1]
        back = min(size, 64 << 10)
        tail = os.pread(self._fd, back, size - back)
        whole = tail.rfind(b"\n") + 1
        if not whole:
            return  # a line this long stays where it is
        old, at = self._fd, size - back + whole
        self._start_file(first + at, tail[whole:], before=(first, False, at))
        os.ftruncate(old, at)
        os.close(old)

    def _start_file(
        self, first: int, content: bytes = b"", before: tuple[int, bool, int] | None = None
    ) -> None:
        """A new last file; `before`: what the one that was last is from now on."""
        fd = os.open(self._path(first, False), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        if os.write(fd, content) < len(content):
            os.close(fd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._lock:
            if before is not None:
                self._files[-1] = before
            self._files.append((first, False, len(content)))
            self._fd = fd

    def skip_to(self, position: int) -> None:
        """Number what comes from here on further up."""
        if self.ends_inside_a_line:
            self.append(b"\n")
        if position > self.end:
            old = self._fd
            self._start_file(position)
            os.close(old)

    def sync(self) -> None:
        """Force what was appended to disk."""
        with contextlib.suppress(OSError):
            os.fdatasync(self._fd)

    def frame(self, position: int, most: int = FRAME_BYTES) -> Frame | None:
        """The next whole lines at or after a position, `most` bytes of them, or None if there are none yet.

        A line longer than `most` is left out: then the frame begins further on.
        """
        while True:
            with self._lock:
                following = [file for file in self._files if file[0] + self._extent(file) > position]
            if not following:
                return None
            first, packed, size = following[0]
            position = max(position, first)
            try:
                if packed:
                    frame, position = self._packed_frame(first, position, most), self._ends[first]
                else:
                    last = len(following) == 1
                    frame, position = self._raw_frame(first, position, size, most, last)
                    if frame is None and last:
                        return None
            except FileNotFoundError:
                continue  # packed, or dropped, in the meantime
            if frame is not None:
                return frame

    def _extent(self, file: tuple[int, bool, int]) -> int:
        first, packed, size = file
        return self._ends[first] - first if packed else size

    def _raw_frame(
        self, first: int, position: int, size: int, most: int, last: bool
    ) -> tuple[Frame | None, int]:
        """A frame of a raw file, and where to look if there is none."""
        fd = os.open(self._path(first, False), os.O_RDONLY)
        try:
            data = os.pread(fd, min(most, first + size - position), position - first)
            end = data.rfind(b"\n") + 1
            if end:
                made_at = int(time.time() * 1e6)
                return Frame.of(self.producer, position, data[:end], made_at=made_at), position + end
            if len(data) < most:
                return None, first + size
            while data and b"\n" not in data:  # too long a line: find its end
                position += len(data)
                data = os.pread(fd, min(most, first + size - position), position - first)
            if not data:
                return None, first + size
            position += data.find(b"\n") + 1
        finally:
            os.close(fd)
        return self._raw_frame(first, position, size, most, last)

    def _packed_frame(self, first: int, position: int, most: int) -> Frame | None:
        path = self._path(first, True)
        fd = os.open(path, os.O_RDONLY)
        try:
            for _, frame in frames_from(fd, path, 0, os.fstat(fd).st_size):
                if frame.end <= position:
                    continue
                if frame.first < position:
                    frame = frame.after(position)
                if frame.raw_bytes <= most:
                    return frame
                lines = frame.lines()
                end = lines.rfind(b"\n", 0, most) + 1
                if end:
                    return Frame.of(self.producer, frame.first, lines[:end], made_at=frame.made_at)
                position = frame.first + lines.find(b"\n") + 1
                if position < frame.end:
                    return self._packed_frame(first, position, most)
        finally:
            os.close(fd)
        return None

    def pack(self) -> bool:
        """Pack the oldest raw file that is whole; False if there is none."""
        with self._lock:
            raw = [file for file in self._files[:-1] if not file[1]]
        if not raw:
            return False
        first, _, size = raw[0]
        pieces, position = [], first
        try:
            while position < first + size:
                frame, position = self._raw_frame(first, position, size, FRAME_BYTES, False)
                pieces.append(frame.encoded() if frame else b"")
            path = self._path(first, True)
            write_whole(path, *pieces)
        except FileNotFoundError:
            return True  # dropped
        with self._lock:
            if raw[0] in self._files:
                self._ends[first] = first + size
                self._files[self._files.index(raw[0])] = (first, True, path.stat().st_size)
            else:
                path.unlink(missing_ok=True)
        self._path(first, False).unlink(missing_ok=True)
        return True

    def release(self, position: int) -> None:
        """Everything before a position is on the gateway's disk: files without anything else go."""
        with self._lock:
            while len(self._files) > 1 and self._files[0][0] + self._extent(self._files[0]) <= position:
                self._remove(self._files.pop(0))

    def drop_oldest(self) -> tuple[int, int]:
        """Give up the oldest file: how many lines and bytes that were."""
        if len(self._files) == 1:
            self.roll()
        with self._lock:
            if len(self._files) == 1:
                return 0, 0
            file = self._files.pop(0)
        lines, end = self._lines_of(file), file[0] + self._extent(file)
        write_whole(self.directory / "dropped", str(end).encode())
        self._remove(file)
        return lines, end - file[0]

    def _lines_of(self, file: tuple[int, bool, int]) -> int:
        path = self._path(file[0], file[1])
        if not file[1]:
            return path.read_bytes().count(b"\n")
        fd = os.open(path, os.O_RDONLY)
        try:
            return sum(frame.count for _, frame in frames_from(fd, path, 0, file[2]))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the file."""
        self.sync()
        os.close(self._fd)

    def _remove(self, file: tuple[int, bool, int]) -> None:
        self._path(file[0], file[1]).unlink(missing_ok=True)
        self._ends.pop(file[0], None)

    def _path(self, first: int, packed: bool) -> Path:
        return self.directory / f"{first:020}.{'seg' if packed else 'raw'}"

    def _find(self) -> None:
        """The files that are there, as a kill may have left them."""
        #: where packed files end
        self._ends: dict[int, int] = {}
        names = os.listdir(self.directory)
        packed = sorted(int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdigit())
        raw = sorted(int(name[:-4]) for name in names if name.endswith(".raw") and name[:-4].isdigit())
        for first in packed:
            if first in raw:  # packed, but not yet removed
                raw.remove(first)
                self._path(first, False).unlink()
            path = self._path(first, True)
            fd = os.open(path, os.O_RDONLY)
            frames = [frame for _, frame in frames_from(fd, path, 0, path.stat().st_size)]
            os.close(fd)
            self._ends[first] = frames[-1].end if frames else first
            self._files.append((first, True, path.stat().st_size))
        for first, following in zip(raw, [*raw[1:], None], strict=False):
            size = self._path(first, False).stat().st_size
            if following is not None and first + size > following:  # killed while rolling
                size = following - first
                os.truncate(self._path(first, False), size)
            self._files.append((first, False, size))
        self._files.sort()
        if not self._files or self._files[-1][1]:
            self._start_file(self._ends[self._files[-1][0]] if self._files else 0)
            sync_directory(self.directory)
            return
        first, _, size = self._files[-1]
        self._fd = os.open(self._path(first, False), os.O_RDWR)
        os.lseek(self._fd, size, os.SEEK_SET)


def boot_id() -> str:
    """Which start of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _host() -> str:
    return "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")[:60] or "host"
