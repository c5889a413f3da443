"""Writes one partition of a segment log, as its only writer: commits groups of frames, rolls and prunes segments.

Receives frames; returns the durable position of each producer.

A group is taken (`take`), written (`write`), forced to disk (`sync`) and then shown to readers (`publish`);
`undo` forgets one that could not be written.

Invariants:
- A producer's bytes are in the partition once and in order; what it dropped is a flagged gap.
- `publish` is only called after `sync`; a reader never sees what a power loss could take back.
- A segment starts with all producers' positions, so the newest segment alone has them.
On failure: `ExternalError` LOG_DAMAGED when what was on disk for good is not what was written; `SequenceGap`.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.frames import GAP, JUMP, MAGIC, PRODUCERS, Frame, FrameError, parse_frame
from penstock.ingest.segments import (
    INDEX_ENTRY,
    Committed,
    damage_error,
    index_path,
    list_segments,
    read_commit,
    read_frames,
    segment_path,
)
from penstock.state.durable import sync_directory

#: a producer that has been silent for longer may count as a new one
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
    """The position of a producer, and when its last frame arrived (microseconds)."""

    position: int
    seen_at: int


class Partition:
    """The writer of a partition. One thread at a time."""

    def __init__(self, directory: Path, *, segment_bytes: int) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._known: dict[str, Producer] = {}
        self._group_positions: dict[str, Producer] = {}
        self._group: list[Frame] = []
        self._fd = self._index_fd = -1
        self._written = Committed()
        #: what opening cut from the end: never acknowledged, so producers send it again
        self.cut_bytes = 0
        #: bytes that producers dropped
        self.given_up = self._giving_up = 0
        self._commit_fd = -1
        if directory.exists():
            self._open()

    @property
    def has_segment(self) -> bool:
        """Whether it has a segment on disk: the first frame creates one."""
        return self._fd >= 0

    @property
    def committed(self) -> Committed:
        """The extent that is on disk for good."""
        return self._written

    @property
    def producers(self) -> dict[str, Producer]:
        """The durable position of each producer."""
        return self._known

    def expected(self, producer: str) -> int:
        """Return a producer's position after the current group."""
        known = self._group_positions.get(producer) or self._known.get(producer)
        return known.position if known else 0

    def take(self, frame: Frame, now: int) -> int:
        """Add a frame to the group without what the log already has; return how many lines were new."""
        expected = self.expected(frame.producer)
        if frame.first < expected:
            if frame.end <= expected:
                return 0
            if not frame.is_line_end(expected):
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
        self._group_positions[frame.producer] = Producer(frame.end, now)
        self._group.append(replace(frame, arrived_at=now))
        return frame.count

    def write(self) -> bool:
        """Write the group's frames to the segment; False if there are none."""
        if not self._group:
            return False
        if not self.has_segment:
            self.directory.mkdir(mode=0o700, exist_ok=True)
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
        """Show readers the group, which is on disk."""
        before, self._written = self._written, self._next
        self._known.update(self._group_positions)
        self.given_up += self._giving_up
        self._forget_group()
        entry = INDEX_ENTRY.pack(before.latest, before.length, self._written.arrived_at)
        with contextlib.suppress(OSError):  # a hint
            os.write(self._index_fd, entry)
        os.pwrite(self._commit_fd, self._written.encoded(), 0)

    def undo(self) -> None:
        """Drop the group, also what of it was written."""
        self._forget_group()
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._written.length)

    def _forget_group(self) -> None:
        self._group.clear()
        self._group_positions.clear()
        self._giving_up = 0

    def prune(self, first: int) -> int:
        """Remove a segment, unless it is the one that is written to; return how many bytes that freed."""
        if first == self._written.segment:
            return 0
        path = segment_path(self.directory, first)
        size = path.stat().st_size
        path.unlink()
        index_path(self.directory, first).unlink(missing_ok=True)
        return size

    def close(self) -> None:
        """Close the files."""
        for fd in (self._fd, self._index_fd, self._commit_fd):
            if fd >= 0:
                os.close(fd)

    def _open(self) -> None:
        """Recover the producers' positions from the newest segment; cut what was not written whole."""
        if self._commit_fd < 0:
            self._commit_fd = os.open(self.directory / "commit", os.O_RDWR | os.O_CREAT, 0o600)
        commit = read_commit(self.directory)
        for first in reversed(list_segments(self.directory)):
            path = segment_path(self.directory, first)
            safe = commit.length if commit and commit.segment == first else 0
            if commit and commit.segment > first:
                safe = path.stat().st_size
            if self._recover(path, first, safe):
                break
            path.unlink()  # it was being created; nothing in it was ever acknowledged
            index_path(self.directory, first).unlink(missing_ok=True)
        else:
            self._start_segment(0, 0)
        os.pwrite(self._commit_fd, self._written.encoded(), 0)

    def _recover(self, path: Path, first: int, safe: int) -> bool:
        fd = os.open(path, os.O_RDWR)
        size, place, latest, arrived_at, known = os.fstat(fd).st_size, 0, first, 0, {}
        entries: list[bytes] = []
        try:
            for at, frame in read_frames(fd, path, 0, size):
                content = frame.content()
                following = at + len(frame.encoded())
                if frame.is_lines:
                    known[frame.producer] = Producer(frame.end, frame.arrived_at)
                    if frame.offset != latest:
                        raise damage_error(path, at, "an offset is missing")
                    if frame.safe == at:
                        entries.append(INDEX_ENTRY.pack(latest, at, frame.arrived_at))
                    latest += frame.raw_bytes
                else:
                    positions = json.loads(content)
                    known |= {id: Producer(*where) for id, where in positions.items()}
                safe = max(safe, frame.safe)
                place, arrived_at = following, max(arrived_at, frame.arrived_at)
        except (ExternalError, ValueError) as error:
            if place < safe or _has_proof_after(fd, place, size):
                os.close(fd)
                raise (
                    error
                    if isinstance(error, ExternalError) and not isinstance(error, FrameError)
                    else damage_error(
                        path, place, error.primary if isinstance(error, FrameError) else str(error)
                    )
                ) from None
        if place == 0:
            os.close(fd)
            return False
        self.cut_bytes += size - place
        os.ftruncate(fd, place)
        os.fsync(fd)  # the disk has what the page cache has, before anything reports it
        sync_directory(self.directory)
        self._fd, self._known = fd, known
        self._index_fd = os.open(
            index_path(self.directory, first), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        os.write(self._index_fd, b"".join(entries))
        self._written = Committed(first, place, latest, arrived_at)
        return True

    def _roll(self, now: int) -> None:
        before = (self._fd, self._index_fd)
        self._known = {id: one for id, one in self._known.items() if now - one.seen_at < FORGOTTEN_AFTER}
        self._start_segment(self._written.latest, now)
        for fd in before:
            os.close(fd)

    def _start_segment(self, first: int, now: int) -> None:
        """Start a new segment with the positions of all producers."""
        positions = json.dumps({id: [one.position, one.seen_at] for id, one in self._known.items()})
        frame = replace(
            Frame.of("", 0, positions.encode(), made_at=now, flags=PRODUCERS), offset=first, arrived_at=now
        )
        path = segment_path(self.directory, first)
        data = frame.encoded()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_at(fd, data, 0)
            os.fsync(fd)
            sync_directory(self.directory)
            index_fd = os.open(
                index_path(self.directory, first), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
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


def _has_proof_after(fd: int, bad: int, size: int) -> bool:
    """Whether a later frame proves that the bytes at `bad` were on disk for good when it was written."""
    data = os.pread(fd, size - bad, bad)
    at = data.find(MAGIC, 1)
    while at >= 0:
        try:
            found = parse_frame(data, at)
        except FrameError:
            found = None
        if found is not None and found[0].safe > bad:
            return True
        at = data.find(MAGIC, at + 1)
    return False
