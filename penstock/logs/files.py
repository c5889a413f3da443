"""The log of text files: a glob of files that grow, rotate, get compressed and appear.

Receives a glob; returns the files' whole lines by byte offset, each file a partition under its identity.

Invariants:
- An offset is a byte position in the file, of a `.gz` in its unpacked text. It survives both rename and gzip.
- A last line without a newline waits, unless the files are declared finished or the file is an archive:
  then it counts, and is returned with a newline that the offsets do not count.
- A file is opened by its identity, never by name alone: a span names by what its bytes are recognised.
On failure: `ExternalError` with LOG_PATH_MISSING, LOG_UNREADABLE, LOG_TRUNCATED or LOG_SPAN_GONE; `UserError` with
LOG_NOT_FINISHED.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from penstock.errors import ExternalError, UserError
from penstock.logs import archive as gz
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.file_archives import Location
from penstock.logs.file_identity import Identity
from penstock.logs.file_partitions import FilePartitions
from penstock.logs.new_files import OnRewrite
from penstock.logs.textfile import (
    HEAD_BYTES,
    boundary_near,
    find_path,
    has_label,
    label_of,
    line_crc,
    line_of,
    open_file,
    parse_inode,
    pread,
    stat_regular_file,
    unreadable_error,
)


class FileLog(Log):
    """Text files that match a glob, or several.

    `finished` says that nothing will be added: every partition is reported finished. `gz_settle_seconds`
    is how long a `.gz` must have been unchanged before it counts as complete. `on_rewrite`: what to do with a file that
    was truncated or rewritten and still starts with lines that were read: an error, read all of it (`read`), or only
    what is added (`skip`).
    """

    unit = "bytes"

    def __init__(
        self,
        glob: str | Sequence[str],
        *,
        finished: bool = False,
        gz_settle_seconds: float = 2.0,
        on_rewrite: OnRewrite = "error",
    ) -> None:
        if on_rewrite not in get_args(OnRewrite):
            raise UserError(
                "BAD_OPTION",
                f"{on_rewrite!r} is no way to continue after a file was rewritten",
                hint="on_rewrite is 'error', 'read' or 'skip'.",
            )
        patterns = (glob,) if isinstance(glob, str) else tuple(glob)
        self._file_partitions = FilePartitions(
            tuple(os.path.abspath(os.path.expanduser(pattern)) for pattern in patterns),
            finished,
            gz_settle_seconds,
            on_rewrite,
        )

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Refuse paths that cannot work: no directory, nothing to read of a finished log, no permission."""
        file_partitions = self._file_partitions
        matches = file_partitions.matches()
        if not file_partitions.directories() or (file_partitions.finished and not matches):
            raise ExternalError(
                "LOG_PATH_MISSING",
                f"there is nothing at {', '.join(file_partitions.patterns)}",
                detail=_find_missing(file_partitions.patterns),
                hint="Check the path. A log that is not finished may be empty, but its directory must exist.",
            )
        for path in matches:
            if os.path.isdir(path):
                if path.endswith(os.sep) or any(
                    pattern.endswith("**") for pattern in file_partitions.patterns
                ):
                    continue
                raise unreadable_error(path, f"It is a directory; to read what is in it, write {path}/*")
            try:
                if stat_regular_file(path) is None:
                    os.stat(path)
                    raise unreadable_error(path, "It is not a regular file")
                os.close(os.open(path, os.O_RDONLY))
            except OSError as error:
                raise unreadable_error(path, error) from error
        if not file_partitions.finished:
            return {}
        if memory is not None and memory.get("finished") and offsets:
            self._check_no_new_files(offsets)
        return {"finished": True}

    def _check_no_new_files(self, offsets: Mapping[str, int]) -> None:
        """Raise for files that an earlier run has not seen, although they were declared finished then.

        Its event time ended with the last of them: whatever a new one holds would be late.
        """
        known = self._file_partitions
        fresh = FilePartitions(known.patterns, known.finished, known.gz_settle_seconds)
        fresh.identities = known.identities  # of a finished log, none was forgotten
        unseen = [location.path for location in fresh.refresh(offsets) if location.id not in offsets]
        if unseen:
            more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
            raise UserError(
                "LOG_NOT_FINISHED",
                f"the log was declared finished, but {unseen[0]}{more} did not exist when it was read",
                detail="Its event time has ended: all events of a new file would be late.",
                hint="Reset with --fresh, or use another --state, to read all files; if more files will come, "
                "leave out finished=True.",
            )

    def recognise(self, identities: Mapping[str, str]) -> None:
        self._file_partitions.recognise(identities)

    def identify(self, offsets: Mapping[str, int]) -> Mapping[str, str]:
        return self._file_partitions.identify(offsets)

    def prune(self, offsets: Mapping[str, int]) -> None:
        self._file_partitions.retain(offsets)

    def forgettable(self, offsets: Mapping[str, int]) -> Collection[str]:
        return self._file_partitions.forgettable(offsets)

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found = self._file_partitions.refresh(offsets)
        self.withheld = self._file_partitions.waiting
        return _to_partitions(found, {} if self.closed() else self._file_partitions.identities)

    def as_copy(self, offsets: Mapping[str, int]) -> tuple[list[Partition], Mapping[str, ExternalError]]:
        return _to_partitions(self._file_partitions.refresh(offsets, may_be_behind=True)), {}

    def count_doubts(self) -> int:
        return self._file_partitions.doubts.count

    def closed(self) -> bool:
        return self._file_partitions.finished

    def cut(self, partition: str, start: int, units: int) -> int:
        """A line's end near `start + units`; of an archive its end, since it unpacks from the start."""
        location = self._file_partitions.find_location(partition)
        if location is None:
            self._file_partitions.refresh({partition: start})
            location = self._file_partitions.find_location(partition)
        if location is None:
            raise _gone_error(
                Span(partition, start, start + units), self._file_partitions.homes.get(partition)
            )
        if location.archive or start + units >= location.latest:
            return max(start, location.latest)
        path, fd = self._open_seen(location) or self._open(Span(partition, start, location.latest))
        try:
            if path.endswith(".gz"):
                return location.latest
            return boundary_near(fd, start, units, location.latest)
        finally:
            os.close(fd)

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        if span.end <= span.start:
            return
        path, fd = self._open(span)
        read_span = _read_archive if path.endswith(".gz") else _read_text
        try:
            yield from read_span(path, fd, span, max(chunk_bytes, 1))
        finally:
            os.close(fd)

    def common_name(self, partition: str) -> str:
        """The checksum of the first line: a copy of the file is another inode."""
        return partition.split("-")[1] if "-" in partition else partition

    def known_as(self, partition: str) -> str | None:
        """The file's name."""
        home = self._file_partitions.homes.get(partition)
        return None if home is None else os.path.basename(home).removesuffix(".gz")

    def settings(self) -> Mapping[str, object]:
        return {"files": [*self._file_partitions.patterns], "finished": self._file_partitions.finished}

    def describe(self) -> str:
        return f"files {', '.join(self._file_partitions.patterns)}"

    def _open_seen(self, location: Location) -> tuple[str, int] | None:
        """The path and a descriptor of a text file, if it is still where it was seen."""
        fd = open_file(location.path)
        if fd is None:
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == self._file_partitions.find_inode(location.id):
            return location.path, fd
        os.close(fd)
        return None

    def _open(self, span: Span) -> tuple[str, int]:
        """Where a partition is now, and a descriptor of it, text or archive. Searches if it has moved."""
        file_partitions, id = self._file_partitions, span.partition
        if span.identity is not None:
            return self._open_identified(span, Identity.from_text(span.identity))
        location = file_partitions.find_location(id)
        if location is not None and (seen := self._open_seen(location)) is not None:
            return seen
        home = file_partitions.homes.get(id)
        if home:
            archived = home.endswith(".gz")
            fd = _open_archive(home, id) if archived else _open_text(home, id)
            if fd is not None:
                return home, fd
        matches = file_partitions.matches()
        directories = {
            *file_partitions.directories(),
            *(os.path.dirname(path) for path in [*matches, home or ""]),
        }
        directories.discard("")
        path = find_path(parse_inode(id), sorted(directories)) if parse_inode(id) is not None else None
        if path and (fd := _open_text(path, id)) is not None:
            file_partitions.homes[id] = path
            return path, fd
        for path in sorted({*matches, *_archives_in(directories)}):
            fd = _open_archive(path, id, span) if path.endswith(".gz") else None
            if fd is not None:
                file_partitions.homes[id] = path
                return path, fd
        raise _gone_error(span, home)

    def _open_identified(self, span: Span, identity: Identity) -> tuple[str, int]:
        """The path and a descriptor of the file that has what an epoch was planned to read, under whatever name."""
        file_partitions, id = self._file_partitions, span.partition
        home = file_partitions.homes.get(id)
        for path in (home, identity.path):
            if path and (fd := _open_if_same(path, id, identity)) is not None:
                return path, fd
        directories = {*file_partitions.directories(), os.path.dirname(identity.path)}
        beside = (glob.glob(os.path.join(glob.escape(directory), "*")) for directory in directories)
        for path in sorted({*file_partitions.matches(), *itertools.chain.from_iterable(beside)}):
            with contextlib.suppress(ExternalError):  # what cannot be read is not the file that was
                if os.path.isfile(path) and (fd := _open_if_same(path, id, identity)) is not None:
                    file_partitions.homes[id] = path
                    return path, fd
        raise _gone_error(span, identity.path)


