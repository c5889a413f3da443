"""Finds and reads segment files: frames one after the other, with an index of offsets and times beside them.

Receives a partition's directory; returns frames from any offset on.

    PARTITION/00000000000000000000.seg   frames; the name is the offset of its first line
    PARTITION/00000000000000000000.idx   (offset, place, arrival) of every group's first frame: hints, checked when used
    PARTITION/commit                     how far the segments are on disk for good; no reader goes beyond

Offsets count the bytes of lines, unpacked. The first frame of a segment has the producers' positions at that time.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.frames import Frame, FrameError, Head, parse_frame, parse_head

#: (offset, place in the file, arrival in microseconds)
INDEX_ENTRY = struct.Struct("<QQq")
#: first offset of the segment written to, its bytes on disk, the offset after them, the last arrival, checksum
_COMMIT = struct.Struct("<QQQqI")
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Committed:
    """How far a partition is on disk for good."""

    segment: int = 0
    length: int = 0
    latest: int = 0
    arrived_at: int = 0

    def encoded(self) -> bytes:
        """The bytes of the commit file."""
        body = _COMMIT.pack(self.segment, self.length, self.latest, self.arrived_at, 0)[:-4]
        return body + zlib.crc32(body).to_bytes(4, "little")


def read_commit(partition: Path) -> Committed | None:
    """Read the commit file; None if there is no valid one."""
    for attempt in range(5):  # it is written in place while readers read it
        try:
            data = (partition / "commit").read_bytes()
        except FileNotFoundError:
            return None
        if len(data) == _COMMIT.size and zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little"):
            return Committed(*_COMMIT.unpack(data)[:-1])
        time.sleep(0.001 * attempt)
    return None


def list_segments(partition: Path) -> list[int]:
    """List the first offsets of the segments, in order."""
    return sorted(
        int(name[:-4]) for name in os.listdir(partition) if name.endswith(".seg") and name[:-4].isdigit()
    )


def segment_path(partition: Path, first: int) -> Path:
    """The path of a segment."""
    return partition / f"{first:020}.seg"


def index_path(partition: Path, first: int) -> Path:
    """The path of a segment's index."""
    return partition / f"{first:020}.idx"


def read_index(partition: Path, first: int) -> list[tuple[int, int, int]]:
    """Read the entries of an index as far as they are in order; none if there is no index."""
    try:
        data = index_path(partition, first).read_bytes()
    except FileNotFoundError:
        return []
    found: list[tuple[int, int, int]] = []
    for offset, place, arrived_at in INDEX_ENTRY.iter_unpack(
        data[: len(data) - len(data) % INDEX_ENTRY.size]
    ):
        if found and (offset <= found[-1][0] or place <= found[-1][1]):
            break
        found.append((offset, place, arrived_at))
    return found


def find_start(fd: int, index: list[tuple[int, int, int]], offset: int) -> int:
    """Find where to start reading a segment for the frame that holds an offset."""
    at = bisect_right(index, offset, key=lambda entry: entry[0]) - 1
    while at >= 0:
        place = index[at][1]
        try:
            head = parse_head(os.pread(fd, 512, place))
        except FrameError:
            head = None
        if head is not None and head.frame.is_lines and head.frame.offset == index[at][0]:
            return place
        at -= 1  # an index is only a hint
    return 0


def read_frames(fd: int, path: Path, place: int, end: int) -> Iterator[tuple[int, Frame]]:
    """Read the frames of a segment and their positions, from `place` up to `end`; raise with the position at damage."""
    data, at = b"", 0
    while place < end:
        found = None
        try:
            found = parse_frame(data, at)
        except FrameError as error:
            raise damage_error(path, place, error.primary) from None
        if found is None:
            # what is left of the block, and the next; a frame longer than a block takes several
            more = os.pread(fd, min(_BLOCK_BYTES, end - place - (len(data) - at)), place + len(data) - at)
            if not more:
                raise damage_error(path, place, "the file ends inside of a frame")
            data, at = data[at:] + more, 0
            continue
        frame, following = found
        yield place, frame
        place, at = place + following - at, following


def read_heads(fd: int, path: Path, place: int, end: int) -> Iterator[tuple[int, Head]]:
    """As `frames_from`, without the payloads and without reading them."""
    while place < end:
        try:
            head = parse_head(os.pread(fd, 512, place))
        except FrameError as error:
            raise damage_error(path, place, error.primary) from None
        if head is None:
            raise damage_error(path, place, "the file ends inside of a frame")
        yield place, head
        place += head.frame_bytes


def damage_error(path: Path, place: int, reason: str) -> ExternalError:
    """The error for a segment that is not what was written."""
    return ExternalError(
        "LOG_DAMAGED",
        "a segment of the log is damaged",
        where=f"{path}, byte {place}",
        detail=f"{reason[:1].upper()}{reason[1:]}.",
        hint="Restore the file from a copy. Without one, what it holds from there on is lost.",
    )
