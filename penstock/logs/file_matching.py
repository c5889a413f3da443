"""Finds the partition that a file continues, among those whose files are away; and whether a file is a copy of another.

Receives files that were inspected and what is known of the partitions that no file has now; decides by content, and by
names only where there is little content. A file with the inode and the first line of a partition that has no identity
(offsets of 0.1) continues it if a line ends at the offset; so does its copy, if the file with the inode was emptied.

Guarantees: a partition is continued by one file at most, and by one that has all that was read of it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.logs import archive as gz
from penstock.logs.birth import may_be_same
from penstock.logs.file_doubts import Doubts
from penstock.logs.file_identity import Identity, is_beginning
from penstock.logs.textfile import Inode, TextFile, label_of, line_of, open_file, parse_inode, pread

#: so much in common is no accident: neither a header nor a banner
LEAST_COMMON_BYTES = 4096


@dataclass(frozen=True)
class Away:
    """The partitions that no file has: how far each was read, and the identities of what was read and of what was seen
    of it."""

    offsets: Mapping[str, int]
    identities: Mapping[str, Identity]
    seen: Mapping[str, TextFile]
    may_be_behind: bool = False
    #: paths of files that were found to be copies of others, and wait
    copies: Collection[str] = ()
    #: the files that are there, and the partitions that some have
    listed: Mapping[Inode, TextFile] = field(default_factory=dict)
    held: Collection[str | None] = ()
    #: the partitions whose files were there when the directory was listed before
    recent: Collection[str] = ()
    doubts: Doubts = field(default_factory=Doubts)
    #: the last path of each partition
    homes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def ids(self) -> set[str]:
        """All partitions that are known, those that files have too."""
        return {*self.offsets, *self.identities, *self.seen}

    @cached_property
    def all_by_line(self) -> Mapping[str, list[str]]:
        """All partitions that are known, by the checksum of the first line."""
        found: dict[str, list[str]] = {}
        for id in sorted(self.ids):
            found.setdefault(line_of(id), []).append(id)
        return found

    @cached_property
    def by_line(self) -> Mapping[str, list[str]]:
        """The partitions that are away, by the checksum of the first line."""
        found: dict[str, list[str]] = {}
        for id in sorted(self.ids.difference(one for one in self.held if one)):
            found.setdefault(line_of(id), []).append(id)
        return found

    @cached_property
    def by_label(self) -> Mapping[str, list[str]]:
        """The partitions that are away, by their label."""
        found: dict[str, list[str]] = {}
        for id in sorted(self.ids.difference(one for one in self.held if one)):
            found.setdefault(label_of(id), []).append(id)
        return found

    @cached_property
    def listed_by_line(self) -> Mapping[str, list[TextFile]]:
        """The files that are there, by the checksum of the first line."""
        found: dict[str, list[TextFile]] = {}
        for text in self.listed.values():
            if text.label:
                found.setdefault(line_of(text.label), []).append(text)
        return found

    @cached_property
    def births(self) -> set[int]:
        """When the files that are there were created."""
        return {text.birth for text in self.listed.values()}

    def is_emptied(self, id: str, text: TextFile) -> bool:
        """Whether the file of a partition that is away is there, with other content, and is not a given one."""
        seen, identity = self.seen.get(id), self.identities.get(id)
        if seen is not None:
            now = self.listed.get(seen.inode)
            return now is not None and now is not text and may_be_same(now.birth, seen.birth)
        birth = 0 if identity is None else identity.birth
        return birth not in (0, text.birth) and birth in self.births

    def known(self, id: str) -> list[Identity]:
        """What is known of the content of a partition."""
        found = [Identity.of_seen(self.seen[id])] if id in self.seen else []
        if id in self.identities:
            found.append(self.identities[id])
        return [identity for identity in found if identity.length]


def assign_texts(texts: Iterable[TextFile], away: Away) -> None:
    """Give each file that continues a partition that partition's id; the best fits first."""
    taken: set[str] = set()
    moved = [text for text in texts if text.label and not _is_where_it_was(text, away, taken)]
    pairs = []
    for text in moved:
        candidates = [id for id in away.by_line.get(line_of(str(text.label)), []) if id not in taken]
        if not candidates or (fd := open_file(text.path)) is None:
            continue
        try:
            for id in candidates:
                identity = _find_match(fd, text, id, away)
                if identity is not None:
                    pairs.append((_rank(text.path, text.label, id, identity), text, id, identity))
        finally:
            os.close(fd)
    for _, text, id, identity in sorted(pairs, key=lambda pair: pair[0]):
        if text.id is None and id not in taken:
            text.id = id
            taken.add(id)
            _report_doubts(text, identity, id, away)
    if not away.may_be_behind:
        _assign_former(moved, away, taken)


