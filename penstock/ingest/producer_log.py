"""Reads a segment log by producers: each is a partition, and its own numbers are the offsets.

Receives the directory of a stream; returns the lines of each producer. Two gateways that received the same from the
same producers hold the same at the same offsets here, however the producers' lines interleave and whichever partitions
of the segment log they went to: so these can be the copies of a replicated log.

Invariants:
- A span is bytes of one producer, without a gap. What a producer dropped, or left out of its numbers, ends what the
  log has of it before; a reader that reaches that end gets `LOG_GAP`. A producer whose numbers were reset is not read
  any further, also when what it had sent before is gone.
- A producer's frames are in the order in which they arrived, whichever directories they went to.
- Lines without a producer's name cannot be read so: a log that holds some is refused.
On failure: `ExternalError` LOG_GAP, and as the segment log; `UserError` NO_PRODUCER.
"""

from __future__ import annotations

import contextlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from penstock.errors import ExternalError, UserError
from penstock.ingest.frames import FrameError, parse_frame
from penstock.ingest.readers import write_bookmark
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.segments import damage_error, list_segments, read_commit, read_heads, segment_path
from penstock.logs.contract import Chunk, Partition, Span

#: under these names gateways and services store lines without one, by numbers of their own
_UNNAMED = frozenset({"http", "service"})


@dataclass(frozen=True, slots=True)
class _Piece:
    """A frame of a producer: its numbers, and its position on disk."""

    first: int
    end: int
    directory: str
    segment: int
    place: int
    length: int
    #: its offset in the segment log
    offset: int


@dataclass
class _Scanned:
    """How far a partition of the segment log has been scanned: the segment, and the position in it."""

    segment: int = -1
    place: int = 0
    #: the latest arrival there
    arrived_at: int = 0


class _Found(NamedTuple):
    """A frame that was not known yet."""

    producer: str
    arrived_at: int
    piece: _Piece


@dataclass
class _Index:
    """Where each producer's frames are, in the order of its numbers."""

    pieces: dict[str, list[_Piece]] = field(default_factory=dict)
    #: the ranges of its numbers that are there without a gap
    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    #: the last known end of each, also where that is gone
    ends: dict[str, int] = field(default_factory=dict)
    #: per partition of the segment log, the producers' positions when the gateway started the newest segment
    snapshots: dict[str, Mapping[str, int]] = field(default_factory=dict)
    #: those whose numbers were reset, and the error for their readers
    broken: dict[str, ExternalError] = field(default_factory=dict)
    scanned: dict[str, _Scanned] = field(default_factory=dict)

    def add(self, producer: str, piece: _Piece) -> None:
        self.ends[producer] = piece.end
        self.pieces.setdefault(producer, []).append(piece)
        runs = self.runs.setdefault(producer, [])
        if runs and runs[-1][1] == piece.first:
            runs[-1] = (runs[-1][0], piece.end)
        else:
            runs.append((piece.first, piece.end))

    def forget(self, directory: str, oldest: int) -> None:
        """Forget the frames of segments that have gone."""
        for producer, pieces in list(self.pieces.items()):
            if pieces[0].directory == directory and pieces[0].segment < oldest:
                del self.pieces[producer], self.runs[producer]
                for piece in pieces:
                    if piece.directory != directory or piece.segment >= oldest:
                        self.add(producer, piece)

    def find_end(self, producer: str) -> int:
        """Find the last known position of a producer, by the gateway or by this log."""
        known = (positions.get(producer, 0) for positions in self.snapshots.values())
        return max([self.ends.get(producer, 0), *known])


