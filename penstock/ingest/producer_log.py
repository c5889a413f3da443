"""The segment log by producers: each is a partition, and its own numbers are the offsets.

Receives the directory of a stream; hands the lines of each producer. Two gateways that were sent the same by the same
producers hold the same at the same offsets here, however the producers' lines came interleaved and whichever partitions
of the segment log they went to: so these can be the copies of a replicated log.

Invariants:
- A span is bytes of one producer, without a hole. What a producer gave up, or left out of its numbers, ends what the
  log has of it before; `LOG_GAP` tells a reader who has come to that end. Of one that was seen to number anew nothing
  more is read, also when what it had sent before is gone.
- A producer's frames are in the order in which they arrived, whichever directories they went to.
- Lines that came without a producer's name have no place here: a log that holds some is refused.
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
from penstock.ingest.frames import FrameError, frame_in
from penstock.ingest.readers import bookmark
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.segments import committed_in, damaged, heads_from, segment_path, segments_in
from penstock.logs.contract import Chunk, Partition, Span

#: under these names gateways and services keep what came without one, by numbers of their own
_UNNAMED = frozenset({"http", "service"})


@dataclass(frozen=True, slots=True)
class _Piece:
    """A frame of a producer: its numbers, and where it lies."""

    first: int
    end: int
    directory: str
    segment: int
    place: int
    length: int
    #: its offset in the segment log
    offset: int


@dataclass
class _Looked:
    """How far a partition of the segment log has been looked at: the segment, and the place in it."""

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
    #: the stretches of its numbers that are there without a hole
    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    #: how far each was seen to come, also where that is gone
    ends: dict[str, int] = field(default_factory=dict)
    #: per partition of the segment log, where each producer was that the gateway knew when it began the newest segment
    told: dict[str, Mapping[str, int]] = field(default_factory=dict)
    #: those whose numbers went back, and why nothing more of them is read
    broken: dict[str, ExternalError] = field(default_factory=dict)
    looked: dict[str, _Looked] = field(default_factory=dict)

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

    def reached(self, producer: str) -> int:
        """How far a producer has come, as far as the gateway or we still know it."""
        told = (known.get(producer, 0) for known in self.told.values())
        return max([self.ends.get(producer, 0), *told])


class ProducerLog(SegmentLog):
    """The segment log in a directory, a partition for each producer. `finished` says that nothing will be added."""

    def __init__(self, directory: str | os.PathLike[str], *, finished: bool = False) -> None:
        super().__init__(directory, finished=finished)
        self._index = _Index()

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        self._refresh()
        return super().start(memory, self._floors(offsets))

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found, broken = self._listed(offsets)
        for why in broken.values():
            raise why
        # a power loss may have taken the newest commit file, but not what it told of
        return [replace(one, latest=max(one.latest, offsets.get(one.id, 0))) for one in found]

    def as_copy(self, offsets: Mapping[str, int]) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        self._check_there()
        return self._listed(offsets)

    def _listed(self, offsets: Mapping[str, int]) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        self._refresh()
        found: list[Partition] = []
        broken = {name: why for name, why in self._index.broken.items() if name not in self._index.pieces}
        for producer in sorted(self._index.pieces):
            runs = self._index.runs[producer]
            at = offsets.get(producer, runs[0][0])
            earlier = [run for run in runs if run[0] <= at] or runs[:1]
            first, end = earlier[-1]
            if at >= end and len(earlier) < len(runs):
                broken[producer] = _gap(producer, at, runs[len(earlier)][0], self._directory)
            elif at >= end and producer in self._index.broken:
                broken[producer] = self._index.broken[producer]
            found.append(Partition(producer, first, end, self._finished))
        return found, broken

    def short_of(self, partition: str, offset: int) -> ExternalError | None:
        """One that has a producer from its beginning on, or does not know it any more, may never come there."""
        runs, reached = self._index.runs.get(partition), self._index.reached(partition)
        began = bool(self._index.told) if runs is None else runs[0][0] == 0
        if not began or reached >= offset:
            return None
        return ExternalError(
            "LOG_GAP",
            f"{partition} was read up to {offset}, and no copy of the log has it further than {reached}",
            where=str(self._directory),
            detail="The producer began to number anew, or the copy is lost that had more.",
            hint="Bring back a copy that has it, or give the producer another name.",
        )

    def cut(self, partition: str, start: int, units: int) -> int:
        """The end of a frame near `start + units`."""
        if partition not in self._index.pieces:
            self._refresh()
        end = start
        for piece in self._following(partition, start):
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
        for data in self._bytes(span):
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
                detail="The gateway removes segments that are older, or more, than it was told to keep.",
                hint="Put them back from a copy, or begin anew with --fresh; let the gateway keep more.",
            )

    def prune(self, offsets: Mapping[str, int]) -> None:
        if self._reader is not None:
            with contextlib.suppress(OSError, ExternalError):  # then more is kept than needed
                self._refresh()
                bookmark(self._directory, self._reader, self._floors(offsets))

    def describe(self) -> str:
        return f"producers of {self._directory}"

    def _following(self, producer: str, position: int) -> Iterator[_Piece]:
        """The frames of a producer from the one on that holds a position."""
        pieces = self._index.pieces.get(producer, [])
        at = max(bisect_right(pieces, position, key=lambda piece: piece.first) - 1, 0)
        for piece in pieces[at:]:
            if piece.end > position:
                yield piece

    def _bytes(self, span: Span) -> Iterator[bytes]:
        """The bytes of a span, a frame's at a time, up to a hole."""
        path: Path | None = None
        at, fd = span.start, -1
        try:
            for piece in self._following(span.partition, span.start):
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
                lines = _lines_at(fd, wanted, piece)
                yield lines[at - piece.first : min(span.end, piece.end) - piece.first]
                at = min(span.end, piece.end)
        finally:
            if fd >= 0:
                os.close(fd)

    def _floors(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Per partition of the segment log, before which offset nobody needs it who has come so far with producers."""
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

    # -- looking ---------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Look at the heads of the frames that have come since, and forget those whose segments have gone."""
        found: list[_Found] = []
        oldest: dict[str, int] = {}
        try:
            for directory in self._homes():
                firsts = self._look_into(directory, found)
                if firsts:
                    oldest[directory.name] = firsts[0]
        finally:  # what was looked at is not looked at again
            for one in sorted(found, key=lambda one: one.arrived_at):
                self._add(one.producer, one.piece)
        for name, first in oldest.items():
            self._index.forget(name, first)

    def _look_into(self, directory: Path, found: list[_Found]) -> list[int]:
        """Look at what has come to a partition of the segment log since; the segments it has."""
        committed = committed_in(directory)
        firsts = segments_in(directory) if committed else []
        looked = self._index.looked.setdefault(directory.name, _Looked())
        for first in firsts:
            if committed is None or first > committed.segment or first < looked.segment:
                continue
            path = segment_path(directory, first)
            begin = looked.place if first == looked.segment else 0
            try:
                size = committed.length if first == committed.segment else path.stat().st_size
                if size > begin:
                    found += self._look(path, directory.name, first, begin, size)
            except FileNotFoundError:  # pruned meanwhile
                continue
            looked.segment, looked.place = first, max(size, begin)
        return firsts

    def _look(self, path: Path, directory: str, segment: int, begin: int, size: int) -> list[_Found]:
        found: list[_Found] = []
        arrived_at = self._index.looked[directory].arrived_at
        told: Mapping[str, int] | None = None
        fd = os.open(path, os.O_RDONLY)
        try:
            for place, head in heads_from(fd, path, begin, size):
                frame = head.frame
                if not frame.is_lines:
                    told = _positions_at(fd, path, place, head.frame_bytes)
                    continue
                arrived_at = max(arrived_at, frame.arrived_at)  # the gateway's clock may have been put back
                piece = _Piece(
                    frame.first, frame.end, directory, segment, place, head.frame_bytes, frame.offset
                )
                found.append(_Found(frame.producer, arrived_at, piece))
        finally:
            os.close(fd)
        if any(one.producer in _UNNAMED for one in found):
            raise UserError(
                "NO_PRODUCER",
                f"{self._directory} holds lines that came without a producer's name",
                detail="Which of them another copy has cannot be told.",
                hint="Send with Penstock-Producer and Penstock-Position, or read the log with segments().",
            )
        self._index.looked[directory].arrived_at = arrived_at
        if told is not None:
            self._index.told[directory] = told
        return found

    def _add(self, producer: str, piece: _Piece) -> None:
        known = self._index.ends.get(producer, 0)
        if piece.first < known:  # it was away for so long that it was forgotten
            self._index.broken.setdefault(producer, _gap(producer, known, piece.first, self._directory))
        if producer not in self._index.broken:
            self._index.add(producer, piece)

    def _homes(self) -> list[Path]:
        try:
            names = [name for name in os.listdir(self._directory) if name[:1] == "p" and name[1:].isdigit()]
        except FileNotFoundError:
            return []
        return [self._directory / name for name in sorted(names, key=lambda name: int(name[1:]))]


def _lines_at(fd: int, path: Path, piece: _Piece) -> bytes:
    """The lines of a frame."""
    try:
        found = frame_in(os.pread(fd, piece.length, piece.place))
        if found is None:
            raise FrameError("the file ends inside of a frame")
        return found[0].lines()
    except FrameError as error:
        raise damaged(path, piece.place, error.primary) from None


def _positions_at(fd: int, path: Path, place: int, length: int) -> dict[str, int]:
    """Where each producer was, as the first frame of a segment says."""
    try:
        found = frame_in(os.pread(fd, length, place))
        if found is None:
            raise FrameError("the file ends inside of a frame")
        return {producer: int(position) for producer, (position, _) in json.loads(found[0].content()).items()}
    except FrameError as error:
        raise damaged(path, place, error.primary) from None


def _gap(producer: str, at: int, further: int, directory: Path) -> ExternalError:
    return ExternalError(
        "LOG_GAP",
        f"the log has nothing of {producer} from {at} to {further}",
        where=str(directory),
        detail="The producer gave it up, or began to number anew.",
        hint="Another copy may have it. Without one, read the log with segments(), which goes on behind the gap.",
    )