def _is_where_it_was(text: TextFile, away: Away, taken: set[str]) -> bool:
    """Give a file its partition if its inode, first line and path are the same and it has all that is known of it. So a
    start compares each file once, although all have the same first line."""
    fits = []
    for id in away.by_label.get(str(text.label), []):
        if id not in taken and (known := away.known(id)) and known[0].path == text.path:
            fits.append((-known[0].length, id, known[0]))
    if not fits or (fd := open_file(text.path)) is None:
        return False
    try:
        for _, id, identity in sorted(fits, key=lambda fit: fit[:2]):
            if identity.matches_text(fd):
                text.id = id
                taken.add(id)
                return True
        return False
    finally:
        os.close(fd)


def _report_doubts(text: TextFile, identity: Identity, id: str, away: Away) -> None:
    """Say what may be wrong where a file continues a partition."""
    seen = away.seen.get(id)
    if identity.length < (seen.latest if seen is not None else 0):
        away.doubts.report_lost(text.path, identity.length)
    if not identity.is_related_to(text.path):
        away.doubts.report_continuation(text.path, identity.path, identity.length)


def _assign_former(texts: Collection[TextFile], away: Away, taken: set[str]) -> None:
    """Give the copies of files that were emptied the partitions of these, of which only the inode, the first line and
    the offset are known."""
    inodes = {text.inode[1]: text for text in away.listed.values()}
    for id, offset in away.offsets.items():
        emptied = inodes.get(parse_inode(id) or 0)
        if emptied is None or emptied.id == id or id in taken or away.known(id) or not offset:
            continue
        name = Identity.of_offset(emptied.path, offset)
        fits = [
            text
            for text in texts
            if text.id is None
            and text is not emptied
            and line_of(str(text.label)) == line_of(id)
            and name.is_related_to(text.path)
            and _has_line_end(text, offset)
        ]
        if len(fits) == 1:
            fits[0].id = id
            taken.add(id)
            away.doubts.report_continuation(fits[0].path, emptied.path, offset)


def _has_line_end(text: TextFile, offset: int) -> bool:
    """Whether a line of a file ends at an offset."""
    if text.latest < offset or (fd := open_file(text.path)) is None:
        return False
    try:
        return pread(fd, 1, offset - 1) == b"\n"
    finally:
        os.close(fd)


def _find_match(fd: int, text: TextFile, id: str, away: Away) -> Identity | None:
    """The identity by which a file continues a partition; None if it does not."""
    has_label = label_of(id) == text.label
    known = away.known(id)
    if not known:
        offset = away.offsets.get(id, 0)
        # of a finished file the last line may have no newline
        is_line_end = offset in (0, text.size) or (offset < text.size and pread(fd, 1, offset - 1) == b"\n")
        fits = has_label and (away.may_be_behind or is_line_end)
        return Identity.of_offset(text.path, offset) if fits else None
    for number, identity in enumerate(known):
        if number and identity.is_weak:  # more was seen of it, which the file does not have
            break
        is_same_file = has_label and may_be_same(identity.birth, text.birth)
        fits = is_same_file or not identity.is_weak or identity.is_related_to(text.path)
        if fits and not _is_new(text, id, identity, away) and identity.matches_text(fd):
            return identity
    return None


def _is_new(text: TextFile, id: str, identity: Identity, away: Away) -> bool:
    """Whether a file is one of its own although it may have the content of a partition: it has another name and inode,
    no line beyond what was read, and the other was not emptied. So it is not lost if the next file of a writer has the
    same lines. Where nobody knows when files were created, an inode that was away and has changed since was used
    again."""
    seen = away.seen.get(id)
    if identity.birth and text.birth:
        has_inode = identity.birth == text.birth and (seen is None or seen.inode == text.inode)
    elif seen is not None:
        has_inode = (seen.inode, seen.mtime_ns) == (text.inode, text.mtime_ns)
    else:
        has_inode = parse_inode(id) == text.inode[1]
    was_read = away.offsets.get(id, identity.length) >= identity.length == text.latest
    return (
        was_read
        and not away.may_be_behind
        and text.path not in away.copies
        and not has_inode
        and not away.is_emptied(id, text)
        and not identity.is_related_to(text.path)
    )


def _rank(path: str, label: str | None, id: str, identity: Identity) -> tuple[object, ...]:
    """The order in which fits are taken: the most that is known to be the same, the same inode, the same path."""
    is_renamed = not identity.is_related_to(path)
    return -identity.length, label_of(id) != label, identity.path != path, is_renamed, path, id


def assign_archive(path: str, archive: gz.Archive, away: Away) -> str | None:
    """The partition that an archive continues."""
    candidates = away.by_line.get(f"{archive.first_line_crc:08x}", [])
    if not candidates or (fd := open_file(path)) is None:
        return None
    try:
        fits = []
        for id in candidates:
            known = away.known(id)
            offset = away.offsets.get(id, 0)
            if not known:
                if _fits_former(fd, archive, id, offset):
                    fits.append(_rank(path, archive.own_id, id, Identity.of_offset("", offset)))
                continue
            for identity in known:
                related = (
                    label_of(id) == archive.own_id or not identity.is_weak or identity.is_related_to(path)
                )
                if related and identity.matches_archive(fd, archive):
                    fits.append(_rank(path, archive.own_id, id, identity))
    finally:
        os.close(fd)
    return str(min(fits)[-1]) if fits else _find_of_damaged(path, archive, candidates, away)


