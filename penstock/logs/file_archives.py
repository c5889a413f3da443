"""Finds the partitions of gzip archives: the text files they were made from, or partitions of their own.

Receives the archives that are there; adds those that are complete to the partitions found.

Invariants:
- An archive continues the partition of the text file it was made from, once that is away; until then it waits unseen.
- Archives are the same if all of their text is. Of several that are, one is read, and the others are left out with a
  warning. What they have in common at their start does not matter.
- An archive is unpacked once to inspect it, however often it is listed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ExternalError
from penstock.logs import archive as gz
from penstock.logs.file_copies import KNOWN_FILES, Copies
from penstock.logs.file_identity import Identity
from penstock.logs.file_matching import (
    Away,
    assign_archive,
    find_original_of_damaged,
    find_text_original,
    is_copy_of_archive,
    new_id,
)
from penstock.logs.new_partitions import NewPartitions
from penstock.logs.textfile import open_file, stat_beside

#: a path and its status
Found = tuple[str, os.stat_result]


@dataclass(frozen=True)
class Location:
    """A partition and its current path."""

    id: str
    path: str
    latest: int
    finished: bool
    archive: bool = False
    #: where its first line starts
    start: int = 0


class ArchivePartitions:
    """The archives of some globs, by what their files are."""

    def __init__(self, copies: Copies, new: NewPartitions, finished: bool) -> None:
        self._copies, self._new, self.finished = copies, new, finished
        self._archives: dict[tuple[int, ...], gz.Archive] = {}
        self._archive_ids: dict[tuple[int, ...], str] = {}

    def find(self, id: str) -> gz.Archive | None:
        """What is in the archive of a partition."""
        return next((self._archives[key] for key, known in self._archive_ids.items() if known == id), None)

    def add(
        self,
        found: list[Found],
        locations: dict[str, Location],
        offsets: Mapping[str, int],
        away: Callable[[Iterable[str]], Away],
        *,
        only_adopted: bool = False,
    ) -> set[str]:
        """Add the archives that are complete and no mere copies; return the paths of those that wait."""
        waiting: set[str] = set()
        settled: list[tuple[str, tuple[int, ...], gz.Archive]] = []
        for path, status in found:
            key = key_of(status)
            if not self.finished and not self._copies.is_settled(key):
                waiting.add(path)
            elif (
                not self._copies.has(key)
                and (archive := self._inspect_archive(path, key, is_beside=only_adopted)) is not None
            ):
                settled.append((path, key, archive))
        # first those that former offsets fit, and of damaged copies the whole one
        settled.sort(
            key=lambda one: (offsets.get(one[2].own_id) != one[2].latest, -one[2].text_bytes, one[0])
        )
        held = {*locations, *(self._archive_ids[key] for _, key, _ in settled if key in self._archive_ids)}
        for path, key, archive in settled:
            id = self._archive_ids.get(key) or self._find_archive_id(
                path, key, archive, locations, away(held), only_adopted=only_adopted
            )
            if id is None or id in locations or (only_adopted and id == archive.own_id):
                continue
            self._archive_ids[key] = id
            held.add(id)
            latest = max(archive.latest, offsets.get(id, 0)) if archive.damage else archive.latest
            start = self._new.starts.get(id, min(archive.start, latest))
            locations[id] = Location(id, path, latest, finished=True, archive=True, start=start)
        self._drop_archives_beyond({key for _, key, _ in settled})
        return waiting

    def _find_archive_id(
        self,
        path: str,
        key: tuple[int, ...],
        archive: gz.Archive,
        locations: Mapping[str, Location],
        away: Away,
        *,
        only_adopted: bool,
    ) -> str | None:
        """Find the partition of an archive; None while it is the copy of a file that is still there."""
        texts = ((one.id, one.path) for one in locations.values() if not one.archive)
        if (present := find_text_original(archive, texts)) is not None:
            self._copies.wait(key, present)
            self._new.waiting_copies.append(Identity.of_archive(path, archive))
            return None
        id = assign_archive(path, archive, away)
        if id is not None or only_adopted:
            return id
        former = self._copies.original_of(key) or ""
        if not away.may_be_behind and away.offsets.get(former, -1) >= archive.latest:
            self._copies.leave_out(key)
            self._new.forgotten.add([Identity.of_archive(path, archive)])
            away.doubts.report_shorter_copy(path, away.homes.get(former, former), away.offsets[former])
            return None
        for other, known in self._archive_ids.items():
            one = locations.get(known)
            if one is not None and one.archive and is_copy_of_archive(archive, self._archives[other]):
                self._copies.leave_out(key)
                away.doubts.report_copy(path, one.path)
                return None
        original, is_sure = find_original_of_damaged(path, archive, away)
        if original is not None and is_sure:
            self._copies.leave_out(key)
            away.doubts.report_shorter_copy(path, original.path, original.length)
            return None
        if original is not None:
            away.doubts.report_repeated(path, original.path)
        new = new_id(archive.own_id, {*away.ids, *locations, *self._archive_ids.values()})
        if not self.finished:
            self._new.recall(new, Identity.of_archive(path, archive))
        return new

    def _inspect_archive(
        self, path: str, key: tuple[int, ...], *, is_beside: bool = False
    ) -> gz.Archive | None:
        """What is in an archive; None if it is gone, or replaced in between: the next refresh sees it. One that is only
        `beside` the logs and cannot be read is none of them."""
        if key not in self._archives:
            try:
                fd = open_file(path)
            except ExternalError:
                if is_beside:
                    return None
                raise
            if fd is None:
                return None
            try:
                if key_of(os.fstat(fd)) != key:
                    return None
                self._archives[key] = gz.inspect(fd)
            finally:
                os.close(fd)
        return self._archives[key]

    def _drop_archives_beyond(self, found: set[tuple[int, ...]]) -> None:
        excess = [key for key in self._archives if key not in found][:-KNOWN_FILES]
        for key in excess:
            self._archives.pop(key)
            self._archive_ids.pop(key, None)


def archives_beside(vanished: Iterable[Location]) -> list[Found]:
    """The archives in the directories of vanished files, whether or not a glob matches them."""
    directories = sorted({glob.escape(os.path.dirname(location.path) or ".") for location in vanished})
    paths = [path for directory in directories for path in glob.glob(os.path.join(directory, "*.gz"))]
    return [(path, status) for path in sorted(paths) if (status := stat_beside(path))]


def key_of(status: os.stat_result) -> tuple[int, ...]:
    """What shows that a file is as it was."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
