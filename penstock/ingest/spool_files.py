"""Reads the files of an agent's spool: raw lines, or the same lines packed into frames."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.ingest.frames import Frame
from penstock.ingest.segments import read_frames
from penstock.state.durable import write_whole


class Lines(NamedTuple):
    """Whole lines, and the position of the first byte."""

    first: int
    data: bytes


class SpoolFile(NamedTuple):
    """A file of the spool: its first position, the position after its last, and its size on disk."""

    first: int
    end: int
    packed: bool
    size: int
    directory: Path

    @staticmethod
    def raw(directory: Path, first: int, size: int) -> SpoolFile:
        return SpoolFile(first, first + size, False, size, directory)

    @property
    def path(self) -> Path:
        return self.directory / f"{self.first:020}.{'seg' if self.packed else 'raw'}"

    def read_lines(self, position: int, most: int) -> tuple[Lines | None, int]:
        """Read lines of a raw file; return them and where to look next. A line longer than `most` is left out."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            data = os.pread(fd, min(most, self.end - position), position - self.first)
            end = data.rfind(b"\n") + 1
            if end:
                return Lines(position, data[:end]), position + end
            if len(data) < most:
                return None, self.end
            while data and b"\n" not in data:  # too long a line: find its end
                position += len(data)
                data = os.pread(fd, min(most, self.end - position), position - self.first)
            if not data:
                return None, self.end
            position += data.find(b"\n") + 1
        finally:
            os.close(fd)
        return self.read_lines(position, most)

    def read_frame(self, position: int, most: int, producer: str) -> Frame | None:
        """Read the frame of a packed file at or after a position, cut to `most` bytes of lines."""
        for frame in self.frames():
            if frame.end <= position:
                continue
            if frame.first < position:
                frame = frame.after(position)
            if frame.raw_bytes <= most:
                return frame
            lines = frame.lines()
            end = lines.rfind(b"\n", 0, most) + 1
            if end:
                return Frame.of(producer, frame.first, lines[:end], made_at=frame.made_at)
            position = frame.first + lines.find(b"\n") + 1
            if position < frame.end:
                return self.read_frame(position, most, producer)
        return None

    def count_lines(self, start: int) -> int:
        """Count the lines from a position on."""
        if not self.packed:
            return self.path.read_bytes().count(b"\n", start - self.first)
        return sum(
            (frame.after(start) if frame.first < start else frame).count
            for frame in self.frames()
            if frame.end > start
        )

    def frames(self) -> Iterator[Frame]:
        """Read all frames of a packed file."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            for _, frame in read_frames(fd, self.path, 0, os.fstat(fd).st_size):
                yield frame
        finally:
            os.close(fd)


def list_files(directory: Path) -> list[SpoolFile]:
    """List the files of a spool in order, and repair what a kill may have left."""
    names = os.listdir(directory)
    packed, raw = (
        sorted(int(name[:-4]) for name in names if name.endswith(kind) and name[:-4].isdigit())
        for kind in (".seg", ".raw")
    )
    files = []
    for first in packed:
        if first in raw:  # packed, but not yet removed
            raw.remove(first)
            SpoolFile.raw(directory, first, 0).path.unlink()
        file = SpoolFile(first, first, True, 0, directory)
        ends = [frame.end for frame in file.frames()]
        files.append(file._replace(end=max(ends, default=first), size=file.path.stat().st_size))
    for number, first in enumerate(raw):
        path = SpoolFile.raw(directory, first, 0).path
        size = path.stat().st_size
        if number + 1 < len(raw) and first + size > raw[number + 1]:  # killed while a new file was started
            size = raw[number + 1] - first
            os.truncate(path, size)
        files.append(SpoolFile.raw(directory, first, size))
    return sorted(files)


class SkippedSpans:
    """Records the numbers that a producer left out for lines it dropped before they were in its spool.

    Used by two threads: one adds, one reads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, start: int, end: int, done: int) -> None:
        """Add a span; those before `done` are removed."""
        spans = [span for span in self._spans() if span[1] > done]
        write_whole(self._path, json.dumps([*spans, (start, end)]).encode())

    def covers(self, position: int, first: int, jump: int) -> bool:
        """Whether `first` comes after `position` by a span, and not by a jump in the numbers behind it."""
        return any(start <= position < end and first - end < jump for start, end in self._spans())

    def _spans(self) -> list[tuple[int, int]]:
        try:
            return [(start, end) for start, end in json.loads(self._path.read_bytes())]
        except (FileNotFoundError, ValueError):
            return []