class ProducerLog(SegmentLog):
    """The segment log in a directory, a partition for each producer. With `finished` nothing will be added."""

    def __init__(self, directory: str | os.PathLike[str], *, finished: bool = False) -> None:
        super().__init__(directory, finished=finished)
        self._index = _Index()

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        self._refresh()
        return super().start(memory, self._compute_floors(offsets))

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found, broken = self._list_partitions(offsets)
        for why in broken.values():
            raise why
        # a power loss may have taken the newest commit file, but not what it describes
        return [replace(one, latest=max(one.latest, offsets.get(one.id, 0))) for one in found]

    def as_copy(self, offsets: Mapping[str, int]) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        self._check_there()
        return self._list_partitions(offsets)

    def _list_partitions(
        self, offsets: Mapping[str, int]
    ) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        self._refresh()
        found: list[Partition] = []
        broken = {name: why for name, why in self._index.broken.items() if name not in self._index.pieces}
        for producer in sorted(self._index.pieces):
            runs = self._index.runs[producer]
            at = offsets.get(producer, runs[0][0])
            earlier = [run for run in runs if run[0] <= at] or runs[:1]
            first, end = earlier[-1]
            if at >= end and len(earlier) < len(runs):
                broken[producer] = _gap_error(producer, at, runs[len(earlier)][0], self._directory)
            elif at >= end and producer in self._index.broken:
                broken[producer] = self._index.broken[producer]
            found.append(Partition(producer, first, end, self._finished))
        return found, broken

    def short_of(self, partition: str, offset: int) -> ExternalError | None:
        """A copy that has a producer from its first byte on, or no longer knows it, may never reach the offset."""
        runs, find_end = self._index.runs.get(partition), self._index.find_end(partition)
        began = bool(self._index.snapshots) if runs is None else runs[0][0] == 0
        if not began or find_end >= offset:
            return None
        return ExternalError(
            "LOG_GAP",
            f"{partition} was read up to {offset}, and no copy of the log has it further than {find_end}",
            where=str(self._directory),
            detail="The producer's numbering was reset, or the copy is lost that had more.",
            hint="Bring back a copy that has it, or give the producer another name.",
        )

    def cut(self, partition: str, start: int, units: int) -> int:
        """The end of a frame near `start + units`."""
        if partition not in self._index.pieces:
            self._refresh()
        end = start
        for piece in self._pieces_from(partition, start):
            if piece.first > end or (piece.end > start + units and end > start):
                break
            end = piece.end
        return end

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        if span.end <= span.start:
            return
        at, chunk_bytes = span.start, max(chunk_bytes, 1)
        runs = self._index.runs.get(span.partition, ())
        if not any(first <= span.start and span.end <= end for first, end in runs):
            self._refresh()
        held: list[bytes] = []
        size = 0
        for data in self._read_bytes(span):
            held.append(data)
            size += len(data)
            while size >= chunk_bytes:
                whole = b"".join(held)
                end = whole.rfind(b"\n", 0, chunk_bytes) + 1 or whole.find(b"\n", chunk_bytes) + 1
                yield Chunk(span.partition, at, whole[:end])
                at, held, size = at + end, [whole[end:]], size - end
        if size:
            yield Chunk(span.partition, at, b"".join(held))
            at += size
        if at != span.end:
            raise ExternalError(
                "LOG_SPAN_GONE",
                "a part of the segment log that is still needed is not there",
                where=f"{self._directory}, producer {span.partition}, bytes {span.start} to {span.end}",
                detail="The gateway removes segments that are older, or more, than its retention.",
                hint="Restore them from a copy, or reset with --fresh; give the gateway a longer retention.",
            )

    def prune(self, offsets: Mapping[str, int]) -> None:
        if self._reader is not None:
            with contextlib.suppress(OSError, ExternalError):  # then more is kept than needed
                self._refresh()
                write_bookmark(self._directory, self._reader, self._compute_floors(offsets))

    def describe(self) -> str:
        return f"producers of {self._directory}"

    def _pieces_from(self, producer: str, position: int) -> Iterator[_Piece]:
        """The frames of a producer from the one on that holds a position."""
        pieces = self._index.pieces.get(producer, [])
        at = max(bisect_right(pieces, position, key=lambda piece: piece.first) - 1, 0)
        for piece in pieces[at:]:
            if piece.end > position:
                yield piece

    def _read_bytes(self, span: Span) -> Iterator[bytes]:
        """The bytes of a span, a frame's at a time, up to a hole."""
        path: Path | None = None
        at, fd = span.start, -1
        try:
            for piece in self._pieces_from(span.partition, span.start):
                if piece.first > at or at >= span.end:
                    return
                wanted = segment_path(self._directory / piece.directory, piece.segment)
                if wanted != path:
                    if fd >= 0:
                        os.close(fd)
                    fd, path = -1, wanted
                    try:
                        fd = os.open(wanted, os.O_RDONLY)
                    except FileNotFoundError:
                        return
                lines = _read_lines(fd, wanted, piece)
                yield lines[at - piece.first : min(span.end, piece.end) - piece.first]
                at = min(span.end, piece.end)
        finally:
            if fd >= 0:
                os.close(fd)

    def _compute_floors(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Compute, per partition of the segment log, the offset before which such a reader needs nothing."""
        needed: dict[str, int] = {}
        done: dict[str, int] = {}
        for producer, pieces in self._index.pieces.items():
            for piece in pieces:
                done[piece.directory] = max(
                    done.get(piece.directory, 0), piece.offset + piece.end - piece.first
                )
                if piece.end > offsets.get(producer, -1):
                    least = needed.get(piece.directory, piece.offset)
                    needed[piece.directory] = min(least, piece.offset)
        return done | needed

    # -- scanning -------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Scan the heads of new frames, and forget those whose segments are gone."""
        found: list[_Found] = []
        oldest: dict[str, int] = {}
        try:
            for directory in self._list_directories():
                firsts = self._scan_partition(directory, found)
                if firsts:
                    oldest[directory.name] = firsts[0]
        finally:  # no frame is scanned twice
            for one in sorted(found, key=lambda one: one.arrived_at):
                self._add(one.producer, one.piece)
        for name, first in oldest.items():
            self._index.forget(name, first)

    def _scan_partition(self, directory: Path, found: list[_Found]) -> list[int]:
        """Scan the new frames of a partition of the segment log; return its segments."""
        committed = read_commit(directory)
        firsts = list_segments(directory) if committed else []
        scanned = self._index.scanned.setdefault(directory.name, _Scanned())
        for first in firsts:
            if committed is None or first > committed.segment or first < scanned.segment:
                continue
            path = segment_path(directory, first)
            start = scanned.place if first == scanned.segment else 0
            try:
                size = committed.length if first == committed.segment else path.stat().st_size
                if size > start:
                    found += self._scan_segment(path, directory.name, first, start, size)
            except FileNotFoundError:  # pruned meanwhile
                continue
            scanned.segment, scanned.place = first, max(size, start)
        return firsts

    def _scan_segment(self, path: Path, directory: str, segment: int, start: int, size: int) -> list[_Found]:
        found: list[_Found] = []
        arrived_at = self._index.scanned[directory].arrived_at
        snapshot: Mapping[str, int] | None = None
        fd = os.open(path, os.O_RDONLY)
        try:
            for place, head in read_heads(fd, path, start, size):
                frame = head.frame
                if not frame.is_lines:
                    snapshot = _read_positions(fd, path, place, head.frame_bytes)
                    continue
                arrived_at = max(arrived_at, frame.arrived_at)  # the gateway's clock may have been set back
                piece = _Piece(
                    frame.first, frame.end, directory, segment, place, head.frame_bytes, frame.offset
                )
                found.append(_Found(frame.producer, arrived_at, piece))
        finally:
            os.close(fd)
        if any(one.producer in _UNNAMED for one in found):
            raise UserError(
                "NO_PRODUCER",
                f"{self._directory} holds lines without a producer's name",
                detail="It is unknown which of them another copy has.",
                hint="Send with Penstock-Producer and Penstock-Position, or read the log with segments().",
            )
        self._index.scanned[directory].arrived_at = arrived_at
        if snapshot is not None:
            self._index.snapshots[directory] = snapshot
        return found

    def _add(self, producer: str, piece: _Piece) -> None:
        known = self._index.ends.get(producer, 0)
        if piece.first < known:  # it was silent for so long that the gateway forgot it
            self._index.broken.setdefault(producer, _gap_error(producer, known, piece.first, self._directory))
        if producer not in self._index.broken:
            self._index.add(producer, piece)

    def _list_directories(self) -> list[Path]:
        try:
            names = [name for name in os.listdir(self._directory) if name[:1] == "p" and name[1:].isdigit()]
        except FileNotFoundError:
            return []
        return [self._directory / name for name in sorted(names, key=lambda name: int(name[1:]))]


def _read_lines(fd: int, path: Path, piece: _Piece) -> bytes:
    """Read the lines of a frame."""
    try:
        found = parse_frame(os.pread(fd, piece.length, piece.place))
        if found is None:
            raise FrameError("the file ends inside of a frame")
        return found[0].lines()
    except FrameError as error:
        raise damage_error(path, piece.place, error.primary) from None


def _read_positions(fd: int, path: Path, place: int, length: int) -> dict[str, int]:
    """Read the producers' positions in the first frame of a segment."""
    try:
        found = parse_frame(os.pread(fd, length, place))
        if found is None:
            raise FrameError("the file ends inside of a frame")
        return {producer: int(position) for producer, (position, _) in json.loads(found[0].content()).items()}
    except FrameError as error:
        raise damage_error(path, place, error.primary) from None


def _gap_error(producer: str, at: int, further: int, directory: Path) -> ExternalError:
    return ExternalError(
        "LOG_GAP",
        f"the log has nothing of {producer} from {at} to {further}",
        where=str(directory),
        detail="The producer dropped it, or its numbering was reset.",
        hint="Another copy may have it. Without one, read the log with segments(), which continues after the gap.",
    )
