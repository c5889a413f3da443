"""Finds the partition that a file continues, among those whose files are away; and whether a file is a copy of another.

Receives files that were inspected and what is known of the partitions that no file has now; decides by content, and by
names only where there is little content. A file with the inode and the first line of a partition that has no identity
(offsets of former versions) continues it if a line ends at the offset.

Guarantees: a partition is continued by one file at most, and by one that has all that was read of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.logs import archive as gz
from penstock.logs.file_identity import Identity, is_beginning
from penstock.logs.textfile import TextFile, label_of, line_of, open_file, parse_inode, pread

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Away:
    """The partitions that no file has: how far each was read, and the identities of what was read and of what was seen
    of it; their ids by the checksum of the first line, and by their label."""

    offsets: Mapping[str, int]
    identities: Mapping[str, Identity]
    seen: Mapping[str, TextFile]
    ids: Collection[str]
    by_line: Mapping[str, list[str]]
    by_label: Mapping[str, list[str]]
    may_be_behind: bool
    #: paths of files that were found to be copies of others, and wait
    copies: Collection[str] = ()

    @staticmethod
    def of(
        offsets: Mapping[str, int],
        identities: Mapping[str, Identity],
        seen: Mapping[str, TextFile],
        held: Collection[str | None],
        *,
        may_be_behind: bool,
        copies: Collection[str] = (),
    ) -> Away:
        ids = {*offsets, *identities, *seen}
        by_line: dict[str, list[str]] = {}
        by_label: dict[str, list[str]] = {}
        for id in sorted(ids.difference(one for one in held if one)):
            by_line.setdefault(line_of(id), []).append(id)
            by_label.setdefault(label_of(id), []).append(id)
        return Away(offsets, identities, seen, ids, by_line, by_label, may_be_behind, copies)

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
            _warn_of_doubts(text, identity, away.seen.get(id))


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


def _warn_of_doubts(text: TextFile, identity: Identity, seen: TextFile | None) -> None:
    """Say what may be wrong where a file continues a partition."""
    if identity.length < (seen.latest if seen is not None else 0):
        _LOG.warning(
            "%s was replaced by a file that has what was read of it, up to offset %d, but not the lines after "
            "that: they are lost",
            text.path,
            identity.length,
        )
    if not identity.is_related_to(text.path):
        _LOG.warning(
            "%s starts with all that was read of %s, up to offset %d, and continues it: these lines are not read "
            "again. If it is a log of its own, give it a first line of its own",
            text.path,
            identity.path,
            identity.length,
        )


def _find_match(fd: int, text: TextFile, id: str, away: Away) -> Identity | None:
    """The identity by which a file continues a partition; None if it does not."""
    has_label = label_of(id) == text.label
    known = away.known(id)
    if not known:
        offset = away.offsets.get(id, 0)
        # of a finished file the last line may have no newline
        is_line_end = offset in (0, text.size) or (offset < text.size and pread(fd, 1, offset - 1) == b"\n")
        fits = has_label and (away.may_be_behind or is_line_end)
        return Identity(text.path, offset, 0, 0) if fits else None
    for number, identity in enumerate(known):
        if number and identity.is_weak:  # more was seen of it, which the file does not have
            break
        fits = has_label or not identity.is_weak or identity.is_related_to(text.path)
        if fits and not _is_new(text, id, identity, away) and identity.matches_text(fd):
            return identity
    return None


def _is_new(text: TextFile, id: str, identity: Identity, away: Away) -> bool:
    """Whether a file is one of its own although it may have the content of a partition: it has another name and inode,
    and no line beyond what was read. So it is not lost if the next file of a writer has the same lines. An inode that
    was away and has changed since was used again."""
    seen = away.seen.get(id)
    if seen is None:
        has_inode = parse_inode(id) == text.inode[1]
    else:
        has_inode = (seen.inode, seen.mtime_ns) == (text.inode, text.mtime_ns)
    was_read = away.offsets.get(id, identity.length) >= identity.length == text.latest
    return (
        was_read
        and not away.may_be_behind
        and text.path not in away.copies
        and not has_inode
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
                    fits.append(_rank(path, archive.own_id, id, Identity("", offset, 0, 0)))
                continue
            for identity in known:
                related = (
                    label_of(id) == archive.own_id or not identity.is_weak or identity.is_related_to(path)
                )
                if related and identity.matches_archive(fd, archive):
                    fits.append(_rank(path, archive.own_id, id, identity))
        return str(min(fits)[-1]) if fits else None
    finally:
        os.close(fd)


def _fits_former(fd: int, archive: gz.Archive, id: str, offset: int) -> bool:
    """Whether an archive can be that of a partition of which only the offset is known."""
    if parse_inode(id) is None:
        return label_of(id) == archive.own_id
    return (offset <= archive.text_bytes or archive.damage is not None) and gz.is_boundary(fd, offset)


def find_original(text: TextFile, others: Iterable[TextFile]) -> TextFile | None:
    """The file that starts with all whole lines of another, which may be a copy of it."""
    head = text.head[: text.latest]
    for other in others:
        if other.id is None or other.inode == text.inode or other.latest < text.latest:
            continue
        if other.head[: len(head)] != head:
            continue
        fd, other_fd = open_file(text.path), open_file(other.path)
        try:
            if fd is not None and other_fd is not None and is_beginning(fd, text.latest, other_fd):
                return other
        finally:
            for one in (fd, other_fd):
                if one is not None:
                    os.close(one)
    return None


def is_copy_of_text(archive: gz.Archive, texts: Iterable[tuple[str, str]]) -> bool:
    """Whether a text file, given by its partition and path, starts with all that is in an archive."""
    line, identity = f"{archive.first_line_crc:08x}", Identity.of_archive("", archive)
    for id, path in texts:
        if not archive.text_bytes or line_of(id) != line:
            continue
        fd = open_file(path)
        if fd is None:  # renamed this moment: the next refresh decides
            return True
        try:
            if identity.matches_text(fd):
                return True
        finally:
            os.close(fd)
    return False


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
