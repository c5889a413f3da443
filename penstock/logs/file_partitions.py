"""Maps files to partitions by identities that survive renaming, rotation, truncation and compression.

Receives globs and the offsets reached; returns the partitions found now, and the path of each.

Invariants:
- A partition exists once the first line of its file is whole.
- A file that a rename inside its directory took out of the glob is followed until it is removed.
- An archive takes the identity of the vanished text file it was made from, else one from its own content;
  while its text file is still there, the archive waits unseen.
- What was unread when its file vanished is reported as an error once, then forgotten.
Does not guarantee: to tell files apart that share inode and beginning (an inode used again for a file with
the same header); to know the copy that "copytruncate" leaves: keep such copies out of the glob.
"""

from __future__ import annotations

import glob
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ExternalError
from penstock.logs import archive as gz
from penstock.logs.textfile import (
    PREFIX_BYTES,
    Inode,
    TextFile,
    find_path,
    inspect_file,
    open_text,
    parse_inode,
    pread,
    stat_regular_file,
    unreadable_error,
)

_Found = tuple[str, os.stat_result]


@dataclass(frozen=True)
class Location:
    """A partition and its current path."""

    id: str
    path: str
    latest: int
    finished: bool
    archive: bool = False


class FilePartitions:
    """The files of some globs, by identity. Only `homes`, the last path of each id, is pickled."""

    def __init__(self, patterns: tuple[str, ...], finished: bool, gz_settle_seconds: float) -> None:
        self.patterns = patterns
        self.finished = finished
        self.gz_settle_seconds = gz_settle_seconds
        self.homes: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        self._texts: dict[Inode, TextFile] = {}
        self._gone: dict[str, TextFile] = {}
        self._archives: dict[tuple[int, ...], gz.Archive] = {}
        self._archive_ids: dict[tuple[int, ...], str] = {}
        self._locations: dict[str, Location] = {}
        self._missing: dict[str, Location] = {}
        self._searched_ids: set[str] = set()

    def __getstate__(self) -> dict[str, object]:
        pickled = ("patterns", "finished", "gz_settle_seconds", "homes")
        return {name: getattr(self, name) for name in pickled}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._forget()

    def matches(self) -> list[str]:
        """The paths that match now, in order."""
        return sorted({path for pattern in self.patterns for path in glob.glob(pattern, recursive=True)})

    def directories(self) -> list[str]:
        """The directories in which files may match."""
        found = {d for p in self.patterns for d in glob.glob(os.path.dirname(p) or ".", recursive=True)}
        return sorted(d for d in found if os.path.isdir(d))

    def find_location(self, id: str) -> Location | None:
        """Where the last `refresh` saw a partition."""
        return self._locations.get(id)

    def refresh(self, offsets: Mapping[str, int], *, may_be_behind: bool = False) -> list[Location]:
        """Inspect every file that matches or is followed. `may_be_behind`: the offsets may come from other copies
        of the files; then only a file that was seen to shrink is refused, and one that vanished is no error."""
        seen: dict[Inode, TextFile] = {}
        archives: list[_Found] = []
        for path in self.matches():
            if (status := stat_regular_file(path)) is None:
                continue
            if path.endswith(".gz"):
                archives.append((path, status))
            else:
                self._inspect(path, status, seen)
        self._follow_renamed(seen)
        self._find_renamed(seen, offsets)
        locations = {t.id: Location(t.id, t.path, t.latest, self.finished) for t in seen.values() if t.id}
        waiting = self._add_archives(archives, locations, offsets)
        suspects, known = self._missing, self._missing | self._locations
        if known.keys() - locations.keys():
            beside = _archives_beside(known[id] for id in known.keys() - locations.keys())
            waiting |= self._add_archives(beside, locations, offsets, only_adopted=True)
        self._locations = locations
        self._missing = {id: location for id, location in known.items() if id not in locations}
        self.homes.update((location.id, location.path) for location in locations.values())
        _check_truncated(seen.values(), offsets, may_be_behind)
        if not waiting:
            self._report_lost(suspects, {} if may_be_behind else offsets)
        return sorted(locations.values(), key=lambda location: location.path)

    def _inspect(self, path: str, status: os.stat_result, seen: dict[Inode, TextFile]) -> None:
        inode = (status.st_dev, status.st_ino)
        if inode in seen:
            return
        known = self._texts.get(inode)
        if known and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
            if known.name != path:
                known.name, known.path = path, os.path.realpath(path)
            seen[inode] = known
            return
        try:
            text = inspect_file(path, known, self.finished)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable_error(path, error) from error
        if text.inode != inode:  # replaced in between: the next refresh sees both
            return
        if known and known.id and known.id != text.id:
            self._gone[known.id] = known
        seen[inode] = self._texts[inode] = text

    def _follow_renamed(self, seen: dict[Inode, TextFile]) -> None:
        """Find the known files that no longer match: under their path, or renamed in their directory."""
        for text in [text for inode, text in self._texts.items() if inode not in seen]:
            status = stat_regular_file(text.path)
            if status is None or status.st_ino != text.inode[1]:
                path = find_path(text.inode[1], [os.path.dirname(text.path) or "."])
                status, text.path = (stat_regular_file(path), path) if path else (None, text.path)
            if status is not None and (status.st_dev, status.st_ino) == text.inode:
                self._inspect(text.path, status, seen)
            if text.inode not in seen:
                del self._texts[text.inode]
                if text.id:
                    self._gone[text.id] = text

    def _find_renamed(self, seen: dict[Inode, TextFile], offsets: Mapping[str, int]) -> None:
        """Find, once, the files of an earlier run that were renamed out of the glob while no engine ran."""
        here = {text.id for text in seen.values()}
        orphans = [id for id in offsets.keys() - here - self._searched_ids if parse_inode(id) is not None]
        self._searched_ids.update(offsets)
        directories = self.directories() if orphans else []
        for id in orphans:
            path = find_path(parse_inode(id), directories)
            fd = open_text(path, id) if path else None
            if path and fd is not None:
                status = os.fstat(fd)
                os.close(fd)
                self._inspect(path, status, seen)

    def _add_archives(
        self,
        found: list[_Found],
        locations: dict[str, Location],
        offsets: Mapping[str, int],
        only_adopted: bool = False,
    ) -> bool:
        """Add the archives that are complete and no mere copies; say whether some may still be written."""
        waiting = False
        for path, status in found:
            if not self.finished and time.time() - status.st_mtime < self.gz_settle_seconds:
                waiting = True
                continue
            key = _key(status)
            if key not in self._archives or key not in self._archive_ids:
                try:
                    fd = os.open(path, os.O_RDONLY)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise unreadable_error(path, error) from error
                try:
                    if _key(os.fstat(fd)) != key:  # replaced in between: the next refresh sees it
                        continue
                    archive = self._archives.get(key) or gz.inspect(fd)
                    id = self._identify_archive(fd, archive, locations, offsets)
                finally:
                    os.close(fd)
                self._archives[key] = archive
            else:
                archive, id = self._archives[key], self._archive_ids[key]
            if id is None or (only_adopted and id == archive.own_id):
                continue
            self._archive_ids[key] = id
            latest = max(archive.latest, offsets.get(id, 0)) if archive.damage else archive.latest
            if id not in locations or (locations[id].archive and locations[id].latest < latest):
                locations[id] = Location(id, path, latest, finished=True, archive=True)
        return waiting

    def _identify_archive(
        self, fd: int, archive: gz.Archive, locations: dict[str, Location], offsets: Mapping[str, int]
    ) -> str | None:
        """Find the identity of an archive; None while the text file it was made from is still there."""
        if archive.own_id in offsets or archive.own_id in locations:
            return archive.own_id
        crc = f"-{archive.first_line_crc:08x}"
        for location in locations.values():
            if (
                not location.archive
                and location.id.endswith(crc)
                and location.latest >= archive.text_bytes > 0
            ):
                size = min(archive.text_bytes, PREFIX_BYTES)
                text = open_text(location.path, location.id)
                if text is None:  # renamed this moment: the next refresh decides
                    return None
                is_same = pread(text, size, 0) == gz.prefix(fd, size)
                os.close(text)
                if is_same:
                    return None
        vanished = {id for id in (*offsets, *self._gone) if id.endswith(crc) and parse_inode(id) is not None}
        for id in sorted(vanished - locations.keys(), key=lambda id: (-offsets.get(id, 0), id)):
            offset, known = offsets.get(id, 0), self._gone.get(id)
            if offset > archive.text_bytes and not archive.damage:
                continue
            if known and zlib.crc32(gz.prefix(fd, known.prefix_bytes)) != known.prefix_crc:
                continue
            if gz.is_boundary(fd, offset):
                return id
        return archive.own_id

    def _report_lost(self, suspects: Mapping[str, Location], offsets: Mapping[str, int]) -> None:
        """Raise for files that were missing already last time and had not been read; forget them."""
        for id in suspects.keys() & self._missing.keys():
            lost = self._missing.pop(id)
            if id in offsets and offsets[id] < lost.latest:
                raise ExternalError(
                    "LOG_SPAN_GONE",
                    f"{lost.path} vanished before it was read to its end",
                    where=f"partition {id}, offsets {offsets[id]} to {lost.latest}",
                    hint="Put the file back beside the others, or start again to continue without it.",
                )


def _key(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _archives_beside(vanished: Iterable[Location]) -> list[_Found]:
    """The archives in the directories of vanished files, whether or not a glob matches them."""
    directories = sorted({glob.escape(os.path.dirname(location.path) or ".") for location in vanished})
    paths = [path for directory in directories for path in glob.glob(os.path.join(directory, "*.gz"))]
    return [(path, status) for path in sorted(paths) if (status := stat_regular_file(path))]


def _check_truncated(texts: Iterable[TextFile], offsets: Mapping[str, int], may_be_behind: bool) -> None:
    for text in texts:
        offset = offsets.get(text.id, 0) if text.id else 0
        shortened = text.shrunk if may_be_behind else text.size < offset
        if offset and (shortened or text.rewritten):
            raise ExternalError(
                "LOG_TRUNCATED",
                f"{text.path} was truncated or overwritten, but starts with the same line as before",
                where=f"partition {text.id}",
                detail=f"It has {text.size} bytes; {offset} were already read before.",
                hint="Rotate by renaming, or move the file away and write a new one.",
            )