def _to_partitions(
    locations: Sequence[Location], identities: Mapping[str, Identity] | None = None
) -> list[Partition]:
    """The partitions that are there. One that was forgotten and has come back starts where it was left."""
    known = identities or {}
    return [
        Partition(one.id, known[one.id].length if one.id in known else one.start, one.latest, one.finished)
        for one in locations
    ]


def _open_if_same(path: str, id: str, identity: Identity) -> int | None:
    """A descriptor of a file that has what was read of a partition."""
    fd = open_file(path)
    if fd is None:
        return None
    if path.endswith(".gz"):
        is_same = identity.matches_archive(fd)
    elif has_label(fd, id):
        is_same = identity.matches_edge(fd)
    else:
        is_same = identity.matches_text(fd) and (not identity.is_weak or identity.is_related_to(path))
    if is_same:
        return fd
    os.close(fd)
    return None


def _open_text(path: str, id: str) -> int | None:
    """A descriptor of a text file that has the inode and the first line of an id."""
    fd = open_file(path)
    if fd is None or has_label(fd, id):
        return fd
    os.close(fd)
    return None


def _read_text(path: str, fd: int, span: Span, chunk_bytes: int) -> Iterator[Chunk]:
    size = os.fstat(fd).st_size
    # a hole may end where the first line starts
    fits = span.end <= size and (span.start == 0 or pread(fd, 1, span.start - 1) in (b"\n", b"\0"))
    if not fits or (span.end < size and pread(fd, 1, span.end - 1) != b"\n"):
        raise _changed_error(span, path)
    at = span.start
    while at < span.end:
        end = boundary_near(fd, at, chunk_bytes, span.end)
        data = pread(fd, end - at, at)
        if len(data) < end - at:
            raise _changed_error(span, path)
        if end == span.end and not data.endswith(b"\n"):
            data += b"\n"
        yield Chunk(span.partition, at, data)
        at = end


