"""Reads a segment log as a `Log`: engines read what agents sent through the gateway.

Receives the directory of a stream; returns the lines of its partitions by offset (bytes of lines, unpacked).

Invariants:
- It reads only what is on disk for good, so a span always holds the same bytes.
- A partition is listed once it holds something.
- The state directory records which reader this is; the gateway retains what any reader still needs.
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
from penstock.ingest.readers import remove_bookmark, write_bookmark
from penstock.ingest.segments import (
    Committed,
    damage_error,
    find_start,
    list_segments,
    read_commit,
    read_frames,
    read_heads,
    read_index,
    segment_path,
)
from penstock.logs.contract import Chunk, Log, Partition, Span


class SegmentLog(Log):
    """The segment log in a directory: `DIR/STREAM` of `penstock gateway --dir DIR`.

    With `finished` nothing will be added.
    """

    unit = "bytes"

    def __init__(self, directory: str | os.PathLike[str], *, finished: bool = False) -> None:
        self._directory = Path(os.path.abspath(os.path.expanduser(directory)))
        self._finished = finished
        self._reader: str | None = None

    @property
    def directory(self) -> Path:
        """The directory of the log."""
        return self._directory

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Register as a reader, for as long as the state directory exists: the gateway retains the log for it."""
        self._check_there()
        if self._finished:
            return {}
        # an engine may start its logs more than once before it remembers anything
        self._reader = str((memory or {}).get("reader") or self._reader or uuid.uuid4().hex[:16])
        if not (self._directory / "readers" / f"{self._reader}.json").exists():
            try:
                write_bookmark(self._directory, self._reader, offsets)
            except OSError as error:
                raise ExternalError(
                    "LOG_UNWRITABLE",
                    f"{self._directory} does not take the bookmark of its reader",
                    detail=str(error),
                    hint="The engine must be able to write there, so that the gateway retains what it needs.",
                ) from error
        return {"reader": self._reader}

    def _check_there(self) -> None:
        if not (self._directory if self._finished else self._directory.parent).is_dir():
            raise ExternalError(
                "LOG_PATH_MISSING",
                f"there is no segment log at {self._directory}",
                hint=f"Make the directory {self._directory.parent}, or name that of the gateway: "
                "segments('DIR/STREAM'). The first event creates the log itself, from a gateway or by "
                "POST /streams/NAME/events."
                if not self._finished
                else "Give the directory of the gateway and the name of the stream: segments('DIR/STREAM').",
            )

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found = []
        for directory in _list_partitions(self._directory):
            committed = read_commit(directory)
            firsts = list_segments(directory) if committed else []
            if not committed or not firsts:
                continue
            # a power loss may have taken the newest commit file, but not what it describes
            latest = max(committed.latest, offsets.get(directory.name, 0))
            if latest > firsts[0] or firsts[0] > 0:
                found.append(Partition(directory.name, firsts[0], latest, self._finished))
        return found

    def closed(self) -> bool:
        return self._finished

    def cut(self, partition: str, start: int, units: int) -> int:
        """The end of a frame near `start + units`."""
        directory = self._directory / partition
        committed = read_commit(directory)
        if committed is None or committed.latest <= start + units:
            return max(start, committed.latest if committed else start)
        end = start
        for first, stop in self._find_covering(
            directory, committed, Span(partition, start, committed.latest)
        ):
            path = segment_path(directory, first)
            fd = _open_segment(path, Span(partition, start, start + units))
            try:
                index = read_index(directory, first)
                for _, head in read_heads(fd, path, find_start(fd, index, start + units), stop):
                    after = head.frame.offset + head.frame.raw_bytes
                    if not head.frame.is_lines or after <= start:
                        continue
                    end = max(end, head.frame.offset)  # straight to the last group that may fit
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
        committed = read_commit(directory)
        pieces: list[bytes] = []
        at, held = span.start, 0
        for lines in self._read_lines(directory, committed or Committed(), span):
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
            raise _gone_error(span, self._directory)

    def prune(self, offsets: Mapping[str, int]) -> None:
        """Move this reader's bookmark; the gateway removes segments that no reader needs."""
        if self._reader is not None:
            with contextlib.suppress(OSError):  # then more is retained than needed
                write_bookmark(self._directory, self._reader, offsets)

    def forsake(self) -> None:
        if self._reader is not None:
            remove_bookmark(self._directory, self._reader)

    def settings(self) -> Mapping[str, object]:
        return {"directory": str(self._directory), "finished": self._finished}

    def describe(self) -> str:
        return f"segments {self._directory}"

    def _read_lines(self, directory: Path, committed: Committed, span: Span) -> Iterator[bytes]:
        """Read the lines of a span, a frame's at a time."""
        for first, stop in self._find_covering(directory, committed, span):
            path = segment_path(directory, first)
            fd = _open_segment(path, span)
            try:
                place = find_start(fd, read_index(directory, first), span.start)
                for at, frame in read_frames(fd, path, place, stop):
                    if not frame.is_lines or frame.offset + frame.raw_bytes <= span.start:
                        continue
                    if frame.offset >= span.end:
                        return
                    try:
                        lines = frame.lines()
                    except ExternalError as error:
                        raise damage_error(path, at, error.primary) from None
                    yield lines[max(span.start - frame.offset, 0) : span.end - frame.offset]
            finally:
                os.close(fd)

    def _find_covering(self, directory: Path, committed: Committed, span: Span) -> list[tuple[int, int]]:
        """Find the segments that hold a span: the first offset of each, and how many of its bytes count."""
        firsts = [first for first in list_segments(directory) if first <= committed.segment]
        if not firsts or firsts[0] > span.start:
            raise _gone_error(span, self._directory)
        start = bisect_right(firsts, span.start) - 1
        found = []
        for first in firsts[start:]:
            if first >= span.end:
                break
            active = first == committed.segment
            found.append(
                (first, committed.length if active else _segment_size(segment_path(directory, first), span))
            )
        return found


def _list_partitions(stream: Path) -> list[Path]:
    try:
        names = [name for name in os.listdir(stream) if name[:1] == "p" and name[1:].isdigit()]
    except FileNotFoundError:
        return []
    return [stream / name for name in sorted(names, key=lambda name: int(name[1:]))]


def _open_segment(path: Path, span: Span) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise _gone_error(span, path.parent.parent) from None


def _segment_size(path: Path, span: Span) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise _gone_error(span, path.parent.parent) from None


def _gone_error(span: Span, directory: Path) -> ExternalError:
    return ExternalError(
        "LOG_SPAN_GONE",
        "a part of the segment log that is still needed is not there",
        where=f"{directory}, partition {span.partition}, bytes {span.start} to {span.end}",
        detail="The gateway removes segments that are older, or more, than its retention.",
        hint="Restore them from a copy, or reset with --fresh; give the gateway a longer retention.",
    )
