"""Recognises the content of a partition in a file, whatever the file's name, inode or compression are now.

An `Identity` is evidence of what was read of a partition: its length, the checksums of its first bytes (at most
`PREFIX_BYTES`; they grow with what is read), that of the last bytes before the end, where they were read, and when the
file was created. It is kept with the offsets as one text, so that a start, a replica or a replay recognises a file as
the engine did that read it.

Guarantees: a file that an identity matches has the same length of text or more, and the same first and last bytes.
Does not guarantee: to tell a file that was replaced from one that has grown while what was read of it is all that the
two have in common; `is_weak` says that there is so little that the name has to agree too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from penstock.logs import archive as gz
from penstock.logs.textfile import EDGE_BYTES, PREFIX_BYTES, STEPS, Prefix, TextFile, edge_crc


@dataclass(frozen=True)
class Identity:
    """The first `length` bytes of a partition's text, as read at `path`."""

    #: below so many bytes that were read, files of their own may have them in common (a header, a banner)
    WEAK_BYTES: ClassVar[int] = 256

    path: str
    length: int
    prefix: Prefix
    edge_crc: int
    #: when the file was created; 0 if nobody knows, and of an archive
    birth: int = 0

    @property
    def is_weak(self) -> bool:
        """Whether other files may have all of this in common with it."""
        return self.length < self.WEAK_BYTES

    def is_at(self, length: int, path: str) -> bool:
        """Whether it is that of so much, read at a path."""
        return self.length == length and self.path == path

    def to_text(self) -> str:
        """The form in which offsets keep it."""
        checksums = (self.prefix.crc, self.edge_crc, *self.prefix.steps)
        numbers = ".".join(f"{crc:08x}" for crc in checksums)
        return f"{self.length:x}.{self.birth:x}.{numbers}:{self.path}"

    @staticmethod
    def from_text(text: str) -> Identity:
        """The identity that was written; ValueError if this is none."""
        numbers, _, path = text.partition(":")
        found = [int(number, 16) for number in numbers.split(".")]
        if len(found) == 3:  # a state directory from before files had a time of birth
            found.insert(1, 0)
        length, birth, prefix_crc, edge, *steps = found
        prefix = Prefix(min(length, PREFIX_BYTES), prefix_crc, tuple(steps))
        return Identity(path, length, prefix, edge, birth)

    @staticmethod
    def of_offset(path: str, length: int) -> Identity:
        """That of which only the length is known: offsets of 0.1 have no more."""
        return Identity(path, length, Prefix(), 0)

    @staticmethod
    def of_seen(text: TextFile) -> Identity:
        """The identity of all whole lines of a file."""
        return Identity(text.path, text.latest, text.prefix, text.edge_crc, text.birth)

    @staticmethod
    def of_archive(path: str, archive: gz.Archive) -> Identity:
        """The identity of all that can be unpacked of an archive."""
        return Identity(path, archive.text_bytes, archive.prefix, archive.edge_crc)

    @staticmethod
    def of_text(path: str, fd: int, length: int, birth: int = 0) -> Identity:
        """The identity of the first `length` bytes of an open file."""
        return Identity(path, length, Prefix().extend_from(fd, length), edge_crc(fd, length), birth)

    def has_content_of(self, other: Identity) -> bool:
        """Whether another is that of the same text."""
        return (self.length, self.prefix.crc, self.edge_crc) == (
            other.length,
            other.prefix.crc,
            other.edge_crc,
        )

    def count_shared(self, other: Identity) -> int:
        """How many first bytes are shown to be the same as in another; 0 if some that both have are not."""
        both = list(zip(STEPS, self.prefix.steps, other.prefix.steps, strict=False))
        shared = max((step for step, one, two in both if one == two), default=0)
        if any(one != two for _, one, two in both):
            return 0
        if self.prefix.length != other.prefix.length:
            return shared
        return self.prefix.length if self.prefix.crc == other.prefix.crc else 0

    def count_common(self, other: Identity) -> int:
        """How many first bytes are shown to be the same as in another, although later ones may differ."""
        common = 0
        for step, one, two in zip(STEPS, self.prefix.steps, other.prefix.steps, strict=False):
            if one != two:
                return common
            common = step
        return max(common, self.count_shared(other))

    def matches_text(self, fd: int) -> bool:
        """Whether an open file starts with what was read."""
        if os.fstat(fd).st_size < self.length or edge_crc(fd, self.length) != self.edge_crc:
            return False
        return self.length <= EDGE_BYTES or Prefix().extend_from(fd, self.length).crc == self.prefix.crc

    def matches_edge(self, fd: int) -> bool:
        """Whether an open file has what was read last where it was read: enough for one with the same inode and the
        same first line."""
        return os.fstat(fd).st_size >= self.length and edge_crc(fd, self.length) == self.edge_crc

    def matches_archive(self, fd: int, archive: gz.Archive | None = None) -> bool:
        """Whether the text of an open archive starts with what was read; `archive`: what is known of it."""
        if archive is not None and archive.text_bytes < self.length:
            # a damaged one cannot show more; what it shows must be the same
            start = min(self.length, PREFIX_BYTES)
            shows_start = archive.damage is not None and start <= archive.text_bytes
            return shows_start and gz.sample(fd, start)[0] == self.prefix.crc
        if archive is not None and archive.text_bytes == self.length:
            return self.has_content_of(Identity.of_archive(self.path, archive))
        return gz.sample(fd, self.length) == (self.prefix.crc, self.edge_crc)

    def is_related_to(self, path: str) -> bool:
        """Whether a name may be one that a rotation gives to the file: it starts with the name, less its ending, and no
        letter or digit follows that."""
        former, name = (os.path.basename(one).removesuffix(".gz") for one in (self.path, path))
        stem = os.path.splitext(former)[0]
        return name.startswith(stem) and not name[len(stem) :][:1].isalnum()


def is_beginning(fd: int, length: int, other_fd: int) -> bool:
    """Whether the first `length` bytes of a file are at the start of another too."""
    return Identity.of_text("", fd, length).matches_text(other_fd)