def _read_archive(path: str, fd: int, span: Span, chunk_bytes: int) -> Iterator[Chunk]:
    reached, damaged = span.start, False
    for start, data, damage in gz.read(fd, span.start, span.end, chunk_bytes):
        reached, damaged = start + len(data), damage is not None
        yield Chunk(span.partition, start, data, f"{path}: {damage}" if damaged else None)
    if reached < span.end - 1 and not damaged:  # one offset may have been a damage that was repaired
        raise _changed_error(span, path)


def _open_archive(path: str, id: str, span: Span | None = None) -> int | None:
    """A descriptor of an archive if it starts as the partition does and, if given, fits a span."""
    fd = open_file(path)
    if fd is None:
        return None
    if parse_inode(id) is None:
        found = gz.identity(fd, gz.prefix(fd)) == label_of(id)
    else:
        found = line_of(id) == f"{line_crc(gz.prefix(fd, HEAD_BYTES)):08x}"
        if found and span is not None:
            edges = gz.is_boundary(fd, span.end) or gz.is_boundary(fd, span.end - 1)  # or a damage's offset
            found = edges and gz.is_boundary(fd, span.start)
    if found:
        return fd
    os.close(fd)
    return None


def _archives_in(directories: set[str]) -> list[str]:
    """Every archive in some directories, also those that no glob matches."""
    found: list[str] = []
    for directory in directories:
        if os.path.isdir(directory):
            found += [entry.path for entry in os.scandir(directory) if entry.name.endswith(".gz")]
    return found


def _gone_error(span: Span, home: str | None) -> ExternalError:
    return ExternalError(
        "LOG_SPAN_GONE",
        "a file that is still needed has been removed or replaced",
        where=f"partition {span.partition}, bytes {span.start} to {span.end}",
        detail=f"Its last known path is {home}." if home else None,
        hint="Put it back beside the others under any name, then start again.",
    )


def _changed_error(span: Span, path: str) -> ExternalError:
    return ExternalError(
        "LOG_TRUNCATED",
        f"{path} no longer holds the lines that an epoch was planned to read",
        where=f"partition {span.partition}, bytes {span.start} to {span.end}",
        hint="Rotate by renaming rather than by truncating, and never edit a log in place.",
    )


def _find_missing(patterns: Sequence[str]) -> str | None:
    """Find the missing directory of the first pattern that has one."""
    for pattern in patterns:
        known = Path(pattern.split("*")[0].split("?")[0].split("[")[0])
        for location in reversed([known, *known.parents]):
            if not location.exists():
                return f"{location} does not exist"
    return None
