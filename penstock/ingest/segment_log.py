"""The segment log as a Log: what agents sent through the gateway, read by engines.

Receives the directory of a stream; hands the lines of its partitions by offset (bytes of lines, unpacked).

Invariants:
- Only what is on disk for good is seen, so a span holds the same bytes for life.
- A partition is listed once it holds something.
- The state directory remembers which reader this is; the gateway keeps what any reader still needs.
On failure: `ExternalError` with LOG_PATH_MISSING, LOG_DAMAGED or LOG_SPAN_GONE.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.readers import bookmark, forget
from penstock.ingest.segments import (
    Committed,
    committed_in,
    damaged,
    frames_from,
    heads_from,
    place_before,
    read_index,
    segment_path,
    segments_in,
)
from penstock.logs.contract import Chunk, Log, Partition, Span


class SegmentLog(Log):
    """The segment log in a directory: `DIR/STREAM` of `penstock gateway --dir DIR`.

    `finished` says that nothing will be added.
    """

    unit = "bytes"

    def __init__(self, directory: str | os.PathLike[str], *, finished: bool = False) -> None:
        self._directory = Path(os.path.abspath(os.path.expanduser(directory)))
        self._finished = finished
        self._reader: str | None = None

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self._directory

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Become a reader, for the life of the state directory, that the gateway keeps the log for."""
        self._check_there()
        if self._finished:
            return {}
        # an engine may start its logs more than once before it remembers anything
        self._reader = str((memory or {}).get("reader") or self._reader or uuid.uuid4().hex[:16])
        if not (self._directory / "readers" / f"{self._reader}.json").exists():
            try:
                bookmark(self._directory, self._reader, offsets)
            except OSError as error:
                raise ExternalError(
                    "LOG_UNWRITABLE",
                    f"{self._directory} does not take the bookmark of its reader",
                    detail=str(error),
                    hint="The engine must be able to write there, so that what it needs is kept.",
                ) from error
        return {"reader": self._reader}

    def _check_there(self) -> None:
        if not (self._directory if self._finished else self._directory.parent).is_dir():
            raise ExternalError(
                "LOG_PATH_MISSING",
                f"there is no segment log at {self._directory}",
                hint=f"Make the directory {self._directory.parent}, or name that of the gateway: "
                "segments('DIR/STREAM'). The log itself begins with its first event, from a gateway or by "
                "POST /streams/NAME/events."
                if not self._finished
                else "Give the directory of the gateway and the name of the stream: segments('DIR/STREAM').",
            )

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found = []
        for directory in _partitions_in(self._directory):
            committed = committed_in(directory)
            firsts = segments_in(directory) if committed else []
            if not committed or not firsts:
                continue
            # a power loss may have taken the newest commit file, but not what it told of
            latest = max(committed.latest, offsets.get(directory.name, 0))
            if latest > firsts[0] or firsts[0] > 0:
                found.append(Partition(directory.name, firsts[0], latest, self._finished))
        return found

    def closed(self) -> bool:
        return self._finished

    def cut(self, partition: str, start: int, units: int) -> int:
        """The end of a frame near `start + units`."""
        directory = self._directory / partition
        committed = committed_in(directory)
        if committed is None or committed.latest <= start + units:
            return max(start, committed.latest if committed else start)
        end = start
        for first, stop in self._covering(directory, committed, Span(partition, start, committed.latest)):
            path = segment_path(directory, first)
            fd = _opened(path, Span(partition, start, start + units))
            try:
                index = read_index(directory, first)
                for _, head in heads_from(fd, path, place_before(fd, index, start + units), stop):
                    after = head.frame.offset + head.frame.raw_bytes
                    if not head.frame.is_lines or after <= start:
                        continue
                    end = max(end, head.frame.offset)  # straight to the last group that may end in time
                    if after > start + units:
                        return after if end <= start else end
                    end = after
            finally:
                os.close(fd)
        return end

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        if span.end <= span.start:
            return
        directory, chunk_bytes = self._directory / span.partition, max(chunk_bytes, 1)
        committed = committed_in(directory)
        pieces: list[bytes] = []
        at, held = span.start, 0
        for lines in self._lines(directory, committed or Committed(), span):
            pieces.append(lines)
            held += len(lines)
            if held < chunk_bytes:
                continue
            data = b"".join(pieces)
            while len(data) >= chunk_bytes:
                end = data.rfind(b"\n", 0, chunk_bytes) + 1 or data.find(b"\n", chunk_bytes) + 1
                yield Chunk(span.partition, at, data[:end])
                at, data = at + end, data[end:]
            pieces, held = [data] if data else [], len(data)
        if held:
            yield Chunk(span.partition, at, b"".join(pieces))
            at += held
        if at != span.end:
            raise _gone(span, self._directory)

    def prune(self, offsets: Mapping[str, int]) -> None:
        """Let the gateway know; it removes segments that no reader needs."""
        if self._reader is not None:
            with contextlib.suppress(OSError):  # then more is kept than needed
                bookmark(self._directory, self._reader, offsets)

    def forsake(self) -> None:
        if self._reader is not None:
            forget(self._directory, self._reader)

    def settings(self) -> Mapping[str, object]:
        return {"directory": str(self._directory), "finished": self._finished}

    def describe(self) -> str:
        return f"segments {self._directory}"

    def _lines(self, directory: Path, committed: Committed, span: Span) -> Iterator[bytes]:
        """The lines of a span, a frame's at a time."""
        for first, stop in self._covering(directory, committed, span):
            path = segment_path(directory, first)
            fd = _opened(path, span)
            try:
                place = place_before(fd, read_index(directory, first), span.start)
                for at, frame in frames_from(fd, path, place, stop):
                    if not frame.is_lines or frame.offset + frame.raw_bytes <= span.start:
                        continue
                    if frame.offset >= span.end:
                        return
                    try:
                        lines = frame.lines()
                    except ExternalError as error:
                        raise damaged(path, at, error.primary) from None
                    yield lines[max(span.start - frame.offset, 0) : span.end - frame.offset]
            finally:
                os.close(fd)

    def _covering(self, directory: Path, committed: Committed, span: Span) -> list[tuple[int, int]]:
        """The segments that hold a span: the first offset of each, and how many of its bytes count."""
        firsts = [first for first in segments_in(directory) if first <= committed.segment]
        if not firsts or firsts[0] > span.start:
            raise _gone(span, self._directory)
        begin = bisect_right(firsts, span.start) - 1
        found = []
        for first in firsts[begin:]:
            if first >= span.end:
                break
            active = first == committed.segment
            found.append((first, committed.length if active else _size(segment_path(directory, first), span)))
        return found


def _partitions_in(stream: Path) -> list[Path]:
    try:
        names = [name for name in os.listdir(stream) if name[:1] == "p" and name[1:].isdigit()]
    except FileNotFoundError:
        return []
    return [stream / name for name in sorted(names, key=lambda name: int(name[1:]))]


def _opened(path: Path, span: Span) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise _gone(span, path.parent.parent) from None


def _size(path: Path, span: Span) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise _gone(span, path.parent.parent) from None


def _gone(span: Span, directory: Path) -> ExternalError:
    return ExternalError(
        "LOG_SPAN_GONE",
        "a part of the segment log that is still needed is not there",
        where=f"{directory}, partition {span.partition}, bytes {span.start} to {span.end}",
        detail="The gateway removes segments that are older, or more, than it was told to keep.",
        hint="Put them back from a copy, or begin anew with --fresh; let the gateway keep more.",
    )
