"""Maps files to partitions by identities that survive renaming, rotation, copying, truncation and compression.

Receives globs, the offsets reached and the identities kept with them; returns the partitions found now, and the path of
each.

Invariants:
- A partition exists once the first line of its file is whole.
- A file keeps its partition while it has grown only. Any other is compared with the partitions whose files are away
  (`file_matching`): one that has what was read of a partition continues it, under any name and inode; else it is new.
- A file that a rename or a copy took out of the glob, into the same directory, is found there and followed. A file that
  no glob matches and that continues none is not read, whatever its inode is.
- A file that has no more than the beginning of another is its copy: it waits while it may still be written, and is left
  out with a warning once it is not. If the other is truncated or removed, the copy continues it.
- What was unread when its file vanished is reported as an error once, then forgotten.
Does not guarantee: to find what was written to a file after it was listed last and before it was truncated, if no copy
of it is left in its directory (a warning says so).
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Mapping

from penstock.errors import ExternalError
from penstock.logs.file_archives import ArchivePartitions, Found, Location, archives_beside, key_of
from penstock.logs.file_copies import KNOWN_FILES, Copies
from penstock.logs.file_doubts import Doubts
from penstock.logs.file_identity import Identity
from penstock.logs.file_matching import Away, assign_texts
from penstock.logs.forgotten_files import KEY, ForgottenFiles
from penstock.logs.new_files import OnRewrite
from penstock.logs.new_partitions import NewPartitions
from penstock.logs.textfile import (
    Inode,
    TextFile,
    edge_crc,
    find_path,
    index_inodes,
    inspect_file,
    open_file,
    parse_inode,
    stat_beside,
    stat_regular_file,
    unreadable_error,
)

#: how many partitions that offsets no longer name are still recognised if their files come back with more lines
REMEMBERED = 100


class FilePartitions:
    """The files of some globs, by identity. Only `homes`, the last path of each id, is pickled."""

    def __init__(
        self,
        patterns: tuple[str, ...],
        finished: bool,
        gz_settle_seconds: float,
        on_rewrite: OnRewrite = "error",
    ) -> None:
        self.patterns = patterns
        self.finished = finished
        self.gz_settle_seconds = gz_settle_seconds
        self.on_rewrite: OnRewrite = on_rewrite
        self.homes: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        self._texts: dict[Inode, TextFile] = {}
        self._gone: dict[str, TextFile] = {}
        self.doubts = Doubts()
        self._copies = Copies(self.gz_settle_seconds)
        self._new = NewPartitions(self._copies, self.doubts, self.gz_settle_seconds, self.on_rewrite)
        self._archives = ArchivePartitions(self._copies, self._new, self.finished)
        self._locations: dict[str, Location] = {}
        self._inodes: dict[str, Inode] = {}
        self._missing: dict[str, Location] = {}
        self._searched_ids: set[str] = set()
        self._strangers: set[tuple[int, ...]] = set()
        self._retained: Mapping[str, int] = {}
        self._forgettable: set[str] = set()
        #: what was read of each partition, those that are forgotten first
        self.identities: dict[str, Identity] = {}
        self._recognised: Mapping[str, str] = {}
        #: paths of files that wait until it is clear whether they are copies or still written
        self.waiting: frozenset[str] = frozenset()

    def __getstate__(self) -> dict[str, object]:
        pickled = ("patterns", "finished", "gz_settle_seconds", "on_rewrite", "homes")
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

    def find_inode(self, id: str) -> Inode | None:
        """The device and inode at which the last `refresh` saw a partition; None if it is in an archive."""
        return self._inodes.get(id)

    # -- what is kept with the offsets -----------------------------------------------------------

    def recognise(self, identities: Mapping[str, str]) -> None:
        """Use the identities that were kept with the offsets."""
        if identities is not self._recognised:
            self.identities = {id: Identity.from_text(text) for id, text in identities.items() if id != KEY}
            self._new.forgotten = ForgottenFiles(identities.get(KEY, ""))
            self._recognised = identities

    def identify(self, offsets: Mapping[str, int]) -> Mapping[str, str]:
        """The identities to keep with these offsets, and the last ones of partitions that they no longer name."""
        deleted = self._forgettable.difference(offsets)
        for id in deleted:
            self._gone.pop(id, None)
            self.homes.pop(id, None)
            self._new.starts.pop(id, None)
        self._searched_ids -= deleted
        self._forgettable = set()
        forgotten = [id for id in self.identities if id not in offsets]
        self._new.forgotten.add(self.identities[id] for id in forgotten[:-REMEMBERED])
        identities = {id: self.identities[id] for id in forgotten[-REMEMBERED:]}
        for id, offset in offsets.items():
            identity, location = self.identities.get(id), self._locations.get(id)
            is_same = identity is not None and location is not None and identity.is_at(offset, location.path)
            if location is not None and offset and not is_same:
                identity = self._identify(location, offset) or identity
            if identity is not None:
                identities[id] = identity
        fingerprints = self._new.forgotten.to_text(self._new.waiting_copies)
        is_known = self._recognised.get(KEY, "") == fingerprints
        if not is_known or identities != self.identities or list(identities) != list(self.identities):
            self.identities = identities
            texts = {id: identity.to_text() for id, identity in identities.items()}
            self._recognised = {KEY: fingerprints, **texts} if fingerprints else texts
        return self._recognised

    def _identify(self, location: Location, offset: int) -> Identity | None:
        if location.archive:
            archive = self._archives.find(location.id)
            return None if archive is None else Identity.of_archive(location.path, archive)
        text = self._texts.get(self._inodes.get(location.id, (0, 0)))
        if text is not None and text.latest == offset:
            return Identity.of_seen(text)
        fd = open_file(location.path)
        if fd is None:
            return None
        try:
            status = os.fstat(fd)
            if text is None or (status.st_dev, status.st_ino) != text.inode:
                return None  # renamed this moment: it is known by its inode until the next epoch
            if status.st_size < text.size or edge_crc(fd, text.latest) != text.edge_crc:
                return None  # replaced this moment: these are not the bytes that were listed
            return Identity.of_text(text.path, fd, offset, text.birth)
        finally:
            os.close(fd)

    def retain(self, offsets: Mapping[str, int]) -> None:
        """Nothing before these offsets will be read again."""
        self._retained = offsets

    def forgettable(self, offsets: Mapping[str, int]) -> set[str]:
        """The partitions of which all was read that no file has any more, not even for an epoch that is retained."""
        if self.finished:
            return set()
        away = offsets.keys() - self._locations.keys() - self._missing.keys()
        self._forgettable = {id for id in away if self._retained.get(id) == offsets[id]}
        return set(self._forgettable)

    # -- what is there ---------------------------------------------------------------------------

    def refresh(self, offsets: Mapping[str, int], *, may_be_behind: bool = False) -> list[Location]:
        """Inspect every file that matches or is followed. `may_be_behind`: the offsets may come from other copies
        of the files; then only a file that was seen to shrink is refused, and one that vanished is no error."""
        seen: dict[Inode, TextFile] = {}
        archives: list[Found] = []
        for path in self.matches():
            if (status := stat_regular_file(path)) is None:
                continue
            if path.endswith(".gz"):
                archives.append((path, status))
            else:
                self._inspect(path, status, seen)
        rewritten = self._follow_renamed(seen)
        new = [text for text in seen.values() if text.label and text.id is None]
        if new:
            assign_texts(new, self._away(offsets, seen, behind=may_be_behind))
        for text in rewritten:
            if text.id is None:
                self._leave_out(text, seen)
        new = [text for text in new if text.inode in seen]
        self._find_renamed(seen, offsets)
        can_be_copies = not (self.finished or may_be_behind)
        waiting, cuts = self._new.add(new, self._away(offsets, seen), can_be_copies=can_be_copies)
        locations = {t.id: self._locate(t) for t in seen.values() if t.id}

        def away(held: Iterable[str]) -> Away:
            return self._away(offsets, seen, held, behind=may_be_behind)

        waiting |= self._archives.add(archives, locations, offsets, away)
        suspects, known = self._missing, self._missing | self._locations
        lost = [known[id] for id in known.keys() - locations.keys()]
        if lost:
            self._search_beside(lost, seen, locations, offsets)
            found = archives_beside(lost)
            waiting |= self._archives.add(found, locations, offsets, away, only_adopted=True)
        self.waiting = frozenset(waiting)
        added, waiting_cuts = self._new.add_cut(cuts, away(locations), self._may_be_waiting)
        locations.update((str(text.id), self._locate(text)) for text in added)
        waiting |= waiting_cuts
        self._locations = locations
        self._inodes = {text.id: inode for inode, text in seen.items() if text.id}
        self._missing = {id: location for id, location in known.items() if id not in locations}
        self.homes.update((location.id, location.path) for location in locations.values())
        self.waiting = frozenset(waiting)
        self._copies.forget_unlisted()
        if may_be_behind:
            _check_truncated(seen.values(), offsets)
        self._report_lost(suspects, {} if may_be_behind else offsets)
        return sorted(locations.values(), key=lambda location: location.path)

    def _locate(self, text: TextFile) -> Location:
        """Where the partition of a file is now."""
        start = self._new.starts.get(str(text.id), text.start)
        return Location(str(text.id), text.path, text.latest, self.finished, start=start)

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

    def _follow_renamed(self, seen: dict[Inode, TextFile]) -> list[TextFile]:
        """Find the known files that no longer match: under their path, or renamed in their directory. Returns those
        with other content than before: their inodes may have been used again."""
        rewritten = []
        for text in [text for inode, text in self._texts.items() if inode not in seen]:
            status = stat_regular_file(text.path) if text.id else None
            if text.id and (status is None or (status.st_dev, status.st_ino) != text.inode):
                path = find_path(text.inode[1], [os.path.dirname(text.path) or "."])
                status, text.path = (stat_regular_file(path), path) if path else (None, text.path)
            if status is not None and (status.st_dev, status.st_ino) == text.inode:
                self._inspect(text.path, status, seen)
                if text.inode in seen and seen[text.inode].id is None:
                    rewritten.append(seen[text.inode])
            if text.inode not in seen:
                del self._texts[text.inode]
                if text.id:
                    self._gone[text.id] = text
        return rewritten

    def _leave_out(self, text: TextFile, seen: dict[Inode, TextFile]) -> None:
        """Forget a file outside the glob that continues no partition."""
        if len(self._strangers) > KNOWN_FILES:
            self._strangers.clear()
        self._strangers.add((*text.inode, text.size, text.mtime_ns))
        seen.pop(text.inode, None)
        self._texts.pop(text.inode, None)

    def _find_renamed(self, seen: dict[Inode, TextFile], offsets: Mapping[str, int]) -> None:
        """Find, once, the files of an earlier run that were renamed out of the glob while no engine ran."""
        here = {text.id for text in seen.values()}
        orphans = offsets.keys() - here - self._searched_ids - self._gone.keys()
        self._searched_ids.update(offsets)
        paths = index_inodes(self.directories()) if orphans else {}
        for id in orphans:
            identity = self.identities.get(id)
            if identity is not None:
                self._missing.setdefault(id, Location(id, identity.path, identity.length, self.finished))
            path = paths.get(parse_inode(id) or 0)
            status = stat_regular_file(path) if path else None
            if path and status is not None and (status.st_dev, status.st_ino) not in seen:
                self._inspect(path, status, seen)
                text = seen.get((status.st_dev, status.st_ino))
                if text is not None and text.id is None:
                    self._assign_found({text.inode: text}, seen, {id: offsets[id]})

    def _assign_found(
        self, found: dict[Inode, TextFile], seen: dict[Inode, TextFile], offsets: Mapping[str, int]
    ) -> None:
        """Recognise files outside the glob; forget those that continue no partition."""
        assign_texts(found.values(), self._away(offsets, seen))
        for inode, text in found.items():
            if text.id is None:
                self._leave_out(text, seen)
            else:
                seen[inode] = self._texts[inode] = text

    def _away(
        self,
        offsets: Mapping[str, int],
        seen: Mapping[Inode, TextFile],
        held: Iterable[str] = (),
        *,
        behind: bool = False,
    ) -> Away:
        """What is known of the partitions that no file of this refresh has, nor is `held` otherwise."""
        return Away(
            offsets,
            self.identities,
            self._gone,
            may_be_behind=behind,
            copies=self.waiting,
            listed=seen,
            held={*held, *(text.id for text in seen.values())},
            recent=self._locations,
            doubts=self.doubts,
            homes=self.homes,
        )

    def _search_beside(
        self,
        lost: Iterable[Location],
        seen: dict[Inode, TextFile],
        locations: dict[str, Location],
        offsets: Mapping[str, int],
    ) -> None:
        """Find the copies of vanished files beside them, which no glob matches."""
        found: dict[Inode, TextFile] = {}
        for directory in sorted({os.path.dirname(location.path) for location in lost}):
            for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*"))):
                status = None if path.endswith(".gz") else stat_beside(path)
                if (
                    status is None
                    or (status.st_dev, status.st_ino) in seen
                    or key_of(status) in self._strangers
                ):
                    continue
                with contextlib.suppress(OSError):  # not a file of ours
                    text = inspect_file(path, None, self.finished)
                    found[text.inode] = text
        wanted = {location.id: offsets.get(location.id, 0) for location in lost}
        self._assign_found(found, seen, wanted)
        for text in found.values():
            if text.id is not None:
                locations[text.id] = self._locate(text)

    def _report_lost(self, suspects: Mapping[str, Location], offsets: Mapping[str, int]) -> None:
        """Raise for files that were missing already last time and had not been read; forget them. One that a file which
        waits may continue is not lost yet."""
        for id in suspects.keys() & self._missing.keys():
            if self._may_be_waiting(self._missing[id].path):
                continue
            lost = self._missing.pop(id)
            if id in offsets and offsets[id] < lost.latest:
                raise ExternalError(
                    "LOG_SPAN_GONE",
                    f"{lost.path} was removed or replaced before it was read to its end",
                    where=f"partition {id}, offsets {offsets[id]} to {lost.latest}",
                    hint="Put the file back beside the others under any name, or start again to continue without it.",
                )
            if self._is_truncated(id):
                self.doubts.report_emptied(lost.path, lost.latest)

    def _may_be_waiting(self, path: str) -> bool:
        """Whether a file that waits is in the directory of a lost one, or has a name like its."""
        name = Identity.of_offset(path, 0)
        return any(
            os.path.dirname(one) == os.path.dirname(path) or name.is_related_to(one) for one in self.waiting
        )

    def _is_truncated(self, id: str) -> bool:
        """Whether the file of a partition is still there, with other content."""
        gone = self._gone.get(id)
        now = None if gone is None else self._texts.get(gone.inode)
        return gone is not None and now is not None and now.path == gone.path


def _check_truncated(texts: Iterable[TextFile], offsets: Mapping[str, int]) -> None:
    for text in texts:
        if text.label and text.id not in (None, text.label) and text.label in offsets:
            raise ExternalError(
                "LOG_TRUNCATED",
                f"{text.path} was truncated or overwritten, but starts with the same line as before",
                where=f"partition {text.label}",
                detail=f"It has {text.size} bytes; {offsets[text.label]} were already read before.",
                hint="Rotate by renaming, or move the file away and write a new one.",
            )
