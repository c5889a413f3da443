"""One partition of a segment log as its only writer sees it: frames in, groups committed, segments rolled and
pruned.

Receives frames; hands where each producer is, durably.

A group is taken (`take`), written (`write`), forced to disk (`sync`) and then shown to readers (`publish`);
`undo` forgets one that could not be written.

Invariants:
- A producer's bytes are in the partition once and in order; what it gave up is a flagged gap.
- `publish` is only called after `sync`; a reader never sees what a power loss could take back.
- A segment begins with all producers' positions, so the newest one alone says where everybody is.
On failure: `ExternalError` LOG_DAMAGED when what was on disk for good is not what was written; `SequenceGap`.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.frames import GAP, JUMP, MAGIC, PRODUCERS, Frame, FrameError, frame_in
from penstock.ingest.segments import (
    INDEX_ENTRY,
    Committed,
    committed_in,
    damaged,
    frames_from,
    index_path,
    segment_path,
    segments_in,
)
from penstock.state.durable import sync_directory

#: a producer that has been away for longer may be taken for a new one
FORGOTTEN_AFTER = 30 * 86_400 * 1_000_000


class SequenceGap(ExternalError):
    """A frame that does not follow what the log has of its producer."""

    def __init__(self, producer: str, expected: int, first: int, why: str = "") -> None:
        super().__init__(
            "SEQUENCE_GAP",
            f"{producer} sent from {first} on, but {expected} is next{why}",
            hint=f"Send from {expected} on.",
        )
        self.expected = expected


@dataclass(frozen=True)
class Producer:
    """How far a producer has come, and when it was last heard of (microseconds)."""

    position: int
    seen_at: int


class Partition:
    """The writer of a partition. One thread at a time."""

    def __init__(self, directory: Path, *, segment_bytes: int) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._known: dict[str, Producer] = {}
        self._taken: dict[str, Producer] = {}
        self._group: list[Frame] = []
        self._fd = self._index_fd = -1
        self._written = Committed()
        self._group_place = 0
        #: what opening cut from the end: never acknowledged, so it comes again
        self.cut_bytes = 0
        #: bytes that producers gave up
        self.given_up = self._giving_up = 0
        self._commit_fd = -1
        if directory.exists():
            self._open()

    @property
    def begun(self) -> bool:
        """Whether there is anything of it on disk: that comes with its first frame."""
        return self._fd >= 0

    @property
    def committed(self) -> Committed:
        """How far it is on disk, as far as `sync` was called."""
        return self._written

    @property
    def producers(self) -> dict[str, Producer]:
        """Where each producer is, durably."""
        return self._known

    def expected(self, producer: str) -> int:
        """Where a producer is with the group under way."""
        known = self._taken.get(producer) or self._known.get(producer)
        return known.position if known else 0

    def take(self, frame: Frame, now: int) -> int:
        """Put a frame into the group, or leave out what is there already; how many lines were new."""
        expected = self.expected(frame.producer)
        if frame.first < expected:
            if frame.end <= expected:
                return 0
            if not frame.ends_line(expected):
                raise SequenceGap(frame.producer, expected, frame.first, ", which is inside of a line")
            frame = frame.after(expected)
        elif frame.first > expected:
            if not frame.flags & (GAP | JUMP):
                raise SequenceGap(frame.producer, expected, frame.first)
            if frame.flags & GAP:
                self._giving_up += frame.first - expected
            frame.lines()
        else:
            frame.lines()
        self._taken[frame.producer] = Producer(frame.end, now)
        self._group.append(replace(frame, arrived_at=now))
        return frame.count

    def write(self) -> bool:
        """Write the group's frames to the segment; False if there are none."""
        if not self._group:
            return False
        if not self.begun:
            self.directory.mkdir(exist_ok=True)
            self._open()
            sync_directory(self.directory.parent)
        elif self._written.length >= self._segment_bytes:
            self._roll(self._group[0].arrived_at)
        written, pieces = self._written, []
        length, latest = written.length, written.latest
        for frame in self._group:
            data = replace(frame, offset=latest, safe=written.length).encoded()
            pieces.append(data)
            length, latest = length + len(data), latest + frame.raw_bytes
        _write_at(self._fd, b"".join(pieces), written.length)
        self._next = Committed(written.segment, length, latest, self._group[-1].arrived_at)
        return True

    def sync(self) -> None:
        """Force what was written to disk."""
        os.fdatasync(self._fd)

    def publish(self) -> None:
        """The group is on disk: readers may see it."""
        before, self._written = self._written, self._next
        self._known.update(self._taken)
        self.given_up += self._giving_up
        self._forget_group()
        entry = INDEX_ENTRY.pack(before.latest, before.length, self._written.arrived_at)
        with contextlib.suppress(OSError):  # a hint
            os.write(self._index_fd, entry)
        os.pwrite(self._commit_fd, self._written.encoded(), 0)

    def undo(self) -> None:
        """Forget the group; what part of it was written goes too."""
        self._forget_group()
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._written.length)

    def _forget_group(self) -> None:
        self._group.clear()
        self._taken.clear()
        self._giving_up = 0

    def prune(self, first: int) -> int:
        """Remove a segment, never the one that is written to; how many bytes that freed."""
        if first == self._written.segment:
            return 0
        path = segment_path(self.directory, first)
        size = path.stat().st_size
        path.unlink()
        index_path(self.directory, first).unlink(missing_ok=True)
        return size

    def close(self) -> None:
        """Let go of the files."""
        for fd in (self._fd, self._index_fd, self._commit_fd):
            if fd >= 0:
                os.close(fd)

    def _open(self) -> None:
        """Find where everybody is from the newest segment; cut what was not written whole."""
        if self._commit_fd < 0:
            self._commit_fd = os.open(self.directory / "commit", os.O_RDWR | os.O_CREAT, 0o644)
        told = committed_in(self.directory)
        for first in reversed(segments_in(self.directory)):
            path = segment_path(self.directory, first)
            safe = told.length if told and told.segment == first else 0
            if told and told.segment > first:
                safe = path.stat().st_size
            if self._recover(path, first, safe):
                break
            path.unlink()  # it was being begun; nothing in it was ever acknowledged
            index_path(self.directory, first).unlink(missing_ok=True)
        else:
            self._begin(0, 0)
        os.pwrite(self._commit_fd, self._written.encoded(), 0)

    def _recover(self, path: Path, first: int, safe: int) -> bool:
        fd = os.open(path, os.O_RDWR)
        size, place, latest, arrived_at, known = os.fstat(fd).st_size, 0, first, 0, {}
        entries: list[bytes] = []
        try:
            for at, frame in frames_from(fd, path, 0, size):
                content = frame.content()
                following = at + len(frame.encoded())
                if frame.is_lines:
                    known[frame.producer] = Producer(frame.end, frame.arrived_at)
                    if frame.offset != latest:
                        raise damaged(path, at, "an offset is missing")
                    if frame.safe == at:
                        entries.append(INDEX_ENTRY.pack(latest, at, frame.arrived_at))
                    latest += frame.raw_bytes
                else:
                    told = json.loads(content)
                    known |= {id: Producer(*where) for id, where in told.items()}
                safe = max(safe, frame.safe)
                place, arrived_at = following, max(arrived_at, frame.arrived_at)
        except (ExternalError, ValueError) as error:
            if place < safe or _proof_after(fd, place, size):
                os.close(fd)
                raise (
                    error
                    if isinstance(error, ExternalError) and not isinstance(error, FrameError)
                    else damaged(path, place, error.primary if isinstance(error, FrameError) else str(error))
                ) from None
        if place == 0:
            os.close(fd)
            return False
        self.cut_bytes += size - place
        os.ftruncate(fd, place)
        os.fsync(fd)  # what the page cache has, the disk has too, before anybody is told of it
        sync_directory(self.directory)
        self._fd, self._known = fd, known
        self._index_fd = os.open(
            index_path(self.directory, first), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
        )
        os.write(self._index_fd, b"".join(entries))
        self._written = Committed(first, place, latest, arrived_at)
        return True

    def _roll(self, now: int) -> None:
        before = (self._fd, self._index_fd)
        self._known = {id: one for id, one in self._known.items() if now - one.seen_at < FORGOTTEN_AFTER}
        self._begin(self._written.latest, now)
        for fd in before:
            os.close(fd)

    def _begin(self, first: int, now: int) -> None:
        """A new segment, that begins with where everybody is."""
        told = json.dumps({id: [one.position, one.seen_at] for id, one in self._known.items()})
        frame = replace(
            Frame.of("", 0, told.encode(), made_at=now, flags=PRODUCERS), offset=first, arrived_at=now
        )
        path = segment_path(self.directory, first)
        data = frame.encoded()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_at(fd, data, 0)
            os.fsync(fd)
            sync_directory(self.directory)
            index_fd = os.open(
                index_path(self.directory, first), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
            )
        except OSError:
            os.close(fd)
            raise
        self._fd, self._index_fd = fd, index_fd
        self._written = Committed(first, len(data), first, self._written.arrived_at)


def _write_at(fd: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, place)
        view, place = view[written:], place + written


def _proof_after(fd: int, bad: int, size: int) -> bool:
    """Whether a later frame says that the bytes at `bad` were on disk for good when it was written."""
    data = os.pread(fd, size - bad, bad)
    at = data.find(MAGIC, 1)
    while at >= 0:
        try:
            found = frame_in(data, at)
        except FrameError:
            found = None
        if found is not None and found[0].safe > bad:
            return True
        at = data.find(MAGIC, at + 1)
    return False