def _find_of_damaged(path: str, archive: gz.Archive, candidates: Iterable[str], away: Away) -> str | None:
    """The partition of a damaged archive that shows less than was read: the one with which it has the most in common,
    by what can be compared, if its name is related or that is much."""
    if archive.damage is None or away.may_be_behind:
        return None
    known = [(id, identity) for id in candidates for identity in away.known(id)[:1]]
    fits = [
        (-_count_sure(path, archive, one), id, one) for id, one in known if _count_sure(path, archive, one)
    ]
    if not fits:
        return None
    _, id, identity = min(fits, key=lambda fit: fit[:2])
    unread = identity.length - away.offsets.get(id, identity.length)
    if unread > 0:
        away.doubts.report_lost(path, away.offsets[id])
    else:
        away.doubts.report_shorter_copy(path, identity.path, identity.length)
    return id


def _count_sure(path: str, archive: gz.Archive, identity: Identity) -> int:
    """How many bytes a damaged archive has in common with what was read; 0 if it may be another's."""
    own = Identity.of_archive(path, archive)
    if own.length >= identity.length:
        return 0
    shared = identity.count_shared(own) or (own.length if own.is_weak else 0)
    return shared if identity.is_related_to(path) or shared >= LEAST_COMMON_BYTES else 0


def find_original_of_damaged(path: str, archive: gz.Archive, away: Away) -> tuple[Identity | None, bool]:
    """What was read of a partition, which may be there, that starts as a damaged archive does; whether the archive is
    surely a part of it."""
    if archive.damage is None:
        return None, False
    own = Identity.of_archive(path, archive)
    ids = away.all_by_line.get(f"{archive.first_line_crc:08x}", [])
    known = [away.identities[id] for id in ids if id in away.identities]
    sure = [one for one in known if _count_sure(path, archive, one)]
    unsure = [one for one in known if own.count_shared(one)]
    return next(iter([*sure, *unsure]), None), bool(sure)


def _fits_former(fd: int, archive: gz.Archive, id: str, offset: int) -> bool:
    """Whether an archive can be that of a partition of which only the offset is known."""
    if parse_inode(id) is None:
        return label_of(id) == archive.own_id
    return (offset <= archive.text_bytes or archive.damage is not None) and gz.is_boundary(fd, offset)


def find_original(text: TextFile, away: Away) -> TextFile | None:
    """The file that starts with all whole lines of another, which may be a copy of it."""
    others = away.listed_by_line.get(line_of(str(text.label)), [])
    longer = (other for other in others if other.id is not None and other.latest >= text.latest)
    return next((other for other in longer if _is_beginning(text, other)), None)


def find_shorter(text: TextFile, away: Away) -> TextFile | None:
    """The longest file whose whole lines are the first of a given one, which has more."""
    others = away.listed_by_line.get(line_of(str(text.label)), [])
    shorter = (other for other in others if other.id is not None and 0 < other.latest < text.latest)
    fits = [other for other in shorter if _is_beginning(other, text)]
    return min(fits, key=lambda other: (-other.latest, other.path)) if fits else None


def _is_beginning(text: TextFile, other: TextFile) -> bool:
    """Whether a file starts with all whole lines of another."""
    head = text.head[: text.latest - text.start]
    if other.inode == text.inode or other.start != text.start or other.head[: len(head)] != head:
        return False
    fd, other_fd = open_file(text.path), open_file(other.path)
    try:
        return fd is not None and other_fd is not None and is_beginning(fd, text.latest, other_fd)
    finally:
        for one in (fd, other_fd):
            if one is not None:
                os.close(one)


def find_text_original(archive: gz.Archive, texts: Iterable[tuple[str, str]]) -> str | None:
    """The partition of a text file that starts with all that is in an archive; text files are given by their partitions
    and paths."""
    line, identity = f"{archive.first_line_crc:08x}", Identity.of_archive("", archive)
    for id, path in texts:
        if not archive.text_bytes or line_of(id) != line:
            continue
        fd = open_file(path)
        if fd is None:  # renamed this moment: the next refresh decides
            return id
        try:
            if identity.matches_text(fd):
                return id
        finally:
            os.close(fd)
    return None


def is_copy_of_archive(archive: gz.Archive, other: gz.Archive) -> bool:
    """Whether an archive has the same text as another, or is damaged and starts as it does."""
    if archive.own_id != other.own_id:
        return False
    same = (archive.text_bytes, archive.text_crc) == (other.text_bytes, other.text_crc)
    return same or (archive.damage is not None and archive.text_bytes <= other.text_bytes)


def new_id(label: str, taken: Collection[str]) -> str:
    """An id for a new partition: its label, with a number where that is another's."""
    id, number = label, 1
    while id in taken:
        number += 1
        id = f"{label}-{number}"
    return id
